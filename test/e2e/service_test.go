// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// Every Service of these tests has this port, over TCP and over UDP (R27), and
// every backend this other one.
const (
	servicePort = 80
	backendPort = 8080
)

// service is a Service in the short form in which a case writes it.
type service struct {
	name     string
	vip      pair
	port     uint16   // of both protocols; 0 = servicePort
	nodePort uint16   // of both protocols; 0 = the field is left out
	ingress  []string // of status.loadBalancer, in YAML
	spec     string   // what else the spec has, in YAML
	metadata string   // and the metadata
}

func (s service) yaml(endpoints []endpoint) string {
	ports := fmt.Sprintf("[{name: tcp, port: %d%[2]s}, {name: udp, protocol: UDP, port: %[1]d%[2]s}]",
		cmp.Or(s.port, servicePort), s.nodePortYAML())
	ips := ""
	if s.vip.v4.IsValid() {
		ips = fmt.Sprintf("clusterIP: %s, clusterIPs: [%[1]s, %q],", s.vip.v4, s.vip.v6)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, %s}
spec: {%s ports: %s, %s}
status: {loadBalancer: {ingress: [%s]}}
`, s.name, s.metadata, ips, ports, s.spec, strings.Join(s.ingress, ", "))
	return text + sliceYAML(s.name, s.name, endpoints)
}

func (s service) nodePortYAML() string {
	if s.nodePort == 0 {
		return ""
	}
	return fmt.Sprintf(", nodePort: %d", s.nodePort)
}

// sliceYAML is a pair of EndpointSlices, one of each family.
func sliceYAML(name, service string, endpoints []endpoint) string {
	var b strings.Builder
	for _, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %s}}
addressType: %s
ports: [{name: tcp, port: %d}, {name: udp, protocol: UDP, port: %[5]d}]
endpoints:`, name, strings.ToLower(family), service, family, backendPort)
		if len(endpoints) == 0 {
			b.WriteString(" []")
		}
		b.WriteString("\n")
		for _, e := range endpoints {
			addr := e.backend.addrs.v4
			if family == "IPv6" {
				addr = e.backend.addrs.v6
			}
			fmt.Fprintf(&b, "- {addresses: [%q], nodeName: %s, conditions: {%s}}\n", addr, e.backend.node, e.conditions)
		}
	}
	return b.String()
}

// endpoint is a backend in a slice.
type endpoint struct {
	backend    *backend
	conditions string
}

func ready(b *backend) endpoint { return endpoint{b, "ready: true, serving: true, terminating: false"} }

func notReady(b *backend) endpoint {
	return endpoint{b, "ready: false, serving: false, terminating: false"}
}

func terminating(b *backend) endpoint {
	return endpoint{b, "ready: false, serving: true, terminating: true"}
}

// allReady are endpoints of backends that are all ready.
func allReady(backends ...*backend) []endpoint {
	endpoints := make([]endpoint, 0, len(backends))
	for _, b := range backends {
		endpoints = append(endpoints, ready(b))
	}
	return endpoints
}

// backend is a pod that serves TCP and UDP over both families.
type backend struct {
	name, node string
	addrs      pair
	servers    []*traffic.Server
}

// backend makes one on this node.
func (n *node) backend(t *testing.T, name string) *backend {
	t.Helper()
	ns, addrs := n.newPod(t, n.ns, 1, name)
	return newBackend(t, ns, name, nodeName, addrs)
}

// backends makes several on this node.
func (n *node) backends(t *testing.T, names ...string) []*backend {
	t.Helper()
	var all []*backend
	for _, name := range names {
		all = append(all, n.backend(t, name))
	}
	return all
}

// remote makes a backend on the other node.
func (n *node) remote(t *testing.T, name string) *backend {
	t.Helper()
	ns, addrs := n.newPod(t, n.other, 2, name)
	return newBackend(t, ns, name, otherName, addrs)
}

func newBackend(t *testing.T, ns *lab.NetNS, name, node string, addrs pair) *backend {
	t.Helper()
	return &backend{name, node, addrs, listen(t, ns, name, backendPort, addrs.list()...)}
}

// listen starts servers of both protocols at each address.
func listen(t *testing.T, ns *lab.NetNS, name string, port uint16, addrs ...netip.Addr) []*traffic.Server {
	t.Helper()
	var servers []*traffic.Server
	for _, addr := range addrs {
		at := netip.AddrPortFrom(addr, port).String()
		servers = append(servers, traffic.Listen(t, ns, name, traffic.TCP, at), traffic.Listen(t, ns, name, traffic.UDP, at))
	}
	return servers
}

