// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// passing is a program of someone else's that lets everything through.
func passing(t testing.TB, name string) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// foreign attaches a program of someone else's in the way that the rig's own
// are, where whoever comes without a wish is put.
func (r *wireRig) foreign(device, name string, d direction) {
	r.t.Helper()
	p := passing(r.t, name)
	if r.cfg.Wire.Clsact {
		r.filter(device, p, d, 0)
		return
	}
	r.link(device, p, d, nil)
}

func (r *wireRig) link(device string, p *ebpf.Program, d direction, anchor link.Anchor) {
	r.t.Helper()
	index := r.index(device)
	var l link.Link
	r.do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: wireHooks[d].tcx, Anchor: anchor})
		return err
	})
	r.t.Cleanup(func() { l.Close() })
}

func (r *wireRig) filter(device string, p *ebpf.Program, d direction, priority uint16) {
	r.t.Helper()
	index := r.index(device)
	r.do(func() error {
		err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
		}})
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		info, err := p.Info()
		if err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: wireHooks[d].parent, Priority: priority, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: info.Name, DirectAction: true,
		})
	})
}

func TestProgramsComeFirstOnTheWayInAndLastOnTheWayOut(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		for _, name := range []string{"before"} {
			r.foreign("eth0", name, ingress)
			r.foreign("eth0", name, egress)
		}
		r.attach()
		r.mustServe("eth0")
		r.foreign("eth0", "after", ingress)
		in, out := r.via("ingress"), r.via("egress")
		have := r.hooked("eth0")
		want := []string{"eth0 " + in + " ours", "eth0 " + in + " before", "eth0 " + in + " after", "eth0 " + out + " before", "eth0 " + out + " ours"}
		if r.cfg.Wire.Clsact {
			// The kernel gives filters without a priority ever smaller ones.
			want[1], want[2] = want[2], want[1]
		}
		if !slices.Equal(have, want) {
			t.Errorf("got %q, want %q", have, want)
		}
	})
}

func TestProgramsOfOthersAreListedInTheOrderInWhichTheyRun(t *testing.T) {
	r := newWireRig(t, false)
	r.attach()
	r.mustServe("eth0")
	r.link("eth0", passing(t, "head"), ingress, link.Head())
	r.link("eth0", passing(t, "tail"), egress, link.Tail())
	r.filter("eth0", passing(t, "tc_in"), ingress, 5)
	r.filter("eth0", passing(t, "tc_out"), egress, 5)
	want := []string{
		"eth0 tcx/ingress head", "eth0 tcx/ingress ours", "eth0 clsact/ingress tc_in",
		"eth0 tcx/egress ours", "eth0 tcx/egress tail", "eth0 clsact/egress tc_out",
	}
	if have := r.hooked("eth0"); !slices.Equal(have, want) {
		t.Errorf("got %q, want %q", have, want)
	}
	// The order is theirs to choose: it is told, and not fought over.
	before := r.linkIDs("eth0")
	if n := r.compare(); n != 0 || !slices.Equal(r.linkIDs("eth0"), before) {
		t.Errorf("repaired %d", n)
	}
}

func TestAQdiscWithoutAWayOutIsNamed(t *testing.T) {
	r := newWireRig(t, true)
	index := r.index("eth0")
	r.do(func() error {
		return netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0),
		}})
	})
	r.attach()
	errs := r.serve("eth1", "eth0")
	if len(errs) != 2 || errs[0] != nil || errs[1] == nil || !strings.Contains(errs[1].Error(), "device eth0") || !strings.Contains(errs[1].Error(), "tc qdisc del") {
		t.Errorf("got %v, want an error of eth0 alone that says what to do", errs)
	}
	r.expectServed("eth1")
	r.expectSources("eth1")
}

func TestTheQdiscOfOthersStays(t *testing.T) {
	r := newWireRig(t, true)
	r.attach()
	r.mustServe("eth0")
	r.filter("eth0", passing(t, "late"), egress, 7)
	r.mustServe()
	want := []string{"eth0 clsact/egress late"}
	if have := r.hooked("eth0"); !slices.Equal(have, want) {
		t.Errorf("got %q, want %q", have, want)
	}
}
