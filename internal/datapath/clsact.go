// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/rtnl"
)

// filterHandle is that of our filters, on every device and in both directions.
const filterHandle = 0xfa1ead

// clsact attaches by cls_bpf filters, which the kernel keeps when the agent
// ends. The qdisc that they hang on is made where it is missing, and never
// deleted: others may have hung theirs on it since.
type clsact struct {
	qdiscs  map[int]string // clsact or ingress, by the index of the device
	filters map[point]ebpf.ProgramID
}

func openClsact() (*clsact, error) {
	c := &clsact{qdiscs: map[int]string{}, filters: map[point]ebpf.ProgramID{}}
	qdiscs, err := rtnl.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(nil) })
	if err != nil {
		return nil, fmt.Errorf("list the qdiscs: %w", err)
	}
	for _, q := range qdiscs {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT {
			c.qdiscs[q.Attrs().LinkIndex] = q.Type()
		}
	}
	for index := range c.qdiscs {
		for i := range wireHooks {
			at := point{index, direction(i)}
			if err := c.find(at); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// listFilters lists the filters at a point in the order in which they run; none
// if the device is gone.
func listFilters(at point) ([]netlink.Filter, error) {
	device := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: at.index}}
	filters, err := rtnl.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(device, wireHooks[at.direction].parent) })
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("list the %s filters of the device with index %d: %w", wireHooks[at.direction].name, at.index, err)
	}
	return filters, nil
}

func (c *clsact) find(at point) error {
	filters, err := listFilters(at)
	if err != nil {
		return err
	}
	for _, f := range filters {
		if ours(f, at.direction) {
			c.filters[at] = ebpf.ProgramID(f.(*netlink.BpfFilter).Id)
		}
	}
	return nil
}

// ours knows a filter by its place and by its name.
func ours(f netlink.Filter, d direction) bool {
	b, ok := f.(*netlink.BpfFilter)
	return ok && b.Handle == filterHandle && b.Priority == wireHooks[d].priority && b.Name == wireHooks[d].program
}

func filterAt(at point, fd int) *netlink.BpfFilter {
	h := wireHooks[at.direction]
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: at.index, Parent: h.parent, Handle: filterHandle, Priority: h.priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: fd, Name: h.program, DirectAction: true,
	}
}

func (c *clsact) at(p point) (ebpf.ProgramID, bool) {
	id, ok := c.filters[p]
	return id, ok
}

func (c *clsact) put(dev Device, d direction, program *ebpf.Program) (changed bool, err error) {
	id, err := programID(program)
	if err != nil {
		return false, err
	}
	at := point{dev.Index, d}
	if have, ok := c.filters[at]; ok && have == id {
		return false, nil
	}
	if err := c.needQdisc(dev.Index); err != nil {
		return false, err
	}
	if err := netlink.FilterReplace(filterAt(at, program.FD())); err != nil {
		return false, fmt.Errorf("put a filter at priority %d: %w", wireHooks[d].priority, err)
	}
	c.filters[at] = id
	return true, nil
}

func (c *clsact) needQdisc(index int) error {
	switch c.qdiscs[index] {
	case "clsact":
		return nil
	case "":
	default:
		return fmt.Errorf("it has a qdisc %s, which has no place for programs on the way out: remove it (tc qdisc del dev DEVICE ingress)", c.qdiscs[index])
	}
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
	}})
	// Someone else may have been faster.
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", err)
	}
	c.qdiscs[index] = "clsact"
	return nil
}

func (c *clsact) sweep(keep func(point) bool) error {
	var failures []error
	for p := range c.filters {
		if keep(p) {
			continue
		}
		err := netlink.FilterDel(filterAt(p, -1))
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			failures = append(failures, fmt.Errorf("remove our %s filter from the device with index %d: %w", wireHooks[p.direction].name, p.index, err))
			continue
		}
		delete(c.filters, p)
	}
	return errors.Join(failures...)
}

func (c *clsact) close() {}
