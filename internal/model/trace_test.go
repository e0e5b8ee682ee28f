// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// flow reads "FROM > ADDR:PORT/PROTO".
func flow(t *testing.T, text string) Flow {
	t.Helper()
	from, to, _ := strings.Cut(text, " > ")
	target, name, _ := strings.Cut(to, "/")
	protocol, err := ParseProtocol(name)
	if err != nil {
		t.Fatal(err)
	}
	return Flow{netip.MustParseAddr(from), netip.MustParseAddrPort(target), protocol}
}

// packets are everybody's or nobody's.
func packets(all bool) PacketsServed {
	if all {
		return AllPackets
	}
	return PacketsServed{}
}

// describeVerdict writes a verdict on one line: outcome, path, snat, the row.
func describeVerdict(v Verdict) string {
	text := fmt.Sprintf("%s %s", v.Outcome, v.Path)
	if v.SNAT {
		text += " snat"
	}
	for _, b := range v.Candidates {
		text += " " + b.AddrPort.String()
	}
	if v.Row != nil {
		text += fmt.Sprintf(" | %s %s %s", v.Row.Service, v.Row.Claim.Key.Scope, v.Row.Claim.Type)
	}
	return text
}

func viewOf(node *Node, world ...Candidate) View {
	return View{
		Index:        NewIndex(Resolve(world)),
		Node:         node,
		ClusterCIDRs: prefixes("10.0.0.0/16", "fd00::/64"),
		Packets:      AllPackets,
	}
}

func candidate(node *Node, svc *Service, in ...*EndpointSlice) Candidate {
	return Candidate{Contender{svc.Name, svc.CreationTimestamp}, Compile(svc, in, node, &Options{})}
}

