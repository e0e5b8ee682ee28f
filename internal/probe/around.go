// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

// Around is what is known besides the connections themselves.
type Around struct {
	// Programs are those that see a connect() of the processes that dialled from
	// all places but outside; ProgramsKnown is that they could be listed.
	Programs      []Program
	ProgramsKnown bool
	// NothingOutside is why no place is outside of them; "" if one is.
	NothingOutside string
	// Moved are counters of refusals that went up meanwhile.
	Moved []Counter
	// Addresses are the node's own.
	Addresses []netip.Addr
	// Backends are how many each Service has in all.
	Backends map[string]int
}

// Program is one on a hook of a cgroup.
type Program struct {
	Hook, Name, Cgroup string
	ID                 uint32
}

func (p Program) String() string {
	return fmt.Sprintf("program %d %q on %s of %s", p.ID, p.Name, p.Hook, p.Cgroup)
}

// Counter counts refusals.
type Counter struct {
	Name  string
	Layer Layer
	Count uint64
	// Address is the one that is refused; its port is 0 where the counter is of
	// all ports, or does not tell.
	Address netip.AddrPort
}

// hooks are those that may refuse a connection before a packet leaves.
var hooks = []struct {
	name   string
	attach ebpf.AttachType
}{
	{"connect4", ebpf.AttachCGroupInet4Connect},
	{"connect6", ebpf.AttachCGroupInet6Connect},
	{"sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
}

// findPrograms lists what is on the hooks of a cgroup and of those above it.
func findPrograms(root, cgroup string) ([]Program, bool) {
	var programs []Program
	known := true
	for path := filepath.Clean(cgroup); ; path = filepath.Dir(path) {
		found, err := programsOn(path)
		programs = append(programs, found...)
		known = known && err == nil
		if path == filepath.Clean(root) || path == filepath.Dir(path) {
			return programs, known
		}
	}
}

func programsOn(cgroup string) ([]Program, error) {
	folder, err := os.Open(cgroup)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup: %w", err)
	}
	defer folder.Close()
	var programs []Program
	for _, h := range hooks {
		result, err := link.QueryPrograms(link.QueryOptions{Target: int(folder.Fd()), Attach: h.attach})
		if err != nil {
			return nil, fmt.Errorf("list the %s programs of %s: %w", h.name, cgroup, err)
		}
		for _, p := range result.Programs {
			programs = append(programs, Program{h.name, programName(p.ID), cgroup, uint32(p.ID)})
		}
	}
	return programs, nil
}

// programName is empty for a program that went in the meantime.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// count reads every counter of refusals that can be read.
func (s *surroundings) count() []Counter {
	counters := fairleadCounters(s.options.PinPath)
	_ = inNamespace(s.options.Host, func() error { // without them less can be told
		counters = append(counters, netfilterCounters()...)
		return nil
	})
	return counters
}

// around is what a run has found, with the counters that went up since.
func (s *surroundings) around(before []Counter) Around {
	a := Around{
		Programs: s.programs, ProgramsKnown: s.programsKnown, NothingOutside: s.nothingOutside,
		Moved: moved(before, s.count()), Backends: s.options.Backends,
	}
	_ = inNamespace(s.options.Host, func() error { // without them less can be told
		addresses, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
		for _, each := range addresses {
			if addr, ok := netip.AddrFromSlice(each.IP); ok {
				a.Addresses = append(a.Addresses, addr.Unmap())
			}
		}
		return err
	})
	return a
}

// moved are the counters that went up, by how much.
func moved(before, after []Counter) []Counter {
	counts := map[Counter]uint64{}
	key := func(c Counter) Counter { c.Count = 0; return c }
	for _, c := range before {
		counts[key(c)] += c.Count
	}
	var up []Counter
	for _, c := range after {
		if was := counts[key(c)]; c.Count > was {
			c.Count -= was
			up = append(up, c)
		}
	}
	return up
}

// fairleadCounters are the refusals of Fairlead's programs by address.
func fairleadCounters(pinPath string) []Counter {
	if pinPath == "" {
		return nil
	}
	reader, err := datapath.OpenReader(pinPath)
	if err != nil {
		return nil
	}
	defer reader.Close()
	refusals, err := reader.Refusals()
	if err != nil {
		return nil
	}
	var counters []Counter
	for _, r := range refusals {
		addr, err := netip.ParseAddr(r.Address)
		if err != nil {
			continue
		}
		counters = append(counters, Counter{
			Name:  fmt.Sprintf("Fairlead's refusals at %s/%s (%s)", netip.AddrPortFrom(addr, r.Port), r.Protocol, r.Reason),
			Layer: LayerSocket, Count: r.Count, Address: netip.AddrPortFrom(addr, r.Port),
		})
	}
	return counters
}

// netfilterCounters are those of rules of the calling thread's namespace that
// drop or reject what goes to one address, as kube-proxy makes them in its
// iptables mode.
func netfilterCounters() []Counter {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil
	}
	var counters []Counter
	for _, chain := range chains {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			continue
		}
		for _, rule := range rules {
			if counter, ok := readRule(rule); ok {
				counters = append(counters, counter)
			}
		}
	}
	return counters
}

// readRule reads a rule that counts, compares the address to which a packet
// goes, and refuses.
func readRule(rule *nftables.Rule) (Counter, bool) {
	counter := Counter{Layer: LayerPacket}
	counts, refuses := false, ""
	var compared expr.Payload
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Counter:
			counts, counter.Count = true, e.Packets
		case *expr.Payload:
			compared = *e
		case *expr.Cmp:
			addr, ok := netip.AddrFromSlice(e.Data)
			if ok && e.Op == expr.CmpOpEq && isDestination(compared) {
				counter.Address = netip.AddrPortFrom(addr, 0)
			}
		case *expr.Verdict:
			if e.Kind == expr.VerdictDrop {
				refuses = "drops"
			}
		case *expr.Reject:
			refuses = "rejects"
		case *expr.Target:
			if e.Name == "REJECT" { // of iptables; its DROP is a verdict
				refuses = "rejects"
			}
		}
	}
	if !counts || refuses == "" || !counter.Address.Addr().IsValid() {
		return Counter{}, false
	}
	counter.Name = fmt.Sprintf("the rule of chain %s of the netfilter table %s with handle %d, which %s what goes to %s",
		rule.Chain.Name, rule.Table.Name, rule.Handle, refuses, counter.Address.Addr())
	return counter, true
}

// isDestination says that the address is read to which a packet goes, of IPv4
// or of IPv6.
func isDestination(p expr.Payload) bool {
	return p.Base == expr.PayloadBaseNetworkHeader && (p.Offset == 16 && p.Len == 4 || p.Offset == 24 && p.Len == 16)
}
