// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

// The service CIDRs of these tests, and in each an address that no Service has
// and at which the node listens on port 8080: what is not refused is answered.
var (
	testCIDRs   = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	unallocated = addressList("10.96.9.9", "fd00:96::9")
	clusterIPs  = addressList("10.96.0.1", "fd00:96::1")
)

// newCIDRNode is a ranged node with listeners at unallocated addresses.
func newCIDRNode(t *testing.T, cidrs ...netip.Prefix) *ranged {
	t.Helper()
	r := newRanged(t)
	for _, a := range slices.Concat(unallocated, clusterIPs) {
		r.node.Addr(t, "lo", netip.PrefixFrom(a, a.BitLen()).String())
		for _, network := range []traffic.Network{traffic.TCP, traffic.UDP} {
			traffic.Listen(t, r.node, "nobody", network, netip.AddrPortFrom(a, rangedPort2).String())
		}
	}
	r.restart(cidrs...)
	return r
}

// restart is what an agent with these CIDRs does before it attaches.
func (r *ranged) restart(cidrs ...netip.Prefix) {
	r.t.Helper()
	r.sets = map[model.SetKey]SetID{}
	r.cfg.ServiceCIDRs = cidrs
	r.reopen()
	must(r.t.(*testing.T), r.SetNodeAddresses(rangedNode, rangedNode))
}

// serveClusterIP is the Service web in both families, for TCP on port 80.
func (r *ranged) serveClusterIP() {
	r.t.Helper()
	for i, family := range []model.Family{model.IPv4, model.IPv6} {
		k := service("web")
		k.Family = family
		r.sets[k] = r.create(k)
		r.publish(r.sets[k], forward(k, netip.AddrPortFrom(rangedBackend[i], rangedPort2).String()))
		r.insert(at(netip.AddrPortFrom(clusterIPs[i], rangedPort).String(), r.sets[k]))
	}
}

func (r *ranged) removeClusterIP() {
	r.t.Helper()
	for i, family := range []model.Family{model.IPv4, model.IPv6} {
		k := service("web")
		k.Family = family
		r.delete(at(netip.AddrPortFrom(clusterIPs[i], rangedPort).String(), r.sets[k]))
		r.release(r.sets[k])
		delete(r.sets, k)
	}
}

// expectAt asks from the pod and from the node, by every kind of socket.
func (r *ranged) expectAt(what string, addresses []netip.Addr, port uint16, want string) {
	r.t.Helper()
	for _, network := range []traffic.Network{traffic.TCP, traffic.MPTCP, traffic.UDP, traffic.UDPUnconnected} {
		for _, a := range slices.Concat(addresses, []netip.Addr{netip.AddrFrom16(addresses[0].As16())}) {
			for who, client := range map[string]*traffic.Client{"the pod": r.pod, "the node": r.host} {
				to := netip.AddrPortFrom(a, port).String()
				if got := client.Ask(network, to); got.Error != want {
					r.t.Errorf("%s: %s asks %s over %s: %+v, want the error %q", what, who, to, network, got, want)
				}
			}
		}
	}
}

func TestWhatIsNotServedOfServiceCIDRs(t *testing.T) {
	const rejected, dropped = "ECONNREFUSED", "EHOSTUNREACH"
	r := newCIDRNode(t, testCIDRs...)
	r.serveClusterIP()
	r.attach()
	r.expectAt("an unknown port of a ClusterIP is rejected (R38)", clusterIPs, rangedPort2, rejected)
	r.expectAt("an unallocated address is dropped (R38)", unallocated, rangedPort2, dropped)
	r.expectAt("other addresses are untouched (R38)", rangedBackend, rangedPort2, "")
	if got := r.pod.Ask(traffic.TCP, netip.AddrPortFrom(clusterIPs[0], rangedPort).String()); got.Error != "" {
		t.Errorf("the known port: %+v", got)
	}
	r.removeClusterIP()
	r.expectAt("the ClusterIP of a Service that is gone is unallocated (R38)", clusterIPs, rangedPort2, dropped)
	r.serveClusterIP()
	r.expectAt("and allocated again (R38)", clusterIPs, rangedPort2, rejected)
}

// Before the first lists are complete nobody knows which ClusterIPs there are,
// and another proxy of the node may serve them.
func TestWhatIsUnallocatedPassesUntilAllIsKnown(t *testing.T) {
	r := newCIDRNode(t, testCIDRs...)
	r.serveClusterIP()
	for _, when := range []string{"early", "early once more, after one that died so"} {
		must(t, r.AttachEarly())
		r.expectAt(when+": an unallocated address passes (R33, R38)", unallocated, rangedPort2, "")
		r.expectAt(when+": an unknown port of a ClusterIP is rejected (R38)", clusterIPs, rangedPort2, "ECONNREFUSED")
		if repaired, err := r.Compare(); err != nil || repaired != 0 {
			t.Errorf("%s: repaired %d, %v: nobody changed anything", when, repaired, err)
		}
		r.restart(testCIDRs...)
		r.serveClusterIP()
	}
	r.prune()
	r.attach()
	r.expectCIDRs("once all is known", testCIDRs...)
	r.expectAt("once all is known (R38)", unallocated, rangedPort2, "EHOSTUNREACH")
}

