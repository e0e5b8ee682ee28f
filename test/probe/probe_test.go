// SPDX-License-Identifier: Apache-2.0

// Package probe tests the probe from end to end: real dials through the real
// program, from cgroups and namespaces that the lab makes, against Fairlead's
// programs, netfilter, routes and listeners.
//
// No namespace here has a way to the machine's own network, and programs are
// attached to cgroups of the tests alone.
package probe

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/internal/probe"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

const nodeName = "n1"

// node is a machine without a way out of the lab, a cable to another one, a
// bridge with pods, and a cgroup to which programs may be attached.
type node struct {
	t         *testing.T
	ns, other *lab.NetNS
	cgroup    *lab.Cgroup
	pins      string
}

var (
	here   = netip.MustParseAddr("192.0.2.1")
	there  = netip.MustParseAddr("192.0.2.2")
	bridge = netip.MustParseAddr("10.0.1.1")
)

func newNode(t *testing.T) *node {
	t.Helper()
	return withNode(t, lab.NewNetNS(t, nodeName), lab.NewCgroup(t))
}

func withNode(t *testing.T, ns *lab.NetNS, cgroup *lab.Cgroup) *node {
	t.Helper()
	n := &node{t: t, ns: ns, other: lab.NewNetNS(t, "n2"), cgroup: cgroup}
	lab.Veth(t, lab.End{NetNS: n.ns, Link: "eth0", Addrs: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		lab.End{NetNS: n.other, Link: "eth0", Addrs: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	n.ns.Bridge(t, lab.End{NetNS: n.ns, Link: "cni0", Addrs: []string{"10.0.1.1/24"}})
	n.other.Route(t, netip.MustParsePrefix("10.0.1.0/24"), here, "eth0")
	n.ns.Forward(t)
	return n
}

// pod makes a pod, and returns it as a place to dial from.
func (n *node) pod(name, addr string) (*lab.NetNS, probe.Namespace) {
	n.t.Helper()
	ns := n.ns.BridgedPod(n.t, name, "cni0", []netip.Addr{bridge}, netip.MustParsePrefix(addr+"/24"))
	return ns, probe.Namespace{Name: "pod default/" + name, Path: ns.Path()}
}

// nft adds rules to a namespace.
func (n *node) nft(ns *lab.NetNS, rules ...string) {
	n.t.Helper()
	script := "table inet test {\n" + strings.Join(rules, "\n") + "\n}\n"
	process := lab.Place{NetNS: ns}.Start(n.t, "nft", "-f", "-")
	process.WriteLine(script)
	if err := process.Wait(); err != nil {
		n.t.Fatalf("nft: %v\n%s", err, process.Stderr())
	}
}

// run dials the targets from every place of the node.
func (n *node) run(wanted probe.Wanted, pods ...probe.Namespace) results {
	n.t.Helper()
	return results{n.t, probe.Run(n.t.Context(), probe.Options{
		Targets: probe.Plan(wanted), Backends: wanted.BackendCounts(), Host: n.ns.Path(), Pods: pods,
		Cgroup: n.cgroup.Path(), PinPath: n.pins, Program: []string{rig.Program(), "probe-dial"},
	})}
}

type results struct {
	t    *testing.T
	list []probe.Result
}

// expect is what came of one target from one place.
type expect struct {
	from    string
	purpose probe.Purpose
	target  string // "" = whichever
	outcome probe.Outcome
	step    probe.Step
	layer   probe.Layer
	says    string // in one of the differences, or in the answer
}

func (r results) expect(wanted ...expect) {
	r.t.Helper()
	for _, w := range wanted {
		i := slices.IndexFunc(r.list, func(got probe.Result) bool {
			return got.From == w.from && got.Purpose == w.purpose && (w.target == "" || got.Target == w.target)
		})
		if i < 0 {
			r.t.Errorf("%s %s was not tried from %s: %+v", w.purpose, w.target, w.from, r.list)
			continue
		}
		got := r.list[i]
		said := strings.Join(append(got.Because, got.Answer, got.Error), "\n")
		if got.Outcome != w.outcome || got.Step != w.step || got.Layer != w.layer || !strings.Contains(said, w.says) {
			r.t.Errorf("%s %s from %s:\n got %+v\nwant %+v", w.purpose, w.target, w.from, got, w)
		}
	}
}

func addrPorts(all ...string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, a := range all {
		list = append(list, netip.MustParseAddrPort(a))
	}
	return list
}

// tcp is a Service of TCP that is none of the API server's.
func tcp(name string, addresses, backends []netip.AddrPort) probe.Wanted {
	return probe.Wanted{Others: []probe.Service{{Name: "default/" + name, Protocol: "TCP", Addresses: addresses, Backends: backends}}}
}

// listen opens a listener in a namespace, and hands its connections to serve.
func listen(t *testing.T, ns *lab.NetNS, address string, serve func(net.Conn)) net.Listener {
	t.Helper()
	var l net.Listener
	ns.Do(func() {
		var err error
		if l, err = net.Listen("tcp", address); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { l.Close() })
	if serve == nil {
		return l
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l
}

func hangUp(conn net.Conn) { conn.Close() }

func TestFairleadsRefusals(t *testing.T) {
	ns := lab.NewNetNS(t, nodeName)
	agent := rig.NewAgent(t, nodeName, ns, t.TempDir())
	n := withNode(t, ns, agent.Cgroup)
	n.pins = agent.Pins
	_, pod := n.pod("client", "10.0.1.7")
	server, _ := n.pod("server", "10.0.1.8")
	listen(t, server, "10.0.1.8:8080", hangUp)
	agent.Start(t)
	good := rig.Service{Name: "good", VIP: rig.ParsePair("10.96.0.2", "fd00:96::2"), Only: "TCP"}
	empty := rig.Service{Name: "empty", VIP: rig.ParsePair("10.96.0.3", "fd00:96::3"), Only: "TCP"}
	agent.Serve(t, good, rig.Ready(&rig.Backend{Name: "server", Node: nodeName, Addrs: rig.ParsePair("10.0.1.8", "fd00:1::8")}))
	agent.Serve(t, empty)

	wanted := tcp("good", addrPorts("10.96.0.2:80"), addrPorts("10.0.1.8:8080"))
	wanted.Others = append(wanted.Others, probe.Service{
		Name: "default/empty", Protocol: "TCP", Addresses: addrPorts("10.96.0.3:80"), Backends: addrPorts("10.0.1.8:8080"),
	})
	got := n.run(wanted, pod)
	got.expect(
		expect{probe.FromHost, probe.Frontend, "10.96.0.2:80/TCP", probe.OK, "", "", "connected"},
		expect{pod.Name, probe.Frontend, "10.96.0.2:80/TCP", probe.OK, "", "", "connected"},
		expect{probe.FromOutside, probe.Frontend, "10.96.0.2:80/TCP", probe.NetUnreachable, probe.StepConnect, probe.LayerNetwork, "routing table"},
		expect{probe.FromExempt, probe.Frontend, "10.96.0.2:80/TCP", probe.NetUnreachable, probe.StepConnect, probe.LayerNetwork, "routing table"},
		expect{probe.FromHost, probe.Frontend, "10.96.0.3:80/TCP", probe.Refused, probe.StepConnect, probe.LayerSocket, "Fairlead's refusals at 10.96.0.3:80/TCP (no endpoint is usable) went up"},
		expect{probe.FromHost, probe.Frontend, "10.96.0.3:80/TCP", probe.Refused, probe.StepConnect, probe.LayerSocket, "fairlead_connect"},
		expect{pod.Name, probe.Frontend, "10.96.0.3:80/TCP", probe.Refused, probe.StepConnect, probe.LayerSocket, "no endpoint is usable"},
		expect{probe.FromHost, probe.Backend, "10.0.1.8:8080/TCP", probe.OK, "", "", ""},
	)
	t.Run("without Fairlead's counters the difference to outside names the programs", func(t *testing.T) {
		n.t, n.pins = t, ""
		n.run(wanted).expect(expect{probe.FromHost, probe.Frontend, "10.96.0.3:80/TCP", probe.Refused, probe.StepConnect, probe.LayerSocket,
			"outside of the programs' cgroup it says ENETUNREACH"})
	})
}

// forbid has every connect() of IPv4 in the node's cgroup return EPERM.
func (n *node) forbid() {
	n.t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "forbid", Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { program.Close() })
	on, err := link.AttachCgroup(link.CgroupOptions{Path: n.cgroup.Path(), Attach: ebpf.AttachCGroupInet4Connect, Program: program})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { on.Close() })
}

func TestAProgramThatForbidsIsNamed(t *testing.T) {
	n := newNode(t)
	n.forbid()
	listen(t, n.other, "192.0.2.2:8080", hangUp)
	n.run(tcp("any", addrPorts("192.0.2.2:8080"), addrPorts("192.0.2.2:8080"))).expect(
		expect{probe.FromHost, probe.Frontend, "", probe.NotPermitted, probe.StepConnect, probe.LayerSocket, "connect() itself says EPERM, and outside of the programs' cgroup it says ok"},
		expect{probe.FromHost, probe.Frontend, "", probe.NotPermitted, probe.StepConnect, probe.LayerSocket, `"forbid" on connect4`},
		expect{probe.FromOutside, probe.Frontend, "", probe.OK, "", "", ""},
	)
}

func TestRulesAndRoutes(t *testing.T) {
	const target = "192.0.2.2:8080/TCP"
	wanted := tcp("any", addrPorts("10.96.0.1:80"), addrPorts("192.0.2.2:8080", "[2001:db8::2]:8080"))
	for _, c := range []struct {
		name   string
		breaks func(n *node)
		want   expect
	}{
		{"a rule that drops is silent, and its counter tells",
			func(n *node) {
				n.nft(n.ns, "chain out { type filter hook output priority 0; ip daddr 192.0.2.2 counter drop; }")
			},
			expect{outcome: probe.Timeout, step: probe.StepHandshake, layer: probe.LayerPacket, says: "the rule of chain out of the netfilter table test"}},
		{"a rule that drops on another machine cannot be told",
			func(n *node) {
				n.nft(n.other, "chain in { type filter hook input priority 0; tcp dport 8080 counter drop; }")
			},
			expect{outcome: probe.Timeout, step: probe.StepHandshake, layer: probe.LayerUnknown, says: "nobody said anything"}},
		{"a rule of this node that rejects is known by its notice",
			func(n *node) {
				n.nft(n.ns, "chain out { type filter hook output priority 0; ip daddr 192.0.2.2 tcp dport 8080 reject; }")
			},
			expect{outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerPacket, says: `ICMP "port unreachable" came back from 192.0.2.1`}},
		{"a rule of the target's machine that rejects is not told from nobody being there",
			func(n *node) {
				n.nft(n.other, "chain in { type filter hook input priority 0; tcp dport 8080 reject; }")
			},
			expect{outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerUnknown, says: `ICMP "port unreachable" came back from 192.0.2.2`}},
		{"a rule that resets looks like a closed port",
			func(n *node) {
				n.nft(n.other, "chain in { type filter hook input priority 0; tcp dport 8080 reject with tcp reset; }")
			},
			expect{outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerUnknown, says: "a reset came back"}},
		{"a rule that resets and counts is known",
			func(n *node) {
				n.nft(n.ns, "chain out { type filter hook output priority 0; ip daddr 192.0.2.2 tcp dport 8080 counter reject with tcp reset; }")
			},
			expect{outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerPacket, says: "which rejects what goes to 192.0.2.2"}},
		{"a blackhole is the routing table's",
			func(n *node) { n.ns.Blackhole(n.t, netip.MustParsePrefix("192.0.2.2/32")) },
			expect{outcome: probe.NetUnreachable, step: probe.StepConnect, layer: probe.LayerNetwork, says: "the routing table says the same"}},
		{"an unreachable route is the routing table's", route("unreachable"),
			expect{outcome: probe.HostUnreachable, step: probe.StepConnect, layer: probe.LayerNetwork, says: "EHOSTUNREACH"}},
		{"a prohibited route is the routing table's, though it looks like a program", route("prohibit"),
			expect{outcome: probe.NotPermitted, step: probe.StepConnect, layer: probe.LayerNetwork, says: "EACCES"}},
		{"a rule of this node that rejects IPv6 is known by its notice",
			func(n *node) {
				n.nft(n.ns, "chain out { type filter hook output priority 0; ip6 daddr 2001:db8::2 reject; }")
			},
			expect{target: "[2001:db8::2]:8080/TCP", outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerPacket, says: `ICMP "port unreachable" came back from 2001:db8::1`}},
		{"a rule of kube-proxy's for a Service without endpoints is known by its counter",
			func(n *node) {
				n.ns.Route(n.t, netip.MustParsePrefix("10.96.0.0/16"), there, "eth0")
				for _, rule := range []string{
					"-N KUBE-SERVICES", "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES",
					"-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment default/any -m tcp --dport 80 -j REJECT",
				} {
					lab.Place{NetNS: n.ns}.Run(n.t, "iptables", strings.Fields(rule)...)
				}
			},
			expect{purpose: probe.Frontend, target: "10.96.0.1:80/TCP", outcome: probe.Refused, step: probe.StepHandshake, layer: probe.LayerPacket,
				says: "the rule of chain KUBE-SERVICES of the netfilter table filter"}},
		{"a listener is reached", func(*node) {}, expect{outcome: probe.OK, says: "connected"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			listen(t, n.other, "192.0.2.2:8080", hangUp)
			listen(t, n.other, "[2001:db8::2]:8080", hangUp)
			c.breaks(n)
			c.want.from = probe.FromHost
			c.want.purpose = cmp.Or(c.want.purpose, probe.Backend)
			c.want.target = cmp.Or(c.want.target, target)
			n.run(wanted).expect(c.want)
		})
	}
}

// route adds a route that leads nowhere.
func route(kind string) func(n *node) {
	return func(n *node) {
		lab.Place{NetNS: n.ns}.Run(n.t, "ip", "route", "add", kind, "192.0.2.2/32")
	}
}

func TestWhoListens(t *testing.T) {
	n := newNode(t)
	secure(t, n.other, "192.0.2.2:6443")
	listen(t, n.other, "192.0.2.2:7001", func(conn net.Conn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	listen(t, n.other, "192.0.2.2:7002", func(conn net.Conn) {
		defer conn.Close()
		_, _ = conn.Write([]byte("220 mail.example ESMTP\r\n"))
		_, _ = io.Copy(io.Discard, conn)
	})
	listen(t, n.other, "192.0.2.2:7003", nil)
	answerNames(t, n.other, "192.0.2.2:53", 0)
	answerNames(t, n.other, "192.0.2.2:54", 2)
	n.run(probe.Wanted{
		API: []probe.Service{{Name: "default/kubernetes", Protocol: "TCP",
			Backends: addrPorts("192.0.2.2:6443", "192.0.2.2:7001", "192.0.2.2:7002", "192.0.2.2:7003", "192.0.2.2:7004")}},
		DNS: []probe.Service{{Name: "kube-system/kube-dns", Protocol: "UDP", Backends: addrPorts("192.0.2.2:53", "192.0.2.2:54", "192.0.2.2:55")}},
	}).expect(
		expect{probe.FromHost, probe.APIDirect, "192.0.2.2:6443/TCP", probe.OK, "", "", `HTTP 401 "no", certificate`},
		expect{probe.FromHost, probe.APIDirect, "192.0.2.2:7001/TCP", probe.Reset, probe.StepAnswer, probe.LayerBackend, "accepted"},
		expect{probe.FromHost, probe.APIDirect, "192.0.2.2:7002/TCP", probe.BadAnswer, probe.StepAnswer, probe.LayerBackend, "no TLS"},
		expect{probe.FromHost, probe.APIDirect, "192.0.2.2:7003/TCP", probe.Timeout, probe.StepAnswer, probe.LayerUnknown, "nobody said anything"},
		expect{probe.FromHost, probe.APIDirect, "192.0.2.2:7004/TCP", probe.Refused, probe.StepHandshake, probe.LayerUnknown, "a reset came back"},
		expect{probe.FromHost, probe.DNSDirect, "192.0.2.2:53/UDP", probe.OK, "", "", "NOERROR"},
		expect{probe.FromHost, probe.DNSDirect, "192.0.2.2:54/UDP", probe.BadAnswer, probe.StepAnswer, probe.LayerBackend, "SERVFAIL"},
		expect{probe.FromHost, probe.DNSDirect, "192.0.2.2:55/UDP", probe.Refused, probe.StepHandshake, probe.LayerUnknown, `ICMP "port unreachable" came back from 192.0.2.2`},
	)
}

// secure serves TLS and lets nobody in.
func secure(t *testing.T, ns *lab.NetNS, address string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			t.Errorf("it was asked for %s with %v", r.URL, r.Header)
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, "no")
	}))
	server.Listener.Close()
	server.Listener = listen(t, ns, address, nil)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
}

// answerNames answers every DNS question with a code and no records.
func answerNames(t *testing.T, ns *lab.NetNS, address string, code byte) {
	t.Helper()
	ns.Do(func() {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		go func() {
			buffer := make([]byte, 512)
			for {
				n, client, err := conn.ReadFrom(buffer)
				if err != nil {
					return
				}
				buffer[2] |= 0x80
				buffer[3] = code
				_, _ = conn.WriteTo(buffer[:n], client)
			}
		}()
	})
}

func TestAPodThatTheHostOutdoes(t *testing.T) {
	n := newNode(t)
	listen(t, n.other, "192.0.2.2:8080", hangUp)
	_, good := n.pod("good", "10.0.1.7")
	_, cutOff := n.pod("cut-off", "10.0.1.8")
	stranded, strandedPod := n.pod("stranded", "10.0.1.9")
	lab.Place{NetNS: stranded}.Run(t, "ip", "route", "del", "default")
	n.nft(n.ns, "chain pass { type filter hook forward priority 0; ip saddr 10.0.1.8 drop; }")
	wanted := tcp("any", nil, addrPorts("192.0.2.2:8080"))
	wanted.Peers = addrPorts("192.0.2.2:9999")
	got := n.run(wanted, good, cutOff, strandedPod)
	got.expect(
		expect{probe.FromHost, probe.Backend, "", probe.OK, "", "", "connected"},
		expect{probe.FromHost, probe.Peer, "", probe.OK, "", "", "it is reached"},
		expect{good.Name, probe.Backend, "", probe.OK, "", "", "connected"},
		expect{good.Name, probe.Gateway, "10.0.1.1:10250/TCP", probe.OK, "", "", "it is reached"},
		expect{good.Name, probe.Peer, "", probe.OK, "", "", "it is reached"},
		expect{cutOff.Name, probe.Backend, "", probe.Timeout, probe.StepHandshake, probe.LayerNetwork, "from the host it answers"},
		expect{cutOff.Name, probe.Gateway, "", probe.OK, "", "", "it is reached"},
		expect{strandedPod.Name, probe.Backend, "", probe.NetUnreachable, probe.StepConnect, probe.LayerNetwork, "the routing table says the same"},
		expect{strandedPod.Name, probe.Gateway, "", probe.Failed, "", "", "no gateway"},
	)
	for _, r := range got.list {
		if r.From == probe.FromHost && r.Purpose == probe.Gateway {
			t.Errorf("the gateway of the node was dialled: %+v", r)
		}
	}
}

func TestWhatCannotBeTried(t *testing.T) {
	n := newNode(t)
	gone := probe.Namespace{Name: "pod default/gone", Path: "/proc/self/ns/no-such-namespace"}
	n.pins = "/sys/fs/bpf/no-such-path"
	n.run(tcp("any", nil, addrPorts("192.0.2.2:8080")), gone).expect(
		expect{gone.Name, probe.Backend, "", probe.Failed, "", "", "open the network namespace"},
		expect{probe.FromExempt, probe.Backend, "", probe.Failed, "", "", "no Fairlead maps are pinned"},
		expect{probe.FromHost, probe.Backend, "", probe.Refused, probe.StepHandshake, probe.LayerUnknown, "a reset came back"},
	)
}
