// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// ranged is a node with a pod, and a Service with source ranges in each family
// and protocol, all of whose backends are on the node's loopback.
type ranged struct {
	*rig
	node      *lab.NetNS
	cgroup    *lab.Cgroup
	pod, host *traffic.Client
	sets      map[model.SetKey]SetID
}

// The addresses of a ranged node. The node has two of each family, the first of
// which is primary.
var (
	rangedNode    = addressList("192.0.2.1", "192.0.2.9", "2001:db8::1", "2001:db8::9")
	rangedPod     = addressList("10.0.1.7", "fd00:1::7")
	rangedVIP     = addressList("198.51.100.1", "fd00:198::1")
	rangedBackend = addressList("10.0.9.1", "fd00:9::1")
)

const (
	rangedPort  = 80
	rangedPort2 = 8080 // of the backends
)

func addressList(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParseAddr(text)
	}
	return list
}

func newRanged(t *testing.T) *ranged {
	t.Helper()
	r := &ranged{node: lab.NewNetNS(t, "node"), cgroup: lab.NewCgroup(t), sets: map[model.SetKey]SetID{}}
	for _, a := range slices.Concat(rangedNode, rangedBackend) {
		r.node.Addr(t, "lo", netip.PrefixFrom(a, a.BitLen()).String())
	}
	pod := r.node.Pod(t, "pod", rangedPod...)
	for _, b := range rangedBackend {
		for _, network := range []traffic.Network{traffic.TCP, traffic.UDP} {
			traffic.Listen(t, r.node, "backend", network, netip.AddrPortFrom(b, rangedPort2).String())
		}
	}
	r.rig = newRig(t, smallSizes())
	r.cfg.Cgroup, r.cfg.SocketMode, r.cfg.HostNetNS = r.cgroup.Path(), SocketAll, r.node.Cookie(t)
	r.reopen()
	must(t, r.SetNodeAddresses(rangedNode, rangedNode))
	r.pod = traffic.StartClient(t, lab.Place{NetNS: pod, Cgroup: r.cgroup})
	r.host = traffic.StartClient(t, lab.Place{NetNS: r.node, Cgroup: r.cgroup})
	r.pod.Timeout, r.host.Timeout = 300*time.Millisecond, 300*time.Millisecond
	return r
}

// serve publishes the Service in both families and protocols with the ranges of
// each, and writes its frontends.
func (r *ranged) serve(ranges ...string) {
	r.t.Helper()
	for i, family := range []model.Family{model.IPv4, model.IPv6} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			k := vip("web")
			k.Family, k.Protocol = family, protocol
			if _, ok := r.sets[k]; !ok {
				r.sets[k] = r.create(k)
			}
			s := forward(k, netip.AddrPortFrom(rangedBackend[i], rangedPort2).String())
			for _, text := range ranges {
				if p := netip.MustParsePrefix(text); model.FamilyOf(p.Addr()) == family {
					s.SourceRanges = append(s.SourceRanges, p)
				}
			}
			r.publish(r.sets[k], s)
			key := model.FrontendKey{Address: rangedVIP[i], Port: rangedPort, Protocol: protocol}
			r.insert(Frontend{Key: key, Set: r.sets[k]})
		}
	}
}

// rangedWays are the kinds of sockets, by the VIP that they dial.
func rangedWays() map[string]struct {
	network traffic.Network
	to      netip.AddrPort
	from    netip.Addr // of the pod, as such a socket writes it
} {
	type way = struct {
		network traffic.Network
		to      netip.AddrPort
		from    netip.Addr
	}
	ways := map[string]way{}
	for _, network := range []traffic.Network{traffic.TCP, traffic.MPTCP, traffic.UDP, traffic.UDPUnconnected} {
		mapped := func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }
		ways[string(network)+" IPv4"] = way{network, netip.AddrPortFrom(rangedVIP[0], rangedPort), rangedPod[0]}
		ways[string(network)+" IPv6"] = way{network, netip.AddrPortFrom(rangedVIP[1], rangedPort), rangedPod[1]}
		ways[string(network)+" mapped"] = way{network, netip.AddrPortFrom(mapped(rangedVIP[0]), rangedPort), mapped(rangedPod[0])}
	}
	return ways
}

// silence is what a refused packet of a pod looks like to its socket.
func silence(network traffic.Network) string {
	if network == traffic.UDP || network == traffic.UDPUnconnected {
		return "EPERM"
	}
	return "ETIMEDOUT"
}