func TestTrace(t *testing.T) {
	node := &Node{Name: "n1", Zone: "a", Addresses: addrs("192.168.0.1", "192.168.1.1", "10.0.0.1", "fd01::1")}
	pods := slice("web-1", ready("10.0.1.1", "n1"), ready("10.0.2.1", "n2"))
	everywhere := func(s *Service) {
		s.Type = ServiceLoadBalancer
		s.Ports[0].NodePort = 30080
		s.ExternalIPs = addrs("198.51.100.1")
		s.LoadBalancerIngress = vips("203.0.113.1")
	}
	local := func(s *Service) { s.ExternalTrafficPolicy = PolicyLocal }
	ranges := func(texts ...string) func(*Service) {
		return func(s *Service) { s.SourceRanges = prefixes(texts...) }
	}
	cluster := candidate(node, service(everywhere), pods)
	bound := candidate(node, service(everywhere, local), pods)
	sctp := func(s *Service) { s.Ports[0].Protocol = SCTP }
	const both = "10.0.1.1:8080 10.0.2.1:8080 | default/web "

	for _, c := range []struct {
		name   string
		world  Candidate
		change func(*View)
		flow   string
		want   string
	}{
		// Where a flow comes from, and the masquerade of ClusterIPs.
		{"a pod's address is kept on its way to a ClusterIP (R37)", cluster, nil, "10.0.7.7 > 10.96.0.1:80", "forward socket " + both + "all ClusterIP"},
		{"a ClusterIP reached from outside is forwarded with SNAT (R41)", cluster, nil, "172.16.0.9 > 10.96.0.1:80", "forward packet snat " + both + "all ClusterIP"},
		{"the node's own traffic to a ClusterIP is masqueraded, as kube-proxy does", cluster, nil, "192.168.0.1 > 10.96.0.1:80", "forward socket snat " + both + "all ClusterIP"},
		{"loopback is the node", cluster, nil, "127.0.0.1 > 10.96.0.1:80", "forward socket snat " + both + "all ClusterIP"},
		{"a node address inside a cluster CIDR is the node, and is kept as that of a pod", cluster, nil, "10.0.0.1 > 10.96.0.1:80", "forward socket " + both + "all ClusterIP"},
		{"an IPv4 address in IPv6 form is the IPv4 address", cluster, nil, "::ffff:10.0.7.7 > [::ffff:10.96.0.1]:80", "forward socket " + both + "all ClusterIP"},
		{"another protocol is another port (R27, R38)", cluster, nil, "10.0.7.7 > 10.96.0.1:80/UDP", "reject socket"},
		{"an address of no Service passes", cluster, nil, "10.0.7.7 > 1.1.1.1:80", "pass socket"},

		// External addresses under policy Cluster.
		{"a VIP under policy Cluster masquerades what comes from outside", cluster, nil, "172.16.0.9 > 203.0.113.1:80", "forward packet snat " + both + "all LoadBalancer"},
		{"a VIP under policy Cluster masquerades pods too, as kube-proxy does", cluster, nil, "10.0.7.7 > 203.0.113.1:80", "forward socket snat " + both + "all LoadBalancer"},
		{"an externalIP is forwarded (R23)", cluster, nil, "10.0.7.7 > 198.51.100.1:80", "forward socket snat " + both + "all ExternalIP"},

		// External addresses under policy Local.
		{"from outside, policy Local keeps to this node and keeps the client's address (R11)", bound, nil, "172.16.0.9 > 203.0.113.1:80", "forward packet 10.0.1.1:8080 | default/web external LoadBalancer"},
		{"a pod's traffic to a VIP under policy Local takes all endpoints, and keeps its address (R12)", bound, nil, "10.0.7.7 > 203.0.113.1:80", "forward socket " + both + "internal LoadBalancer"},
		{"the node's traffic to a VIP under policy Local takes all endpoints, masqueraded (R12)", bound, nil, "192.168.0.1 > 203.0.113.1:80", "forward socket snat " + both + "internal LoadBalancer"},
		{"the same of NodePorts from outside (R11)", bound, nil, "172.16.0.9 > 192.168.0.1:30080", "forward packet 10.0.1.1:8080 | default/web external NodePort"},
		{"the same of NodePorts from a pod (R12)", bound, nil, "10.0.7.7 > 192.168.0.1:30080", "forward socket " + both + "internal NodePort"},
		{"a node address inside a cluster CIDR is kept as that of a pod (R12)", bound, nil, "10.0.0.1 > 203.0.113.1:80", "forward socket " + both + "internal LoadBalancer"},
		{"none here but some elsewhere is dropped, from outside (R11)", candidate(node, service(everywhere, local), slice("web-1", ready("10.0.2.1", "n2"))), nil,
			"172.16.0.9 > 203.0.113.1:80", "drop packet | default/web external LoadBalancer"},
		{"none here but some elsewhere is forwarded, from inside (R12)", candidate(node, service(everywhere, local), slice("web-1", ready("10.0.2.1", "n2"))), nil,
			"10.0.7.7 > 203.0.113.1:80", "forward socket 10.0.2.1:8080 | default/web internal LoadBalancer"},
		{"none anywhere is refused (R13)", candidate(node, service(everywhere, local)), nil, "172.16.0.9 > 203.0.113.1:80", "reject packet | default/web external LoadBalancer"},

		// NodePorts.
		{"a NodePort is served on every address of the node (R24)", cluster, nil, "172.16.0.9 > 192.168.1.1:30080", "forward packet snat " + both + "all NodePort"},
		{"a NodePort is not served on another node's address (R24, R42)", cluster, nil, "10.0.7.7 > 192.168.0.2:30080", "pass socket"},
		{"a NodePort is served on addresses in the given CIDRs (R24)", cluster, func(v *View) { v.NodePorts.CIDRs = prefixes("192.168.1.0/24") }, "172.16.0.9 > 192.168.1.1:30080", "forward packet snat " + both + "all NodePort"},
		{"a NodePort is not served on other addresses then (R24)", cluster, func(v *View) { v.NodePorts.CIDRs = prefixes("192.168.1.0/24") }, "172.16.0.9 > 192.168.0.1:30080", "pass packet"},
		{"primary serves the first address (R24)", cluster, func(v *View) { v.NodePorts.Primary = true }, "172.16.0.9 > 192.168.0.1:30080", "forward packet snat " + both + "all NodePort"},
		{"primary serves no other address (R24)", cluster, func(v *View) { v.NodePorts.Primary = true }, "172.16.0.9 > 192.168.1.1:30080", "pass packet"},
		{"the node reaches NodePorts on its loopback (R24)", cluster, nil, "127.0.0.1 > 127.0.0.1:30080", "forward socket snat " + both + "all NodePort"},
		{"the unspecified address is loopback (R24)", cluster, nil, "192.168.0.1 > 0.0.0.0:30080", "forward socket snat " + both + "all NodePort"},
		{"a pod's loopback is its own (R24)", cluster, nil, "10.0.7.7 > 127.0.0.1:30080", "pass socket"},
		{"a pod's unspecified address is its own loopback (R24)", cluster, nil, "10.0.7.7 > 0.0.0.0:30080", "pass socket"},
		{"loopback is never served to the outside (R24)", cluster, nil, "172.16.0.9 > 127.0.0.1:30080", "pass packet"},
		{"a port that is no NodePort passes", cluster, nil, "172.16.0.9 > 192.168.0.1:22", "pass packet"},
		{"an exact address beats the NodePort of every address (R27)",
			candidate(node, service(everywhere, func(s *Service) { s.ExternalIPs, s.Ports[0].Port = addrs("192.168.0.1"), 30080 }), pods), nil,
			"172.16.0.9 > 192.168.0.1:30080", "forward packet snat " + both + "all ExternalIP"},
		{"a shadowed row is never the answer (R27)",
			candidate(node, service(everywhere, func(s *Service) { s.ExternalIPs = addrs("203.0.113.1") }), pods), nil,
			"172.16.0.9 > 203.0.113.1:80", "forward packet snat " + both + "all LoadBalancer"},

		// Source ranges.
		{"a client in range is forwarded (R22)", candidate(node, service(everywhere, ranges("172.16.0.0/16")), pods), nil, "172.16.0.9 > 203.0.113.1:80", "forward packet snat " + both + "all LoadBalancer"},
		{"a client out of range is dropped (R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16")), pods), nil, "172.16.0.9 > 203.0.113.1:80", "drop packet | default/web all LoadBalancer"},
		{"pods are held to the ranges too (R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16")), pods), nil, "10.0.7.7 > 203.0.113.1:80", "drop socket | default/web all LoadBalancer"},
		{"the node is held to the ranges too (R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16")), pods), nil, "192.168.0.1 > 203.0.113.1:80", "drop socket | default/web all LoadBalancer"},
		{"ranges do not hold on NodePorts (R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16")), pods), nil, "172.16.0.9 > 192.168.0.1:30080", "forward packet snat " + both + "all NodePort"},
		{"ranges do not hold on ClusterIPs (R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16")), pods), nil, "172.16.0.9 > 10.96.0.1:80", "forward packet snat " + both + "all ClusterIP"},
		{"the VIP itself is in range where this node is (R22)", candidate(node, service(everywhere, ranges("192.168.0.0/24")), pods), nil, "203.0.113.1 > 203.0.113.1:80", "forward packet snat " + both + "all LoadBalancer"},
		{"the VIP itself is out of range where this node is (R22)", candidate(node, service(everywhere, ranges("192.168.1.0/24")), pods), nil, "203.0.113.1 > 203.0.113.1:80", "drop packet | default/web all LoadBalancer"},
		{"another external address of the Service is not the VIP (R22)", candidate(node, service(everywhere, ranges("192.168.0.0/24")), pods), nil, "198.51.100.1 > 203.0.113.1:80", "drop packet | default/web all LoadBalancer"},
		{"ranges are asked before endpoints (R13, R22)", candidate(node, service(everywhere, ranges("172.17.0.0/16"))), nil, "172.16.0.9 > 203.0.113.1:80", "drop packet | default/web all LoadBalancer"},

		// Hairpin and SCTP.
		{"a pod that may meet itself keeps its address towards others (R37)", cluster, nil, "10.0.1.1 > 10.96.0.1:80", "forward socket " + both + "all ClusterIP"},
		{"a pod that meets nobody but itself is masqueraded (R37)", candidate(node, service(), slice("web-1", ready("10.0.1.1", "n1"))), nil,
			"10.0.1.1 > 10.96.0.1:80", "forward socket snat 10.0.1.1:8080 | default/web all ClusterIP"},
		{"SCTP passes: nothing translates it (R28)", candidate(node, service(sctp), pods), nil, "10.0.7.7 > 10.96.0.1:80/SCTP", "pass packet | default/web all ClusterIP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, c.world)
			if c.change != nil {
				c.change(&v)
			}
			got := Trace(v, flow(t, c.flow))
			if text := describeVerdict(got); text != c.want {
				t.Errorf("%s\n\tgot  %s\n\twant %s\n\tsteps %q", c.flow, text, c.want, got.Steps)
			}
		})
	}
}

