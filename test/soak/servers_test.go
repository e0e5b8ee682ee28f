// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

const (
	// kubernetesKey is the Service of the API servers. Whatever becomes of its
	// endpoints, the kernel goes on with them.
	kubernetesKey = "default/kubernetes"
	kubernetesAt  = "10.96.0.1:443"
	// apiKey stands in the ledger for what pods may expect of that Service: to
	// connect, as long as an API server runs.
	apiKey        = "an API server"
	apiServerName = "API server"
	// sharedPort is that of all servers, where they share one.
	sharedPort = 6443
)

// server is an API server, and whether it is meant to run.
type server struct {
	*kube.APIServer
	up bool
}

// at is where the server listens.
func (s *server) at() netip.AddrPort {
	return netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "https://"))
}

// startCluster starts two API servers that share the address they advertise,
// and lets the agent's user read what it must.
//
// In every other run they share their port as well, as replicas do that a cloud
// puts behind one address. Then whoever stops takes the address away from both,
// and pods must reach the one that is left all the same.
func (w *world) startCluster(shared bool) {
	w.shared = shared
	if shared {
		w.cluster = kube.StartShared(w.t, w.control, netip.AddrPortFrom(controlAddr, sharedPort))
	} else {
		w.cluster = kube.StartAt(w.t, w.control, controlAddr)
	}
	w.servers = []*server{{w.cluster.APIServer, true}, {w.cluster.AddAPIServer(), true}}
	w.ledger.write(kubernetesKey, state{usable: []string{apiServerName}})
	w.noteServers()
	w.cluster.Kubectl("apply", "-f", "../../deploy/rbac.yaml")
	w.bind()
	w.cluster.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + nodeName + "}}")
}

// noteServers tells the ledger how many API servers are meant to run. Servers
// with ports of their own are not promised to pods: default/kubernetes may name
// the one that has just died for as long as its lease holds.
func (w *world) noteServers() {
	var s state
	if w.apiUp() && w.shared {
		s.usable = []string{apiServerName}
	}
	w.ledger.write(apiKey, s)
}

// apiUp says whether the test can write.
func (w *world) apiUp() bool { return w.servers[0].up || w.servers[1].up }

// connectAPI connects a pod to default/kubernetes.
func (w *world) connectAPI() traffic.Reply {
	conn, reply := w.probe.Open(traffic.TCP, kubernetesAt)
	if reply.Error == "" {
		conn.Close()
	}
	return reply
}

// startProbe lets a pod connect to default/kubernetes all the time.
func (w *world) startProbe() {
	ns, _ := newPod(w.t, w.agent.NS, 1, 4, "api-user")
	process := traffic.StartClient(w.t, lab.Place{NetNS: ns, Cgroup: w.agent.Cgroup})
	ns.Sysctl(w.t, "net.ipv4.tcp_tw_reuse", "1")
	w.always(func() {
		a := w.ledger.begin(apiKey)
		if !a.promised() {
			return
		}
		process.Timeout = promisedTimeout
		w.report.opened.Add(1)
		conn, reply := process.Open(traffic.TCP, kubernetesAt)
		if reply.Error == "" {
			conn.Close()
			return
		}
		if a.promised() {
			w.report.lost.Add(1)
			w.ledger.breach("a pod that connects to default/kubernetes fails: %s, though an API server has run all the time since the last quiet point", reply)
		}
	})
}

// glance is between two looks at the kernel, or at the API server.
const glance = 100 * time.Millisecond

// always does something again and again until the test ends.
func (w *world) always(do func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			do()
			select {
			case <-stop:
				return
			case <-time.After(glance):
			}
		}
	}()
	w.t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}