func TestSourceRangesHoldForBoundAndUnboundSockets(t *testing.T) {
	const refused = "EHOSTUNREACH"
	r := newRanged(t)
	r.serve("10.0.1.0/24", "fd00:1::/64")
	r.attach()
	for _, c := range []struct {
		name      string
		ranges    []string
		pod, host string // the error at once; "" = none
		silent    bool   // the pod's socket that is not bound learns nothing
	}{
		{"a pod in range (R22)", []string{"10.0.1.0/24", "fd00:1::/64"}, "", refused, false},
		{"a node whose primary address is in range (R22)", []string{"192.0.2.1/32", "2001:db8::1/128"}, refused, "", true},
		{"a node that has another address in range only (R22)", []string{"192.0.2.9/32", "2001:db8::9/128"}, refused, refused, true},
		{"the way to the backend decides nothing (R22)", []string{"10.0.9.0/24", "fd00:9::/64"}, refused, refused, true},
		{"both in range (R22)", []string{"10.0.1.7/32", "192.0.2.0/24", "fd00:1::7/128", "2001:db8::/64"}, "", "", false},
		{"no ranges are open to all (R22)", nil, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.serve(c.ranges...)
			for name, w := range rangedWays() {
				unbound := c.pod
				if c.silent {
					unbound = silence(w.network)
				}
				r.pod.From = netip.AddrPort{}
				if got := r.pod.Ask(w.network, w.to.String()); got.Error != unbound {
					t.Errorf("%s, a pod, not bound: %+v, want the error %q", name, got, unbound)
				}
				r.pod.From = netip.AddrPortFrom(w.from, 0)
				if got := r.pod.Ask(w.network, w.to.String()); got.Error != c.pod {
					t.Errorf("%s, a pod, bound: %+v, want the error %q", name, got, c.pod)
				}
				if got := r.host.Ask(w.network, w.to.String()); got.Error != c.host {
					t.Errorf("%s, the node, not bound: %+v, want the error %q", name, got, c.host)
				}
			}
		})
	}
}

func TestTheVIPIsASourceInRangeWhereTheNodeIs(t *testing.T) {
	r := newRanged(t)
	for _, a := range rangedVIP {
		r.node.Addr(t, "lo", netip.PrefixFrom(a, a.BitLen()).String())
	}
	r.serve()
	r.attach()
	for _, c := range []struct {
		name   string
		ranges []string
		want   string
	}{
		{"the node is in range (R22)", []string{"192.0.2.1/32", "2001:db8::1/128"}, ""},
		{"the node is not (R22)", []string{"10.0.1.0/24", "fd00:1::/64"}, "EHOSTUNREACH"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.serve(c.ranges...)
			for name, w := range rangedWays() {
				r.host.From = netip.AddrPortFrom(w.to.Addr(), 0)
				if got := r.host.Ask(w.network, w.to.String()); got.Error != c.want {
					t.Errorf("%s: %+v, want the error %q", name, got, c.want)
				}
			}
		})
	}
}

func TestAnUnconnectedSocketIsCheckedOnItsWayToTheServiceOnly(t *testing.T) {
	const outside = "192.0.2.1/32"
	r := newRanged(t)
	r.serve(outside)
	r.attach()
	to := netip.AddrPortFrom(rangedVIP[0], rangedPort).String()
	backend := netip.AddrPortFrom(rangedBackend[0], rangedPort2).String()
	conn, reply := r.pod.Open(traffic.UDPUnconnected, to)
	if reply.Error != "" {
		t.Fatal(reply)
	}
	defer conn.Close()
	for _, step := range []struct {
		name, ranges, to, want string
	}{
		{"out of range", outside, to, "EPERM"},
		{"the backend by its own address is nobody's Service", outside, backend, ""},
		{"out of range again", outside, to, "EPERM"},
		{"in range by now", "10.0.1.0/24", to, ""},
		{"and again", "10.0.1.0/24", to, ""},
		{"each datagram counts", outside, to, "EPERM"},
	} {
		r.serve(step.ranges)
		if got := conn.AskAt(step.to); got.Error != step.want {
			t.Errorf("%s: %+v, want the error %q", step.name, got, step.want)
		}
	}
}