func TestTraceSteps(t *testing.T) {
	node := &thisNode
	pods := slice("web-1", ready("10.0.1.1", "n1"))
	old := named("old", 1, func(s *Service) { s.ExternalIPs, s.AffinitySeconds = addrs("198.51.100.1"), 60 })
	oldPods := with(pods, func(s *EndpointSlice) { s.Service = "old" })
	young := named("young", 2, func(s *Service) { s.ClusterIPs, s.ExternalIPs = addrs("10.96.0.2"), addrs("198.51.100.1") })
	world := []Candidate{candidate(node, old, oldPods), candidate(node, young)}

	for _, c := range []struct {
		name       string
		packetPath bool
		flow       string
		want       string
	}{
		{
			"every fact names the object or the flag it is known from", true, "10.0.1.1 > 198.51.100.1:80",
			`source: 10.0.1.1 is a pod of this node (--cluster-cidr 10.0.0.0/16)
path: the connection begins on this node, so its socket translates it (Node n1)
frontend: 198.51.100.1:80/TCP is its ExternalIP, for internal and external traffic (Service default/old)
frontend: it claims 198.51.100.1:80/TCP as its ExternalIP too, but that is held by default/old (Service default/young)
backends: 1 candidate: ready (EndpointSlice default/web-1)
affinity: a client that came within the last 60 s goes to the backend it had (Service default/old)
snat: the source address becomes this node's: externalTrafficPolicy is Cluster (Service default/old)
snat: translated at its socket, it needs none: the kernel chooses the source address on the way to the backend (Node n1)`,
		}, {
			"where the wire is not served, a step says so", false, "172.16.0.9 > 10.96.0.2:80",
			`source: 172.16.0.9 is outside: neither an address of this node nor inside a cluster CIDR (--cluster-cidr)
path: the connection arrives on the wire, and no device that faces other machines is served (--packet-path, --devices), so its packets go untranslated (Node n1)
frontend: 10.96.0.2:80/TCP is its ClusterIP, for internal and external traffic (Service default/young)
verdict: nothing translates it: no device that faces other machines is served (--packet-path, --devices), so its packets go untranslated (Node n1)`,
		}, {
			"where the wire is not served, a socket rewrites no source address", false, "192.168.0.1 > 198.51.100.1:80",
			`source: 192.168.0.1 is this node (Node n1)
path: the connection begins on this node, so its socket translates it (Node n1)
frontend: 198.51.100.1:80/TCP is its ExternalIP, for internal and external traffic (Service default/old)
frontend: it claims 198.51.100.1:80/TCP as its ExternalIP too, but that is held by default/old (Service default/young)
backends: 1 candidate: ready (EndpointSlice default/web-1)
affinity: a client that came within the last 60 s goes to the backend it had (Service default/old)
snat: the source address becomes this node's: externalTrafficPolicy is Cluster (Service default/old)
snat: translated at its socket, it needs none: the kernel chooses the source address on the way to the backend (Node n1)`,
		}, {
			"a target of no Service says what was looked for", true, "172.16.0.9 > 192.168.0.1:81",
			`source: 172.16.0.9 is outside: neither an address of this node nor inside a cluster CIDR (--cluster-cidr)
path: the connection arrives on the wire, so its packets are translated (Node n1)
frontend: no Service has 192.168.0.1:81/TCP, and no NodePort is 81/TCP (Node n1)`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, world...)
			v.Packets = packets(c.packetPath)
			var lines []string
			for _, s := range Trace(v, flow(t, c.flow)).Steps {
				lines = append(lines, fmt.Sprintf("%s: %s (%s)", s.Stage, s.Fact, s.Source))
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}

	t.Run("a step names a few slices and counts the rest", func(t *testing.T) {
		var in []*EndpointSlice
		for i := range 5 {
			in = append(in, slice(fmt.Sprintf("web-%d", i), ready(fmt.Sprintf("10.0.1.%d", i+1), "n1")))
		}
		v := Trace(viewOf(node, candidate(node, service(), in...)), flow(t, "172.16.0.9 > 10.96.0.1:80"))
		const want = "EndpointSlice default/web-0, EndpointSlice default/web-1, EndpointSlice default/web-2, 2 more"
		if !slices.Contains(v.Steps, Step{"backends", "5 candidates: each ready", want}) {
			t.Errorf("no such step: %q", v.Steps)
		}
	})
}

// TestTraceToday is about nodes that serve some sockets, and the wire not yet.
func TestTraceToday(t *testing.T) {
	node := &Node{Name: "n1", Addresses: addrs("192.168.0.1")}
	pods := slice("web-1", ready("10.0.1.1", "n1"), ready("10.0.2.1", "n2"))
	everywhere := func(s *Service) {
		s.Type = ServiceLoadBalancer
		s.Ports[0].NodePort = 30080
		s.LoadBalancerIngress = vips("203.0.113.1")
	}
	ranges := func(texts ...string) func(*Service) {
		return func(s *Service) { s.SourceRanges = prefixes(texts...) }
	}
	open, empty := candidate(node, service(everywhere), pods), candidate(node, service(everywhere))
	narrow := candidate(node, service(everywhere, ranges("10.0.0.0/16")), pods)
	const both = "10.0.1.1:8080 10.0.2.1:8080 | default/web "
	const today, ruled = false, true

	for _, c := range []struct {
		name       string
		world      Candidate
		sockets    PathServed
		packetPath bool
		flow       string
		want       string // the verdict, and part of a step after "; "
	}{
		{"a pod's socket is served", open, ServedAll, today, "10.0.7.7 > 10.96.0.1:80", "forward socket " + both + "all ClusterIP; its socket translates it (Node n1)"},
		{"from outside everything passes", open, ServedAll, today, "172.16.0.9 > 192.168.0.1:30080", "pass packet | default/web all NodePort; nothing translates it: no device that faces other machines is served (--packet-path, --devices), so its packets go untranslated (Node n1)"},
		{"what would be refused passes from outside too (R13)", empty, ServedAll, today, "172.16.0.9 > 203.0.113.1:80", "pass packet | default/web all LoadBalancer; no device that faces other machines is served"},
		{"what would be out of range passes from outside too (R22)", narrow, ServedAll, today, "172.16.0.9 > 203.0.113.1:80", "pass packet | default/web all LoadBalancer; no device that faces other machines is served"},
		{"a socket is refused (R13)", empty, ServedAll, today, "10.0.7.7 > 203.0.113.1:80", "reject socket | default/web all LoadBalancer; no EndpointSlice holds an endpoint"},

		{"host serves the node's sockets", open, ServedHost, today, "192.168.0.1 > 203.0.113.1:80", "forward socket snat " + both + "all LoadBalancer; its socket translates it"},
		{"host leaves pods alone", open, ServedHost, today, "10.0.7.7 > 10.96.0.1:80", "pass packet | default/web all ClusterIP; the sockets of pods are not served, and the pod is behind none of --pod-devices, so its packets go untranslated (--socket-path host)"},
		{"off leaves the node alone too", open, ServedOff, today, "192.168.0.1 > 10.96.0.1:80", "pass packet | default/web all ClusterIP; no socket is served, and no program sees what the node itself sends, so its packets go untranslated (--socket-path off)"},
		{"the packets of pods are translated where the wire is served", open, ServedHost, ruled, "10.0.7.7 > 10.96.0.1:80", "forward packet " + both + "all ClusterIP; the sockets of pods are not served, so its packets are translated (--socket-path host)"},

		{"a pod in range is forwarded (R22)", narrow, ServedAll, today, "10.0.7.7 > 203.0.113.1:80", "forward socket snat " + both + "all LoadBalancer; 10.0.7.7 is in loadBalancerSourceRanges 10.0.0.0/16"},
		{"in range without an endpoint is refused as such (R13, R22)", candidate(node, service(everywhere, ranges("10.0.0.0/16"))), ServedAll, today,
			"10.0.7.7 > 203.0.113.1:80", "reject socket | default/web all LoadBalancer; no EndpointSlice holds an endpoint"},
		{"a node out of range is dropped (R22)", narrow, ServedAll, today, "192.168.0.1 > 203.0.113.1:80", "drop socket | default/web all LoadBalancer; 192.168.0.1 is not in loadBalancerSourceRanges"},
		{"the unknown port of a ClusterIP is rejected at the socket (R38)", open, ServedAll, today, "10.0.7.7 > 10.96.0.1:81", "reject socket; 10.96.0.1 is its ClusterIP, which has no port 81/TCP (Service default/web)"},
		{"and passes where nothing sees the packets (R38)", open, ServedHost, today, "10.0.7.7 > 10.96.0.1:81", "pass packet; nothing refuses it: its packets pass no program"},
		{"an unallocated ClusterIP passes where nothing sees the packets (R38)", open, ServedOff, today, "10.0.7.7 > 10.96.9.9:80", "pass packet; nothing refuses it: its packets pass no program"},
		{"sockets of SCTP are not refused either (R28, R38)", open, ServedAll, ruled, "10.0.7.7 > 10.96.0.1:81/SCTP", "pass packet; nothing refuses it"},
		{"ranges do not hold on ClusterIPs at the socket either (R22)", narrow, ServedAll, today, "10.0.7.7 > 10.96.0.1:80", "forward socket " + both + "all ClusterIP; its socket translates it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, c.world)
			v.Sockets, v.Packets, v.ServiceCIDRs = c.sockets, packets(c.packetPath), prefixes("10.96.0.0/16")
			got := Trace(v, flow(t, c.flow))
			verdict, step, _ := strings.Cut(c.want, "; ")
			if text := describeVerdict(got); text != verdict {
				t.Errorf("%s\n\tgot  %s\n\twant %s\n\tsteps %q", c.flow, text, verdict, got.Steps)
			}
			says := func(s Step) bool { return strings.Contains(fmt.Sprintf("%s (%s)", s.Fact, s.Source), step) }
			if !slices.ContainsFunc(got.Steps, says) {
				t.Errorf("no step says %q: %q", step, got.Steps)
			}
		})
	}

}

