// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab"
)

// wireRig is a writer in a namespace of its own, whose devices it serves.
type wireRig struct {
	*rig
	ns *lab.NetNS
}

// bothWays runs a test with TCX links and with cls_bpf filters.
func bothWays(t *testing.T, test func(t *testing.T, r *wireRig)) {
	for _, clsact := range []bool{false, true} {
		t.Run(map[bool]string{false: "tcx", true: "clsact"}[clsact], func(t *testing.T) {
			test(t, newWireRig(t, clsact))
		})
	}
}

func newWireRig(t *testing.T, clsact bool, devices ...string) *wireRig {
	t.Helper()
	r := &wireRig{rig: newRig(t, smallSizes()), ns: lab.NewNetNS(t, "n1")}
	r.cfg.Wire = Wire{On: true, Clsact: clsact, SNATPorts: Ports{61000, 65535}}
	for _, name := range append(devices, "eth0", "eth1") {
		r.add(name)
	}
	r.reopen()
	return r
}

// add makes a device, at the other end of which is another machine.
func (r *wireRig) add(name string) {
	r.t.Helper()
	lab.Veth(r.t, lab.End{NetNS: r.ns, Link: name}, lab.End{NetNS: lab.NewNetNS(r.t, "peer of "+name), Link: "eth0"})
}

// do runs a change of the namespace's devices.
func (r *wireRig) do(change func() error) {
	r.t.Helper()
	var err error
	r.ns.Do(func() { err = change() })
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *wireRig) index(name string) int {
	r.t.Helper()
	var l netlink.Link
	r.do(func() (err error) { l, err = netlink.LinkByName(name); return err })
	return l.Attrs().Index
}

func (r *wireRig) del(name string) {
	r.t.Helper()
	r.do(func() error {
		l, err := netlink.LinkByName(name)
		return errors.Join(err, netlink.LinkDel(l))
	})
}

func (r *wireRig) rename(name, to string) {
	r.t.Helper()
	r.do(func() error {
		l, err := netlink.LinkByName(name)
		return errors.Join(err, netlink.LinkSetDown(l), netlink.LinkSetName(l, to), netlink.LinkSetUp(l))
	})
}

// device is one as the agent would name it.
func (r *wireRig) device(name string) Device {
	r.t.Helper()
	index := r.index(name)
	return Device{
		Name: name, Index: index,
		Source4: netip.AddrFrom4([4]byte{192, 0, 2, byte(index)}), Source6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", index)),
	}
}

// serve names devices, and those with a leading + as inside ones.
func (r *wireRig) serve(names ...string) []error {
	r.t.Helper()
	var devices []Device
	for _, name := range names {
		name, inside := strings.CutPrefix(name, "+")
		dev := r.device(name)
		dev.Inside = inside
		devices = append(devices, dev)
	}
	var errs []error
	r.ns.Do(func() { errs = r.SetDevices(devices) })
	return errs
}

func (r *wireRig) mustServe(names ...string) {
	r.t.Helper()
	if errs := r.serve(names...); errs != nil {
		r.t.Fatal(errors.Join(errs...))
	}
}

// attach and the like work in the namespace, as the agent does in the node's.
func (r *wireRig) attach() {
	r.t.Helper()
	r.do(r.Attach)
}

func (r *wireRig) compare() int {
	r.t.Helper()
	var repaired int
	r.do(func() (err error) { repaired, err = r.Compare(); return err })
	return repaired
}

// on lists what is on a device.
func (r *wireRig) on(name string) []api.Attachment {
	r.t.Helper()
	dev := r.device(name)
	var attachments []api.Attachment
	r.do(func() (err error) {
		attachments, err = DeviceAttachments([]Device{dev}, r.cfg.PinPath)
		return err
	})
	return attachments
}

// hooked lists what is on the devices, in the order in which it runs: ours as
// "ours" or, with the constant inside, as "inside", others by their name.
func (r *wireRig) hooked(names ...string) []string {
	r.t.Helper()
	lines := []string{}
	for _, name := range names {
		for _, a := range r.on(name) {
			who := a.Program
			if a.Ours {
				who = r.side(a.ID)
			}
			lines = append(lines, fmt.Sprintf("%s %s %s", a.Device, a.Hook, who))
		}
	}
	return lines
}

// side tells our programs apart.
func (r *wireRig) side(id uint32) string {
	r.t.Helper()
	for inside, programs := range r.wire.programs {
		for _, p := range programs.Programs {
			if have, err := programID(p); err == nil && uint32(have) == id {
				return map[bool]string{false: "ours", true: "inside"}[inside]
			}
		}
	}
	return fmt.Sprintf("ours of another agent (%d)", id)
}

// via is how the rig's devices are attached, in the words of status.
func (r *wireRig) via(d string) string {
	if r.cfg.Wire.Clsact {
		return "clsact/" + d
	}
	return "tcx/" + d
}

func (r *wireRig) expectServed(names ...string) {
	r.t.Helper()
	want := []string{}
	for _, name := range names {
		want = append(want, name+" "+r.via("ingress")+" ours", name+" "+r.via("egress")+" ours")
	}
	if diff := cmp.Diff(want, r.hooked(names...)); diff != "" {
		r.t.Errorf("on the devices (-want +got):\n%s", diff)
	}
}

func (r *wireRig) expectFree(names ...string) {
	r.t.Helper()
	if got := r.hooked(names...); len(got) != 0 {
		r.t.Errorf("on devices that are not served: %q", got)
	}
}

// sources are the devices that the programs know, by index.
func (r *wireRig) sources() map[uint32]device {
	r.t.Helper()
	known := map[uint32]device{}
	var key uint32
	var value device
	for entries := r.current.maps[mapDevices].Iterate(); entries.Next(&key, &value); {
		known[key] = value
	}
	return known
}

func (r *wireRig) expectSources(names ...string) {
	r.t.Helper()
	want := map[uint32]device{}
	for _, name := range names {
		dev := r.device(name)
		want[uint32(dev.Index)] = device{Source4: addressOf(dev.Source4), Source6: addressOf(dev.Source6), Index: uint32(dev.Index)}
	}
	if diff := cmp.Diff(want, r.sources(), cmpopts.EquateComparable(device{})); diff != "" {
		r.t.Errorf("known devices (-want +got):\n%s", diff)
	}
}

func (r *wireRig) pins() []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.cfg.PinPath, linksFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (r *wireRig) expectPins(devices ...string) {
	r.t.Helper()
	want := []string{}
	for _, name := range devices {
		if !r.cfg.Wire.Clsact {
			want = append(want, "tcx-"+name+"-egress", "tcx-"+name+"-ingress")
		}
	}
	if diff := cmp.Diff(want, r.pins()); diff != "" {
		r.t.Errorf("pinned links (-want +got):\n%s", diff)
	}
}

// linkIDs identify the TCX links on the devices, whoever owns them.
func (r *wireRig) linkIDs(names ...string) []link.ID {
	r.t.Helper()
	var ids []link.ID
	for _, name := range names {
		for _, h := range wireHooks {
			r.do(func() error {
				l, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				there, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: h.tcx})
				if err != nil {
					return err
				}
				for _, p := range there.Programs {
					id, _ := p.LinkID()
					ids = append(ids, id)
				}
				return nil
			})
		}
	}
	return ids
}
