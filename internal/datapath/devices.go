// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// Wire says how the packet path is served. The zero value does not serve it.
type Wire struct {
	On bool
	// Clsact attaches by cls_bpf filters even where the kernel has TCX.
	Clsact bool
	// SNATPorts are given to flows whose backend sees an address of the node.
	SNATPorts Ports
}

// Device is a device whose packets pass the programs.
type Device struct {
	Name  string
	Index int
	// Inside says that it leads to pods whose sockets the cgroup hooks do not
	// see. All others face other machines.
	Inside bool
	// The addresses that a backend sees where it must not see the client's; one
	// that is not valid stands for none.
	Source4, Source6 netip.Addr
}

// direction is that of a packet as the device sees it.
type direction uint8

const (
	ingress direction = iota
	egress
)

// wireHook is a program of the packet path and where it attaches: before
// everyone else on the way in, after everyone else on the way out.
type wireHook struct {
	name     string // of the direction, in pins and messages
	program  string
	tcx      ebpf.AttachType
	anchor   link.Anchor
	parent   uint32 // of a cls_bpf filter
	priority uint16 // of the filter; the kernel itself gives out 49152 and less
}

var wireHooks = [...]wireHook{
	ingress: {"ingress", "fairlead_ingress", ebpf.AttachTCXIngress, link.Head(), netlink.HANDLE_MIN_INGRESS, 10},
	egress:  {"egress", "fairlead_egress", ebpf.AttachTCXEgress, link.Tail(), netlink.HANDLE_MIN_EGRESS, 65520},
}

// DeviceHookCount is how many programs each device of the packet path has.
const DeviceHookCount = len(wireHooks)

// point is where a program attaches: a device in the agent's network
// namespace, and a direction.
type point struct {
	index     int
	direction direction
}

// attacher is a way to put programs on devices: TCX links or cls_bpf filters.
// It knows what was there when it was opened, and what it did since.
type attacher interface {
	// at returns our program at a point, and whether there is one.
	at(point) (ebpf.ProgramID, bool)
	// put attaches a program, or replaces ours in place. It does nothing if
	// this one is there already.
	put(Device, direction, *ebpf.Program) (changed bool, err error)
	// sweep takes ours away from all points that are not to be kept.
	sweep(keep func(point) bool) error
	close()
}

// wire is the state of the packet path.
type wire struct {
	mu       sync.Mutex // guards what follows
	begun    bool       // Attach has put the maps in force
	devices  []Device
	programs map[bool]*ebpf.Collection // loaded when first needed, by Device.Inside
}

// SetDevices names all devices whose packets pass the programs. Those that it
// names no more are left alone from then on. Before Attach it is only
// remembered. It returns an error for each device that is not served, in their
// order; nil if all are. A device that is gone is no error. Safe beside all
// other methods but Close.
func (d *Datapath) SetDevices(devices []Device) []error {
	d.wire.mu.Lock()
	defer d.wire.mu.Unlock()
	d.wire.devices = slices.Clone(devices)
	if !d.wire.begun {
		return nil
	}
	_, errs := d.syncDevices()
	return errs
}

// beginDevices serves the devices named so far, with programs that use the
// maps now in force, and takes away what the other way of attaching left. What
// fails is tried again by SetDevices and Compare, and does not keep the socket
// path from being served.
func (d *Datapath) beginDevices() {
	d.wire.mu.Lock()
	defer d.wire.mu.Unlock()
	d.wire.begun = d.cfg.Wire.On
	if !d.wire.begun {
		_, err := d.dropSources()
		if err := errors.Join(removeWire(d.cfg.PinPath), err); err != nil {
			d.log.Error("the programs of a predecessor's packet path could not all be removed", "error", err)
		}
		return
	}
	_, errs := d.syncDevices()
	if err := errors.Join(errs...); err != nil {
		d.log.Error("not every device is served, will try again", "error", err)
	}
	if err := d.leaveOther(); err != nil {
		d.log.Error("programs on devices that are attached in another way could not be removed", "error", err)
	}
}

// compareDevices does again what someone else undid.
func (d *Datapath) compareDevices() (repaired int, err error) {
	d.wire.mu.Lock()
	defer d.wire.mu.Unlock()
	if !d.wire.begun {
		return 0, nil
	}
	repaired, errs := d.syncDevices()
	if repaired > 0 {
		d.log.Warn("someone else took programs off devices or changed what is known of these, they are served again", "changes", repaired)
	}
	return repaired, errors.Join(errs...)
}

// syncDevices makes programs, and what they know of devices, equal to what is
// wanted. It counts the changes.
func (d *Datapath) syncDevices() (changes int, errs []error) {
	a, err := d.openAttacher(d.viaTCX())
	if err != nil {
		return 0, slices.Repeat([]error{err}, len(d.wire.devices))
	}
	defer a.close()
	// A flow that leaves by a device whose programs go would not come back
	// through one: nothing may choose it any more before they do.
	changes, err = d.dropSources()
	failpoint.Hit("devices: former ones are forgotten")
	if err != nil {
		d.log.Error("devices that are served no more could not be forgotten, will try again", "error", err)
	}
	errs = make([]error, len(d.wire.devices))
	wanted := map[int]bool{}
	for i, dev := range d.wire.devices {
		wanted[dev.Index] = true
		n, err := d.serveDevice(a, dev)
		changes += n
		if err != nil && !isGone(dev, err) {
			errs[i] = fmt.Errorf("serve the device %s: %w", dev.Name, err)
		}
	}
	if err := a.sweep(func(p point) bool { return wanted[p.index] }); err != nil {
		d.log.Error("programs on devices that are served no more could not be removed, will try again", "error", err)
	}
	failpoint.Hit("devices: former ones have no programs")
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		errs = nil
	}
	return changes, errs
}