// A node has several addresses, and one that is primary.
func TestTraceTheNodeAsASource(t *testing.T) {
	node := &Node{Name: "n1", Addresses: addrs("192.168.0.1", "192.168.1.1", "203.0.113.1")}
	pods := slice("web-1", ready("10.0.1.1", "n1"))
	world := func(ranges ...string) Candidate {
		return candidate(node, service(func(s *Service) {
			s.Type, s.LoadBalancerIngress, s.SourceRanges = ServiceLoadBalancer, vips("203.0.113.1"), prefixes(ranges...)
		}), pods)
	}
	for _, c := range []struct {
		name, ranges, from string
		want               Outcome
		step               string
	}{
		{"loopback is the primary address, which is in range (R22)", "192.168.0.0/24", "127.0.0.1", OutcomeForward, "the source is the node's primary address 192.168.0.1"},
		{"loopback is the primary address, which is out of range (R22)", "127.0.0.0/8", "127.0.0.1", OutcomeDrop, "192.168.0.1 is not in loadBalancerSourceRanges"},
		{"another address in range must be bound (R22)", "192.168.1.0/24", "192.168.1.1", OutcomeForward, "bound to 192.168.1.1; for all others the node's primary address 192.168.0.1 counts, and the answer is the opposite"},
		{"another address out of range must be bound, too (R22)", "192.168.0.0/24", "192.168.1.1", OutcomeDrop, "the answer is the opposite"},
		{"the VIP as an address of the node is in range where the node is (R22)", "192.168.0.0/24", "203.0.113.1", OutcomeForward, "203.0.113.1 is the VIP itself, and this node is in loadBalancerSourceRanges 192.168.0.0/24"},
		{"the VIP as an address of the node is out of range where the node is (R22)", "192.168.1.0/24", "203.0.113.1", OutcomeDrop, "203.0.113.1 is not in loadBalancerSourceRanges"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, world(c.ranges))
			for _, v.Packets = range []PacketsServed{AllPackets, {}} {
				got := Trace(v, flow(t, c.from+" > 203.0.113.1:80"))
				if got.Outcome != c.want {
					t.Errorf("%s, want %s", describeVerdict(got), c.want)
				}
				if !slices.ContainsFunc(got.Steps, func(s Step) bool { return strings.Contains(s.Fact, c.step) }) {
					t.Errorf("no step says %q: %q", c.step, got.Steps)
				}
			}
		})
	}
}