func TestASocketThatDialledWhileThereWereRangesIsLetGoWithThem(t *testing.T) {
	r := newRanged(t)
	r.serve("192.0.2.1/32")
	r.attach()
	conn, reply := r.pod.Open(traffic.UDP, netip.AddrPortFrom(rangedVIP[0], rangedPort).String())
	if reply.Error != "" {
		t.Fatal(reply)
	}
	defer conn.Close()
	if got := conn.Ask(); got.Error != "EPERM" {
		t.Errorf("out of range: %+v", got)
	}
	r.serve()
	if got := conn.Ask(); got.Error != "" {
		t.Errorf("open to all: %+v", got)
	}
	r.serve("192.0.2.1/32")
	if got := conn.Ask(); got.Error != "" {
		t.Errorf("a connection that is open goes on: %+v", got)
	}
}

func TestOptionsHideNoPacketFromTheCheck(t *testing.T) {
	r := newRanged(t)
	r.serve("192.0.2.1/32")
	r.attach()
	s := newStageProcess(t, r)
	vip := netip.AddrPortFrom(rangedVIP[0], rangedPort).String()
	for _, c := range []struct{ options, want string }{
		{"", unix.EPERM.Error()},
		// Loose source route by the node; two words of no operation.
		{"830704" + "c0000201" + "00", unix.EPERM.Error()},
		{"01010101", unix.EPERM.Error()},
	} {
		s.WriteLine("options 7 x" + c.options)
		if said := s.ReadLine(); said != "ok" {
			t.Fatalf("options %q: %s", c.options, said)
		}
		s.WriteLine("send 7 " + vip)
		if said := s.ReadLine(); said != c.want {
			t.Errorf("with options %q: %s, want %s", c.options, said, c.want)
		}
	}
}

func newStageProcess(t *testing.T, r *ranged) *lab.Process {
	t.Helper()
	pod := r.node.Pod(t, "pod-2", netip.MustParseAddr("10.0.1.8"))
	return lab.Place{NetNS: pod, Cgroup: r.cgroup}.StartRole(t, "sockets")
}