// names are the names of backends, sorted.
func names(backends ...*backend) []string {
	var all []string
	for _, b := range backends {
		all = append(all, b.name)
	}
	slices.Sort(all)
	return all
}

// way is a kind of socket and how it writes an address.
type way struct {
	name    string
	network traffic.Network
	v6      bool
	mapped  bool // an IPv6 socket to an IPv4 address
}

var ways = []way{
	{name: "TCP", network: traffic.TCP},
	{name: "TCP over IPv6", network: traffic.TCP, v6: true},
	{name: "TCP to a mapped address", network: traffic.TCP, mapped: true},
	{name: "MPTCP", network: traffic.MPTCP},
	{name: "MPTCP over IPv6", network: traffic.MPTCP, v6: true},
	{name: "connected UDP", network: traffic.UDP},
	{name: "connected UDP over IPv6", network: traffic.UDP, v6: true},
	{name: "connected UDP to a mapped address", network: traffic.UDP, mapped: true},
	{name: "unconnected UDP", network: traffic.UDPUnconnected},
	{name: "unconnected UDP over IPv6", network: traffic.UDPUnconnected, v6: true},
	{name: "unconnected UDP to a mapped address", network: traffic.UDPUnconnected, mapped: true},
}

// of picks the address of the way's family.
func (w way) of(p pair) netip.Addr {
	if w.v6 {
		return p.v6
	}
	return p.v4
}

// to writes the address as the way's client gives it to its socket.
func (w way) to(p pair, port uint16) netip.AddrPort {
	addr := w.of(p)
	if w.mapped {
		addr = netip.AddrFrom16(addr.As16())
	}
	return netip.AddrPortFrom(addr, port)
}

// ask asks once by this way.
func (w way) ask(c *traffic.Client, to pair, port uint16) traffic.Reply {
	return c.Ask(w.network, w.to(to, port).String())
}

// expect asks often enough that every one of the servers answers, and no other
// one does.
func expect(t *testing.T, c *traffic.Client, w way, to pair, port uint16, servers ...string) {
	t.Helper()
	// One of n servers is missed 16n times in a row about once in 10⁷ runs.
	got := c.Many(w.network, w.to(to, port).String(), 16*len(servers))
	if len(got.Errors) > 0 {
		t.Errorf("%s to %s: errors %v", w.name, w.to(to, port), got.Errors)
	}
	answered := make([]string, 0, len(got.Servers))
	for name := range got.Servers {
		answered = append(answered, name)
	}
	slices.Sort(answered)
	slices.Sort(servers)
	if !slices.Equal(answered, servers) {
		t.Errorf("%s to %s is answered by %v, want %v", w.name, w.to(to, port), got.Servers, servers)
	}
}

// expectError asks once and must fail in this way.
func expectError(t *testing.T, c *traffic.Client, w way, to pair, port uint16, want string) {
	t.Helper()
	if got := w.ask(c, to, port); got.Error != want {
		t.Errorf("%s to %s: %s, want %s", w.name, w.to(to, port), got, want)
	}
}

// shortly is long enough for an answer within the lab, for clients that expect
// none.
const shortly = 200 * time.Millisecond

// expectUntouched asks once at an address that no route leads to. Where it is
// not translated the kernel says so, or nobody does: a router tells whom it
// likes, and not every kind of socket listens.
func expectUntouched(t *testing.T, c *traffic.Client, w way, to pair, port uint16) {
	t.Helper()
	expectAnyError(t, c, w, to, port, "ENETUNREACH", "ETIMEDOUT")
}

// expectClosed asks once at an address of a machine that does not listen on
// the port. It refuses TCP; a datagram's sender may be told, or may not.
func expectClosed(t *testing.T, c *traffic.Client, w way, to pair, port uint16) {
	t.Helper()
	if !isUDP(w.network) {
		expectError(t, c, w, to, port, "ECONNREFUSED")
		return
	}
	expectAnyError(t, c, w, to, port, "ECONNREFUSED", "ETIMEDOUT")
}

// expectAnyError does not wait long for an answer, since none should come.
func expectAnyError(t *testing.T, c *traffic.Client, w way, to pair, port uint16, errors ...string) {
	t.Helper()
	before := c.Timeout
	defer func() { c.Timeout = before }()
	c.Timeout = shortly
	if got := w.ask(c, to, port); !slices.Contains(errors, got.Error) {
		t.Errorf("%s to %s: %s, want one of %v", w.name, w.to(to, port), got, errors)
	}
}