func TestTraceUnknownPortsAndAddresses(t *testing.T) {
	node := &Node{Name: "n1", Addresses: addrs("192.168.0.1", "10.96.0.200", "fd01::1")}
	web := candidate(node, named("web", 1, func(s *Service) {
		s.Type, s.ClusterIPs = ServiceLoadBalancer, addrs("10.96.0.1", "fd96::1")
		s.ExternalIPs, s.LoadBalancerIngress = addrs("198.51.100.1", "10.96.0.100"), vips("203.0.113.1")
		s.Ports[0].NodePort = 30080
	}), slice("web-1", ready("10.0.1.1", "n1")))
	sctp := candidate(node, named("sctp", 2, func(s *Service) {
		s.ClusterIPs, s.Ports[0].Protocol = addrs("10.96.0.3"), SCTP
	}))
	later := candidate(node, named("later", 3, func(s *Service) { s.ClusterIPs, s.ExternalIPs = addrs("10.96.0.4"), addrs("10.96.0.1") }))
	const fromPod, fromNode, fromOutside = "10.0.7.7", "192.168.0.1", "172.16.0.9"
	for _, c := range []struct {
		name  string
		to    string
		cidrs []string
		want  string
		step  string
	}{
		{"an unknown port of a ClusterIP is rejected (R38)", "10.96.0.1:81", nil, "reject", "10.96.0.1 is its ClusterIP, which has no port 81/TCP (Service default/web)"},
		{"of either family (R38)", "[fd96::1]:81", nil, "reject", "fd96::1 is its ClusterIP"},
		{"an unknown protocol is an unknown port (R27, R38)", "10.96.0.1:80/UDP", nil, "reject", "10.96.0.1 is its ClusterIP, which has no port 80/UDP"},
		{"an unallocated address is dropped (R38)", "10.96.9.9:80", []string{"10.96.0.0/16", "fd96::/112"}, "drop", "no Service has the ClusterIP 10.96.9.9 (--service-cidr 10.96.0.0/16)"},
		{"of either family (R38)", "[fd96::9]:80", []string{"10.96.0.0/16", "fd96::/112"}, "drop", "no Service has the ClusterIP fd96::9"},
		{"an unallocated address passes if no range is known (R38)", "10.96.9.9:80", nil, "pass", "no Service has 10.96.9.9:80/TCP"},
		{"an address beside the ranges passes (R38)", "10.97.9.9:80", []string{"10.96.0.0/16"}, "pass", "no Service has 10.97.9.9:80/TCP"},
		{"an unknown port of an externalIP passes: the machine may answer itself (R38)", "198.51.100.1:81", []string{"10.96.0.0/16"}, "pass", "no Service has 198.51.100.1:81/TCP"},
		{"an externalIP within the ranges is allocated (R38)", "10.96.0.100:81", []string{"10.96.0.0/16"}, "pass", "no Service has 10.96.0.100:81/TCP"},
		{"an unknown port of a VIP passes (R38)", "203.0.113.1:81", nil, "pass", "no Service has"},
		{"an address of the node passes, even within the ranges (R38)", "10.96.0.200:22", []string{"10.96.0.0/16"}, "pass", "no NodePort is 22/TCP"},
		{"a ClusterIP on which another Service has an externalIP is a ClusterIP (R27, R38)", "10.96.0.1:82", nil, "reject", "(Service default/web)"},
		{"what only an SCTP port has is not known to programs yet (R28, R38)", "10.96.0.3:81", []string{"10.96.0.0/16"}, "drop", "no Service has the ClusterIP 10.96.0.3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := viewOf(node, web, sctp, later)
			v.ServiceCIDRs = prefixes(c.cidrs...)
			if !strings.Contains(c.to, "/") {
				c.to += "/TCP"
			}
			for _, from := range []string{fromPod, fromNode, fromOutside} {
				got := Trace(v, flow(t, from+" > "+c.to))
				if got.Outcome.String() != c.want || got.Row != nil {
					t.Errorf("from %s: %s, want %s", from, describeVerdict(got), c.want)
				}
				says := func(s Step) bool { return strings.Contains(fmt.Sprintf("%s (%s)", s.Fact, s.Source), c.step) }
				if !slices.ContainsFunc(got.Steps, says) {
					t.Errorf("no step says %q: %q", c.step, got.Steps)
				}
			}
		})
	}
}

