// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The machines of the world, and the node's devices towards them.
const (
	nodeName  = "n1" // runs the agent
	otherName = "n2" // runs pods, too

	toOther   = "eth0"
	toControl = "eth1" // where the API servers are
	toOutside = "eth2" // where nobody's sockets are translated
)

var (
	nodeAddrs    = rig.ParsePair("192.0.2.1", "2001:db8::1")
	otherAddrs   = rig.ParsePair("192.0.2.2", "2001:db8::2")
	controlAddr  = netip.MustParseAddr("198.51.100.2")
	outsideAddrs = rig.ParsePair("203.0.113.2", "2001:db8:c::2")
)

// patience bounds how long everything may take to be well again once all
// faults are healed. An API server alone may wait ten seconds before it looks
// after default/kubernetes.
const patience = time.Minute

// world is a node with its agent, the API servers, and all that lives there.
type world struct {
	t      *testing.T
	rand   *rand.Rand // draws the steps
	agent  *rig.Agent
	size   int            // of the agent's maps: which one of sizes
	agents []*lab.Process // the last ones
	frozen bool           // the agent is stopped as a debugger stops it
	ahead  int64          // seconds by which the agent's clock is wrong
	turned bool           // it was, since the last quiet point
	cutOff bool           // the node does not reach the API servers
	// tampered says that the state file need not be whole, obstructed that it
	// cannot be written.
	tampered, obstructed bool

	control *lab.NetNS
	outside *lab.NetNS
	cluster *kube.Cluster
	servers []*server
	shared  bool // they have one port

	backends []*rig.Backend
	services []*service // they stay the same, whether or not they exist
	flood    []*service
	ledger   *ledger
	probe    *traffic.Client // a pod of the quiet points
	clients  []*client
	actions  []action
	active   []active    // in the order in which they began
	proving  atomic.Bool // promises are broken on purpose
	report   *report
	last     []string // steps, in words
}

// newWorld makes a world in which all is well.
func newWorld(t *testing.T, r run) *world {
	t.Helper()
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(r.seed, 0)),
		agent:   rig.NewAgent(t, nodeName, lab.NewNetNS(t, nodeName), ""),
		control: lab.NewNetNS(t, "control"), outside: lab.NewNetNS(t, "outside"),
		ledger: newLedger(), actions: actions(), report: newReport(r.seed),
	}
	if r.long {
		var clock clock
		clock, w.agent.Program = newClock(t)
		w.actions = append(append(w.actions, clock.faults()...), outlast)
	}
	w.connect()
	w.startCluster(r.seed%2 == 1)
	probe, _ := newPod(t, w.agent.NS, 1, 3, "probe")
	w.probe = traffic.StartClient(t, lab.Place{NetNS: probe, Cgroup: w.agent.Cgroup})
	w.launch()
	w.populate()
	w.quiet()
	w.startWatcher()
	w.startProbe()
	w.startClients(r.seed)
	return w
}

// connect lays the cables and starts servers in pods of both nodes.
func (w *world) connect() {
	t, node, other := w.t, w.agent.NS, lab.NewNetNS(w.t, otherName)
	lab.Veth(t, lab.End{NetNS: node, Link: toOther, Addrs: nodeAddrs.OnLink()}, lab.End{NetNS: other, Link: "eth0", Addrs: otherAddrs.OnLink()})
	lab.Veth(t, lab.End{NetNS: node, Link: toControl, Addrs: []string{"198.51.100.1/24"}}, lab.End{NetNS: w.control, Link: "eth0", Addrs: []string{controlAddr.String() + "/24"}})
	lab.Veth(t, lab.End{NetNS: node, Link: toOutside, Addrs: []string{"203.0.113.1/24", "2001:db8:c::1/64"}}, lab.End{NetNS: w.outside, Link: "eth0", Addrs: outsideAddrs.OnLink()})
	rig.Lead(t, node, toOther, otherAddrs, netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("fd00:2::/64"))
	rig.Lead(t, other, "eth0", nodeAddrs)
	rig.Lead(t, w.outside, "eth0", rig.ParsePair("203.0.113.1", "2001:db8:c::1"))
	w.leadFromControl()
	for i := range 4 {
		w.addBackend(node, nodeName, 1, i)
	}
	for i := range 2 {
		w.addBackend(other, otherName, 2, i)
	}
}

// leadFromControl shows the API servers the way to pods. It is lost when their
// link goes down.
func (w *world) leadFromControl() {
	w.control.Route(w.t, netip.MustParsePrefix("10.0.0.0/16"), netip.MustParseAddr("198.51.100.1"), "eth0")
}

func (w *world) addBackend(machine *lab.NetNS, node string, network, i int) {
	name := fmt.Sprintf("%s-%c", node, 'a'+i)
	ns, addrs := newPod(w.t, machine, network, 10+i, name)
	w.backends = append(w.backends, rig.NewBackend(w.t, ns, name, node, addrs))
}

func newPod(t *testing.T, machine *lab.NetNS, network, number int, name string) (*lab.NetNS, rig.Pair) {
	addrs := rig.ParsePair(fmt.Sprintf("10.0.%d.%d", network, number), fmt.Sprintf("fd00:%d::%x", network, number))
	return machine.Pod(t, name, addrs.List()...), addrs
}

// write writes to an API server that is up; there must be one. What it does
// must be safe to do again.
func (w *world) write(what string, do func(context.Context, kubernetes.Interface) error) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var err error
		for _, s := range w.servers {
			if !s.up {
				continue
			}
			ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
			err = do(ctx, s.Client)
			cancel()
			if err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// agentRuns says whether there is an agent, as far as steps decide.
func (w *world) agentRuns() bool { return w.agent.Process != nil }
