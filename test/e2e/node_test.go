// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// The names of the node with the agent, and of the other one.
const (
	nodeName  = "n1"
	otherName = "n2"
)

// patience bounds every wait for something that takes milliseconds on a
// machine with nothing else to do.
const patience = 15 * time.Second

// The nodes' own addresses.
var (
	nodeAddrs  = pair{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	otherAddrs = pair{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}
)

// pair is one address of each family.
type pair struct{ v4, v6 netip.Addr }

func (p pair) list() []netip.Addr { return []netip.Addr{p.v4, p.v6} }

// node is a machine with an agent, and another one at the end of a cable.
type node struct {
	ns, other *lab.NetNS
	cgroup    *lab.Cgroup // all processes that the agent serves
	pins      string
	manifests string
	socket    string
	api       *api.Client
	agent     *lab.Process // the one started last

	pods int // made so far, here and on the other node
	vips int // given out so far
}

// newNode makes a node on which no agent runs yet.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{
		ns: lab.NewNetNS(t, nodeName), other: lab.NewNetNS(t, otherName), cgroup: lab.NewCgroup(t),
		manifests: t.TempDir(), socket: filepath.Join(t.TempDir(), "agent.sock"),
	}
	n.pins = filepath.Join(lab.NewBPFFS(t), "fairlead")
	n.api = api.NewClient(n.socket)
	lab.Veth(t, end(n.ns, nodeAddrs), end(n.other, otherAddrs))
	for _, way := range []struct {
		from *lab.NetNS
		to   string
		via  netip.Addr
	}{
		{n.ns, "10.0.2.0/24", otherAddrs.v4}, {n.ns, "fd00:2::/64", otherAddrs.v6},
		{n.other, "10.0.1.0/24", nodeAddrs.v4}, {n.other, "fd00:1::/64", nodeAddrs.v6},
	} {
		way.from.Route(t, netip.MustParsePrefix(way.to), way.via, "eth0")
	}
	return n
}

func end(ns *lab.NetNS, addrs pair) lab.End {
	return lab.End{NetNS: ns, Link: "eth0", Addrs: []string{addrs.v4.String() + "/24", addrs.v6.String() + "/64"}}
}

// startNode makes a node with an agent that has read the manifests.
func startNode(t *testing.T, flags ...string) *node {
	t.Helper()
	n := newNode(t)
	n.start(t, flags...)
	return n
}

// start starts an agent and waits until its programs are in force.
func (n *node) start(t *testing.T, flags ...string) {
	t.Helper()
	n.launch(t, append(flags, "--manifests", n.manifests)...)
	n.ready(t)
}

// launch starts an agent, in the cgroup that it serves, as in a cluster.
func (n *node) launch(t *testing.T, flags ...string) {
	t.Helper()
	n.agent = n.place().Start(t, os.Getenv(programVariable), append([]string{
		"agent", "--node-name", nodeName, "--cgroup", n.cgroup.Path(), "--pin-path", n.pins, "--socket", n.socket,
	}, flags...)...)
}

// ready waits until the agent started last has written its first lists.
func (n *node) ready(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		select {
		case <-n.agent.Done():
			t.Fatalf("the agent ended:\n%s", n.agent.Stderr())
		default:
		}
		s, err := n.api.Status(t.Context())
		if err != nil {
			return err
		}
		if s.PID != n.agent.PID() || !s.Synced {
			return fmt.Errorf("process %d answers, synced: %v; want process %d", s.PID, s.Synced, n.agent.PID())
		}
		return nil
	})
}

// place is where the node's own processes live.
func (n *node) place() lab.Place { return lab.Place{NetNS: n.ns, Cgroup: n.cgroup} }

// pod makes a pod of this node.
func (n *node) pod(t *testing.T, name string) (lab.Place, pair) {
	t.Helper()
	ns, addrs := n.newPod(t, n.ns, 1, name)
	return lab.Place{NetNS: ns, Cgroup: n.cgroup}, addrs
}

// newPod makes a pod of the numbered machine.
func (n *node) newPod(t *testing.T, machine *lab.NetNS, number int, name string) (*lab.NetNS, pair) {
	t.Helper()
	n.pods++
	addrs := pair{
		netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", number, n.pods)),
		netip.MustParseAddr(fmt.Sprintf("fd00:%d::%x", number, n.pods)),
	}
	return machine.Pod(t, fmt.Sprintf("%.9s-%d", name, n.pods), addrs.list()...), addrs
}