func TestWithoutServiceCIDRsWhatIsUnallocatedPasses(t *testing.T) {
	r := newCIDRNode(t)
	r.serveClusterIP()
	r.attach()
	r.expectAt("an unknown port of a ClusterIP is rejected all the same (R38)", clusterIPs, rangedPort2, "ECONNREFUSED")
	r.expectAt("what is not known to be a ClusterIP passes (R38)", unallocated, rangedPort2, "")
	r.removeClusterIP()
	r.expectAt("a ClusterIP that is gone passes (R38)", clusterIPs, rangedPort2, "")
}

func TestUnknownPortsOfOtherAddressesPass(t *testing.T) {
	r := newCIDRNode(t, testCIDRs...)
	k := service("web")
	k.Role = model.RoleInternal
	id := r.create(k)
	r.publish(id, forward(k, netip.AddrPortFrom(rangedBackend[0], rangedPort2).String()))
	r.insert(at(netip.AddrPortFrom(unallocated[0], rangedPort).String(), id))
	r.attach()
	r.expectAt("an externalIP, even of a service CIDR: another machine may answer (R38)", unallocated[:1], rangedPort2, "")
	// A ClusterIP of one Service may be the externalIP of another, on other ports.
	r.serveClusterIP()
	r.insert(at(netip.AddrPortFrom(clusterIPs[0], 81).String(), id))
	r.expectAt("a ClusterIP that is an externalIP too (R38)", clusterIPs[:1], rangedPort2, "ECONNREFUSED")
	r.removeClusterIP()
	r.expectAt("and now is an externalIP only (R38)", clusterIPs[:1], rangedPort2, "")
	must(t, r.SetNodeAddresses(slices.Concat(rangedNode, unallocated[1:]), nil))
	r.expectAt("an address of the node (R38)", unallocated[1:], rangedPort2, "")
}

func (r *ranged) expectCIDRs(what string, want ...netip.Prefix) {
	r.t.Helper()
	var lines []string
	for _, cidr := range want {
		lines = append(lines, fmt.Sprintf("%d %s", ownerServiceCIDRs, cidr))
	}
	if got := r.rangesInKernel(); strings.Join(got, ", ") != strings.Join(lines, ", ") {
		r.t.Errorf("%s: ranges %q, want %q", what, got, lines)
	}
}

func TestServiceCIDRsFollowTheFlag(t *testing.T) {
	const dropped = "EHOSTUNREACH"
	r := newCIDRNode(t, testCIDRs...)
	r.attach()
	r.expectCIDRs("written", testCIDRs...)
	if repaired, err := r.Compare(); err != nil || repaired != 0 {
		t.Errorf("repaired %d, %v: nobody changed anything", repaired, err)
	}
	r.expectAt("attached", unallocated, rangedPort2, dropped)

	must(t, r.intruder().maps[mapRanges].Delete(rangeKeyOf(ownerServiceCIDRs, testCIDRs[0])),
		r.intruder().maps[mapRanges].Put(rangeKeyOf(ownerServiceCIDRs, netip.MustParsePrefix("10.0.0.0/8")), uint32(1)))
	if repaired, err := r.Compare(); err != nil || repaired != 2 {
		t.Errorf("repaired %d, %v; want what was deleted, and what was added", repaired, err)
	}
	r.expectCIDRs("repaired", testCIDRs...)

	r.restart(testCIDRs...)
	r.prune()
	r.expectAt("nothing is open between Prune and Attach", unallocated, rangedPort2, dropped)
	r.attach()
	r.expectCIDRs("restarted", testCIDRs...)

	r.restart(testCIDRs[1])
	r.prune()
	r.attach()
	r.expectCIDRs("one is gone", testCIDRs[1])
	r.expectAt("the one that is gone", unallocated[:1], rangedPort2, "")
	r.expectAt("the one that stays", unallocated[1:], rangedPort2, dropped)

	r.restart()
	r.prune()
	r.attach()
	r.expectCIDRs("the flag is gone")
	r.expectAt("the flag is gone", unallocated, rangedPort2, "")

	r.restart(testCIDRs...)
	r.prune()
	r.attach()
	r.expectAt("and is back", unallocated, rangedPort2, dropped)
}

func TestSourceRangesLeaveRoomForServiceCIDRs(t *testing.T) {
	sizes := smallSizes()
	sizes.Ranges = 2
	r := newRig(t, sizes)
	r.cfg.ServiceCIDRs = testCIDRs[:1]
	r.reopen()
	k := vip("web")
	id := r.create(k)
	if _, err := r.Publish(id, withRanges(forward(k, "10.0.0.1:80"), "10.0.0.0/8", "192.0.2.0/24")); !errors.Is(err, ErrNoRoom) {
		t.Errorf("two source ranges beside a service CIDR in a map of two: %v", err)
	}
	r.attach()
	r.expectRanges(fmt.Sprintf("0 %s", testCIDRs[0]), fmt.Sprintf("%d 10.0.0.0/8", r.shadows[id].owner))

	// As they do while those are not in force.
	must(t, r.AttachEarly())
	if _, err := r.Publish(id, withRanges(forward(k, "10.0.0.1:80"), "10.0.0.0/8", "192.0.2.0/24")); !errors.Is(err, ErrNoRoom) {
		t.Errorf("two source ranges beside a service CIDR that is to come: %v", err)
	}
	r.attach()
	r.expectRanges(fmt.Sprintf("0 %s", testCIDRs[0]), fmt.Sprintf("%d 10.0.0.0/8", r.shadows[id].owner))
}