func TestTraceOtherVIP(t *testing.T) {
	t.Run("the VIP of another Service is a source like any other (R22)", func(t *testing.T) {
		vip := func(clusterIP, vip string) func(*Service) {
			return func(s *Service) {
				s.Type, s.ClusterIPs, s.LoadBalancerIngress = ServiceLoadBalancer, addrs(clusterIP), vips(vip)
				s.SourceRanges = prefixes("192.168.0.0/24")
			}
		}
		view := viewOf(&thisNode,
			candidate(&thisNode, named("a", 1, vip("10.96.0.1", "203.0.113.1"))),
			candidate(&thisNode, named("b", 1, vip("10.96.0.2", "203.0.113.2"))))
		got := describeVerdict(Trace(view, flow(t, "203.0.113.2 > 203.0.113.1:80")))
		if want := "drop packet | default/a all LoadBalancer"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

var genFlow = rapid.Custom(func(t *rapid.T) Flow {
	return Flow{
		rapid.SampledFrom(addrs("10.0.0.1", "10.96.0.1", "172.16.0.9", "127.0.0.1", "fd00::1", "fd96::1", "::1")).Draw(t, "from"),
		netip.AddrPortFrom(rapid.SampledFrom(addrs("10.96.0.1", "10.96.0.2", "fd96::1", "fd96::2", "127.0.0.1", "0.0.0.0", "::")).Draw(t, "to"), genNumber.Draw(t, "port")),
		genProtocol.Draw(t, "protocol"),
	}
})

func TestTraceProperties(t *testing.T) {
	t.Run("a node that serves less forwards nothing else, and never on the wire", rapid.MakeCheck(func(t *rapid.T) {
		world, f := genWorld.Draw(t, "world"), genFlow.Draw(t, "flow")
		node := &Node{Name: "a", Zone: "a", Addresses: addrs("10.96.0.1", "fd96::1")}
		view := viewOf(node, world...)
		ruled := Trace(view, f)
		view.Sockets, view.Packets = rapid.SampledFrom([]PathServed{ServedAll, ServedHost, ServedOff}).Draw(t, "sockets"), PacketsServed{}
		today := Trace(view, f)
		if today.Path == PathPacket && today.Outcome != OutcomePass {
			t.Errorf("%s without a packet path", describeVerdict(today))
		}
		if today.Outcome == OutcomeForward && describeVerdict(today) != describeVerdict(ruled) {
			t.Errorf("today %s, by the rules %s", describeVerdict(today), describeVerdict(ruled))
		}
		if (today.Row == nil) != (ruled.Row == nil) {
			t.Errorf("today %s, by the rules %s", describeVerdict(today), describeVerdict(ruled))
		}
	}))
	t.Run("a verdict agrees with its row, and the row is held", rapid.MakeCheck(func(t *rapid.T) {
		world, f := genWorld.Draw(t, "world"), genFlow.Draw(t, "flow")
		node := &Node{Name: "a", Zone: "a", Addresses: addrs("10.96.0.1", "fd96::1")}
		view := viewOf(node, world...)
		view.ServiceCIDRs = rapid.SampledFrom([][]netip.Prefix{nil, prefixes("10.96.0.0/16"), prefixes("10.96.0.0/31", "fd96::/64")}).Draw(t, "service CIDRs")
		v := Trace(view, f)
		if len(v.Steps) == 0 {
			t.Errorf("no step explains %v", v.Outcome)
		}
		if forwards := v.Outcome == OutcomeForward; forwards != (len(v.Candidates) > 0) || v.SNAT && !forwards {
			t.Errorf("%s", describeVerdict(v))
		}
		if v.Row == nil {
			unknown := view.Index.Unknown(plain(f.To.Addr()), node, view.ServiceCIDRs)
			want := OutcomePass
			switch {
			case f.Protocol == SCTP:
			case unknown.ClusterIP != nil:
				want = OutcomeReject
			case unknown.CIDR.IsValid():
				want = OutcomeDrop
			}
			if v.Outcome != want {
				t.Errorf("%v without a row, want %v: %+v", v.Outcome, want, unknown)
			}
			return
		}
		if v.Row.Claim.Shadowed != "" {
			t.Errorf("the answer is shadowed by %s", v.Row.Claim.Shadowed)
		}
		wanted := map[Action][]Outcome{
			ActionForward:     {OutcomeForward, OutcomeDrop}, // dropped by source ranges
			ActionReject:      {OutcomeReject, OutcomeDrop},
			ActionDrop:        {OutcomeDrop},
			ActionUnsupported: {OutcomePass},
		}[v.Row.Set.Action]
		for _, o := range wanted {
			if o == v.Outcome && (o != OutcomeDrop || v.Row.Set.Action == ActionDrop || len(v.Row.Set.SourceRanges) > 0) {
				return
			}
		}
		t.Errorf("the row says %v, the verdict is %v", v.Row.Set.Action, v.Outcome)
	}))
}