// client starts a client in a pod of its own.
func (n *node) client(t *testing.T, name string) (*traffic.Client, pair) {
	t.Helper()
	place, addrs := n.pod(t, name)
	return traffic.StartClient(t, place), addrs
}

// host starts a client in the node's own namespace.
func (n *node) host(t *testing.T) *traffic.Client {
	t.Helper()
	return traffic.StartClient(t, n.place())
}

// vip gives out Service addresses that no other Service of the node has.
func (n *node) vip() pair { return n.addresses("10.96.%d.%d", "fd00:96::%x:%x") }

// externalAddress gives out addresses such as a load balancer has.
func (n *node) externalAddress() pair { return n.addresses("198.18.%d.%d", "fd00:198::%x:%x") }

func (n *node) addresses(v4, v6 string) pair {
	n.vips++
	return pair{
		netip.MustParseAddr(fmt.Sprintf(v4, n.vips>>8, n.vips&0xff)),
		netip.MustParseAddr(fmt.Sprintf(v6, n.vips>>8, n.vips&0xff)),
	}
}

// serve makes a Service what it is now said to be, and returns when the kernel
// has it so.
func (n *node) serve(t *testing.T, s service, endpoints ...endpoint) {
	t.Helper()
	n.write(t, s.name+".yaml", s.yaml(endpoints))
	n.settle(t)
}

// remove deletes Services, and returns when the kernel has forgotten them.
func (n *node) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(n.manifests, name+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	n.settle(t)
}

// write replaces a manifest at once, as kubectl and config managers do.
func (n *node) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(n.manifests, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// settle waits until source, tables and kernel agree.
func (n *node) settle(t *testing.T) {
	t.Helper()
	eventually(t, func() error { return n.drift(t) })
}

// drift is the first difference between the layers.
func (n *node) drift(t *testing.T) error {
	t.Helper()
	wanted, err := n.api.Desired(t.Context())
	if err != nil {
		return err
	}
	rows, err := n.api.Frontends(t.Context())
	if err != nil {
		return err
	}
	kernel, err := n.api.Kernel(t.Context())
	if err != nil {
		return err
	}
	for _, d := range append(drift.Rows(wanted, rows), drift.Kernel(rows, kernel)...) {
		return fmt.Errorf("%+v", d)
	}
	for _, row := range rows {
		if row.Status != api.StatusDone {
			return fmt.Errorf("%s:%d is %s: %s", row.Address, row.Port, row.Status, *row.Error)
		}
	}
	return nil
}

// row returns the frontend row at an address, port and protocol; the scope of
// traffic from here where there are two.
func (n *node) row(t *testing.T, service string, addr netip.Addr, port uint16, protocol string) api.Frontend {
	t.Helper()
	rows, err := n.api.Frontends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(r api.Frontend) bool {
		return r.Service == "default/"+service && r.Address == addr.String() && r.Port == port && r.Protocol == protocol && r.Scope != "external"
	})
	if i < 0 {
		t.Fatalf("default/%s has no row at %s port %d/%s among %+v", service, addr, port, protocol, rows)
	}
	return rows[i]
}

// run runs a fairlead command, which must end with the status, and returns
// what it printed.
func (n *node) run(t *testing.T, status int, args ...string) string {
	t.Helper()
	process := n.place().Start(t, os.Getenv(programVariable), append(args, n.where(args)...)...)
	err := process.Wait()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got, err = exit.ExitCode(), nil
	}
	if err != nil || got != status {
		t.Fatalf("fairlead %q: status %d, %v; want %d\n%s%s", args, got, err, status, process.Stdout(), process.Stderr())
	}
	return process.Stdout()
}

// where are the flags that lead a command to this node.
func (n *node) where(args []string) []string {
	switch {
	case args[0] == "diff":
		return []string{"--socket", n.socket, "--pin-path", n.pins}
	case slices.Contains(args, "kernel"), args[0] == "cleanup":
		return []string{"--pin-path", n.pins}
	}
	return []string{"--socket", n.socket}
}

// status is what `fairlead status` rests on.
func (n *node) status(t *testing.T) api.Status {
	t.Helper()
	s, err := n.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually tries until there is no error, or patience is over.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still, after %s: %v", patience, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