// serveDevice tells the programs of the device's addresses no earlier than both
// directions pass ours, be it those of a predecessor.
func (d *Datapath) serveDevice(a attacher, dev Device) (changes int, err error) {
	programs, err := d.wirePrograms(dev.Inside)
	if err != nil {
		return 0, err
	}
	if _, in := a.at(point{dev.Index, ingress}); in {
		if _, out := a.at(point{dev.Index, egress}); out {
			if changes, err = d.putSource(dev); err != nil {
				return changes, err
			}
		}
	}
	for i := range wireHooks {
		changed, err := a.put(dev, direction(i), programs.Programs[wireHooks[i].program])
		if err != nil {
			return changes, fmt.Errorf("attach %s: %w", wireHooks[i].program, err)
		}
		if changed {
			changes++
		}
		failpoint.Hit("devices: program is attached")
	}
	n, err := d.putSource(dev)
	failpoint.Hit("devices: addresses are written")
	return changes + n, err
}

// isGone says that a device went while it was served, which is no fault.
func isGone(dev Device, err error) bool {
	if errors.Is(err, unix.ENODEV) {
		return true
	}
	var none netlink.LinkNotFoundError
	_, failed := netlink.LinkByIndex(dev.Index)
	return errors.As(failed, &none)
}

// putSource tells the programs of a device's addresses. Those of inside devices
// are of no use: no client's address is hidden from what is behind them.
func (d *Datapath) putSource(dev Device) (changes int, err error) {
	if dev.Inside {
		return 0, nil
	}
	m, key := d.current.maps[mapDevices], uint32(dev.Index)
	want := device{Source4: addressOf(dev.Source4), Source6: addressOf(dev.Source6), Index: key}
	var have device
	if err := m.Lookup(key, &have); err == nil && have == want {
		return 0, nil
	}
	if err := m.Put(key, want); err != nil {
		return 0, fmt.Errorf("write its addresses to the map %s: %w", mapDevices, err)
	}
	return 1, nil
}

// dropSources forgets all devices but those that are wanted outside.
func (d *Datapath) dropSources() (dropped int, err error) {
	m := d.current.maps[mapDevices]
	var key uint32
	var value device
	var foreign []uint32
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		if !slices.ContainsFunc(d.wire.devices, func(dev Device) bool { return uint32(dev.Index) == key && !dev.Inside }) {
			foreign = append(foreign, key)
		}
	}
	if err := entries.Err(); err != nil {
		return 0, fmt.Errorf("read the map %s: %w", mapDevices, err)
	}
	for _, k := range foreign {
		if err := ignoreMissing(m.Delete(k)); err != nil {
			return dropped, fmt.Errorf("delete the device with index %d from the map %s: %w", k, mapDevices, err)
		}
		dropped++
	}
	return dropped, nil
}

// wirePrograms returns the programs for devices of one side.
func (d *Datapath) wirePrograms(inside bool) (*ebpf.Collection, error) {
	if programs := d.wire.programs[inside]; programs != nil {
		return programs, nil
	}
	programs, err := d.load(loadWire, map[string]any{
		"inside":     boolByte(inside),
		"snat_first": d.cfg.Wire.SNATPorts.First,
		"snat_last":  d.cfg.Wire.SNATPorts.Last,
	})
	if err != nil {
		return nil, fmt.Errorf("load the programs of the packet path: %w", err)
	}
	d.wire.programs[inside] = programs
	return programs, nil
}

func (d *Datapath) closeWire() {
	for _, programs := range d.wire.programs {
		programs.Close()
	}
}

// viaTCX says which way of attaching is used.
func (d *Datapath) viaTCX() bool { return !d.cfg.Wire.Clsact && haveTCX() == nil }

// WireVia is how devices are attached to: tcx or clsact.
func (d *Datapath) WireVia() string {
	if d.viaTCX() {
		return "tcx"
	}
	return "clsact"
}

func (d *Datapath) openAttacher(viaTCX bool) (attacher, error) {
	if viaTCX {
		return openTCX(d.cfg.PinPath)
	}
	return openClsact()
}

// leaveOther takes away what was attached in the way that is not used, once the
// other one serves: programs that see a packet twice do nothing to it the
// second time.
func (d *Datapath) leaveOther() error {
	other, err := d.openAttacher(!d.viaTCX())
	if err != nil {
		return err
	}
	defer other.close()
	return other.sweep(keepNone)
}

func keepNone(point) bool { return false }

// removeWire takes all programs of the packet path off the devices of this
// network namespace.
func removeWire(pinPath string) error {
	links, err := openTCX(pinPath)
	if err != nil {
		return err
	}
	defer links.close()
	return errors.Join(links.sweep(keepNone), removeFilters())
}

func removeFilters() error {
	filters, err := openClsact()
	if err != nil {
		return err
	}
	return filters.sweep(keepNone)
}
