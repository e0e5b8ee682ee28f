// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
)

const (
	// deviceRefresh is how often devices are looked at; their changes are seen
	// at once besides.
	deviceRefresh = 10 * time.Second
	// deviceQuiet is the least time between two looks, for nodes whose routes
	// change all the time.
	deviceQuiet = 50 * time.Millisecond
)

const (
	devicesUnread   trouble = "the node's devices and routes cannot be read, those served last go on"
	devicesUnheard  trouble = "changes of the node's devices and routes are not announced and may be seen late"
	devicesUnserved trouble = "not every device passes the programs of the packet path"
	portsUnreserved trouble = "the node's own sockets may take ports of --snat-ports"
)

// deviceTracker follows the node's devices and tells the datapath which of them
// to serve. The kernel is asked by one goroutine only, run.
type deviceTracker struct {
	*troubles
	rules   deviceRules
	node    func() []netip.Addr             // the node's addresses, primary ones first
	publish func([]datapath.Device) []error // the datapath
	reserve func() error                    // keeps the ports of the packet path for it

	// The kernel.
	network func() (network, error)
	follow  func(ctx context.Context, changed func(gone bool)) error

	wake    chan struct{}
	begun   atomic.Bool // the datapath serves what it is told of
	writing sync.Mutex  // held while publish works

	mu        sync.Mutex // guards what follows
	chosen    []chosenDevice
	published []datapath.Device
	failures  []error // of published, nil if there is none
	stale     bool    // what became of published is not known
}

// newDeviceTracker returns a tracker of the network namespace it is called in.
func newDeviceTracker(cfg Config, log *slog.Logger, node func() []netip.Addr, publish func([]datapath.Device) []error) *deviceTracker {
	return &deviceTracker{
		troubles: newTroubles(log), rules: deviceRules{outside: cfg.Devices, inside: cfg.PodDevices},
		node: node, publish: publish, network: readNetwork, follow: followDevices,
		reserve: func() error { return reservePorts(cfg.SNATPorts, log) },
		wake:    make(chan struct{}, 1),
	}
}

// followDevices calls changed as followKernel does, for all that the rules for
// devices look at, and says whether a device is gone.
func followDevices(ctx context.Context, changed func(gone bool)) error {
	isDeparture := func(m syscall.NetlinkMessage) bool { return m.Header.Type == unix.RTM_DELLINK }
	err := followKernel(ctx, func(m []syscall.NetlinkMessage) { changed(slices.ContainsFunc(m, isDeparture)) }, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return fmt.Errorf("follow the node's devices: %w", err)
	}
	return nil
}

// look asks the kernel. Only run, or a caller before run, may call it.
func (t *deviceTracker) look() {
	n, err := t.network()
	t.note(devicesUnread, err)
	if err != nil {
		return
	}
	chosen := t.rules.choose(n, t.node())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chosen = chosen
}

// prepare names the devices before the programs are attached, so that they are
// attached to these at once.
func (t *deviceTracker) prepare() {
	t.note(portsUnreserved, t.reserve())
	t.write()
}

// begin is called when the programs are attached: from now on devices are
// served as they come, and what failed is tried again.
func (t *deviceTracker) begin() {
	t.begun.Store(true)
	t.doubt()
	t.signal()
}

// doubt lets the next write tell the datapath even what it was told before. A
// device that is gone may be back before anybody looks, under its name and
// index, and without programs.
func (t *deviceTracker) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = true
}

// write tells the datapath what it has not been told, or could not do.
func (t *deviceTracker) write() {
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.Lock()
	devices, done := served(t.chosen), t.published != nil && t.failures == nil && !t.stale
	changed := t.published == nil || !slices.Equal(devices, t.published)
	t.stale = false
	t.mu.Unlock()
	if done && !changed {
		return
	}
	failures := t.publish(devices)
	t.note(devicesUnserved, errors.Join(failures...))
	t.mu.Lock()
	t.published, t.failures = devices, failures
	t.mu.Unlock()
	if changed {
		t.log.Info("the packet path has these devices", "devices", names(devices))
	}
}

func names(devices []datapath.Device) []string {
	texts := []string{}
	for _, d := range devices {
		texts = append(texts, d.Name)
	}
	return texts
}

// run looks whenever something may have changed, until ctx ends.
func (t *deviceTracker) run(ctx context.Context) error {
	tick := time.NewTicker(deviceRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-tick.C:
			t.note(portsUnreserved, t.reserve())
		}
		t.look()
		if t.begun.Load() {
			t.write()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(deviceQuiet):
		}
	}
}

// watch wakes run at every change until ctx ends. Whenever it may have missed
// one, it wakes run besides.
func (t *deviceTracker) watch(ctx context.Context) error {
	follow := func(ctx context.Context, changed func()) error {
		return t.follow(ctx, func(gone bool) {
			if gone {
				t.doubt()
			}
			changed()
		})
	}
	return keepFollowing(ctx, follow, func(err error) {
		t.note(devicesUnheard, err)
		if err != nil {
			t.doubt()
		}
		t.signal()
	})
}

func (t *deviceTracker) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// current returns the devices that the datapath was told of, and all that are
// wanted, with what is wrong with them.
func (t *deviceTracker) current() (devices []datapath.Device, all []api.Device) {
	t.mu.Lock()
	defer t.mu.Unlock()
	problems := map[int]string{}
	for i, err := range t.failures {
		if err != nil {
			problems[t.published[i].Index] = err.Error()
		}
	}
	all = []api.Device{}
	for _, c := range t.chosen {
		d := api.Device{Name: c.Name, Index: c.Index, Side: "outside", Why: c.why, Problem: problems[c.Index]}
		if c.Inside {
			d.Side = "inside"
		}
		if c.skipped != "" {
			d.Problem = "skipped: " + c.skipped
		}
		all = append(all, d)
	}
	return t.published, all
}

// serveOutside says that some device that faces other machines is served.
func (t *deviceTracker) serveOutside() bool {
	if t == nil {
		return false
	}
	_, all := t.current()
	return slices.ContainsFunc(all, func(d api.Device) bool { return d.Side == "outside" && d.Problem == "" })
}

// serveInside says that packets from an address arrive on a device that
// --pod-devices names and that is served. What the kernel does not answer is no.
func (t *deviceTracker) serveInside(from netip.Addr) bool {
	if t == nil {
		return false
	}
	routes, err := netlink.RouteGet(from.AsSlice())
	if err != nil || len(routes) == 0 {
		return false
	}
	devices, _ := t.current()
	return slices.ContainsFunc(devices, func(d datapath.Device) bool {
		return d.Inside && d.Index == routes[0].LinkIndex
	})
}