func TestARefusedPacketIsToldWithItsSource(t *testing.T) {
	r := newRanged(t)
	r.serve("192.0.2.1/32", "2001:db8::1/128")
	r.attach()
	events := make(chan api.Refusal, 16)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.ReadRefusals(ctx, func(e api.Refusal) { events <- e }) }()
	defer func() { cancel(); must(t, <-done) }()
	for i, vip := range rangedVIP {
		if got := r.pod.Ask(traffic.UDP, netip.AddrPortFrom(vip, rangedPort).String()); got.Error != "EPERM" {
			t.Fatalf("%+v", got)
		}
		select {
		case e := <-events:
			got := fmt.Sprintln(int(e.PID) == r.pod.PID(), e.Host, strings.HasPrefix(e.Command, "datapath"), e.Address, e.Port, e.Protocol, e.Service, e.Action, e.Reason)
			if want := fmt.Sprintln(true, false, haveCommand() == nil, vip, 80, "UDP", "default/web", "drop", reasons[3]); got != want {
				t.Errorf("family %d: got %swant %s", i, got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("no event in 10 s")
		}
	}
	reader, err := OpenReader(r.cfg.PinPath)
	must(t, err)
	defer reader.Close()
	counts, err := reader.Refusals()
	if err != nil || len(counts) != 2 || counts[0].Count != 1 || counts[1].Count != 1 || counts[0].Service != "default/web" {
		t.Errorf("counts %+v, %v", counts, err)
	}
}

func TestWithoutTheHookASocketThatIsNotBoundIsRefused(t *testing.T) {
	r := newRanged(t)
	r.checksSources = false // as on a kernel without the program type
	r.serve("10.0.1.0/24", "fd00:1::/64")
	r.attach()
	r.expectPrograms(r.cgroup, HookCount)
	for name, w := range rangedWays() {
		r.pod.From = netip.AddrPort{}
		if got := r.pod.Ask(w.network, w.to.String()); got.Error != "EHOSTUNREACH" {
			t.Errorf("%s, not bound: %+v", name, got)
		}
		r.pod.From = netip.AddrPortFrom(w.from, 0)
		if got := r.pod.Ask(w.network, w.to.String()); got.Error != "" {
			t.Errorf("%s, bound: %+v", name, got)
		}
	}
}

// The check is there before the first set that needs it, and gone some time
// after the last.
func TestTheCheckIsAttachedWhileASetHasSourceRanges(t *testing.T) {
	const ranges = "192.0.2.1/32"
	r := newRanged(t)
	link := filepath.Join(r.cfg.PinPath, linksFolder, sourceHook.name)
	expect := func(step string, want bool) {
		t.Helper()
		programs := HookCount
		if want {
			programs++
		}
		r.expectPrograms(r.cgroup, programs)
		if r.Hooks() != programs || exists(t, link) != want {
			t.Errorf("%s: %d programs should be attached, the link is there: %v", step, r.Hooks(), exists(t, link))
		}
	}
	compare := func(want int) {
		t.Helper()
		if repaired, err := r.Compare(); err != nil || repaired != want {
			t.Errorf("repaired %d, %v; want %d", repaired, err, want)
		}
	}
	closed := func(step string) {
		t.Helper()
		if got := r.pod.Ask(traffic.UDP, netip.AddrPortFrom(rangedVIP[0], rangedPort).String()); got.Error != "EPERM" {
			t.Errorf("%s: %+v, want EPERM", step, got)
		}
	}
	r.serve()
	r.attach()
	expect("no ranges", false)
	r.serve(ranges)
	expect("ranges", true)
	closed("ranges")
	compare(0)
	r.serve()
	expect("the ranges are gone", true)
	compare(0)
	expect("some time later", false)
	r.serve(ranges)
	expect("ranges again", true)

	must(t, os.Remove(link))
	compare(1)
	expect("somebody took it away", true)
	closed("somebody took it away")
	l := openLink(t, link)
	must(t, l.Detach(), l.Close())
	compare(1)
	closed("somebody detached it")

	r.sets = map[model.SetKey]SetID{}
	r.reopen()
	must(t, r.SetNodeAddresses(rangedNode, rangedNode))
	closed("nobody is the writer yet")
	r.serve(ranges)
	expect("adopted", true)
	r.prune()
	r.attach()
	expect("restarted", true)
	closed("restarted")

	r.sets = map[model.SetKey]SetID{}
	r.cfg.Sizes.Frontends *= 2
	r.reopen()
	must(t, r.SetNodeAddresses(rangedNode, rangedNode))
	r.serve(ranges)
	closed("new maps are being filled")
	r.attach()
	expect("new maps", true)
	closed("new maps")

	r.sets = map[model.SetKey]SetID{}
	r.reopen()
	r.serve()
	r.prune()
	r.attach()
	expect("restarted without ranges", false)

	r.serve(ranges)
	expect("and ranges again", true)
	r.close()
	must(t, Cleanup(r.cfg.PinPath))
	r.expectPrograms(r.cgroup, 0)
}

func TestOtherModesNeedNoCheck(t *testing.T) {
	for mode, programs := range map[SocketMode]int{SocketHost: HookCount, SocketOff: 0} {
		t.Run(string(mode), func(t *testing.T) {
			r := newRanged(t)
			r.serve("192.0.2.1/32")
			r.attach()
			r.expectPrograms(r.cgroup, HookCount+1)
			r.sets = map[model.SetKey]SetID{}
			r.cfg.SocketMode = mode
			r.reopen()
			must(t, r.SetNodeAddresses(rangedNode, rangedNode))
			r.serve("192.0.2.1/32")
			r.attach()
			r.expectPrograms(r.cgroup, programs)
		})
	}
}

func TestASetWithRangesIsNotPublishedWithoutTheCheck(t *testing.T) {
	r := newRanged(t)
	r.serve()
	r.attach()
	k := vip("web")
	k.Family, k.Protocol = model.IPv4, model.TCP
	cgroup := r.Datapath.cfg.Cgroup
	r.Datapath.cfg.Cgroup = filepath.Join(cgroup, "missing")
	_, err := r.Publish(r.sets[k], withRanges(forward(k, "10.0.9.1:8080"), "10.0.1.0/24"))
	if err == nil || !strings.Contains(err.Error(), "default/web") || !strings.Contains(err.Error(), "fairlead_skb_egress") {
		t.Errorf("publish: %v", err)
	}
	if _, flags, _ := unpackWord(r.current.sets[r.sets[k]].Word); flags&flagRanges != 0 {
		t.Error("the set is in force all the same")
	}
	r.Datapath.cfg.Cgroup = cgroup
	r.publish(r.sets[k], withRanges(forward(k, "10.0.9.1:8080"), "10.0.1.0/24"))
	r.expectPrograms(r.cgroup, HookCount+1)
}
