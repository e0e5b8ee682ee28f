// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/test/lab"
)

// wired is a kernel and a datapath that do what a test wants, and remember
// what the tracker made of them.
type wired struct {
	*deviceTracker

	mu      sync.Mutex
	present network
	broken  map[string]error // "network", "publish", "reserve"
	told    [][]string
}

func newWired(devices ...netDevice) *wired {
	w := &wired{present: networkOf(devices...), broken: map[string]error{}}
	node := func() []netip.Addr { return parse("192.0.2.1") }
	w.deviceTracker = newDeviceTracker(Config{}, slog.New(slog.DiscardHandler), node, w.publish)
	w.network = func() (network, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.present, w.broken["network"]
	}
	w.reserve = func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.broken["reserve"]
	}
	return w
}

func (w *wired) publish(devices []datapath.Device) []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, names(devices))
	if w.broken["publish"] == nil {
		return nil
	}
	errs := make([]error, len(devices))
	errs[0] = w.broken["publish"]
	return errs
}

func (w *wired) set(devices ...netDevice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.present = networkOf(devices...)
}

func (w *wired) breaks(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[what] = err
}

func (w *wired) expectTold(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []string
	for _, names := range w.told {
		got = append(got, strings.Join(names, "+"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the datapath was told %q, want %q", got, want)
	}
}

func uplink(name string) netDevice { return dev(name, "", gateway, with("192.0.2.7")) }

// running runs the tracker in a bubble until the test ends.
func (w *wired) running(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go w.run(ctx)
	synctest.Wait()
}

func TestDevicesAreToldBeforeTheProgramsAreAttachedAndOnceMoreAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWired(uplink("eth0"))
		w.look()
		w.running(t)
		w.signal()
		sleep(time.Second)
		w.expectTold(t)
		w.prepare()
		w.expectTold(t, "eth0")
		w.begin()
		sleep(time.Second)
		w.expectTold(t, "eth0", "eth0")
		sleep(10 * deviceRefresh)
		w.expectTold(t, "eth0", "eth0")
		w.set(uplink("eth0"), uplink("eth1"))
		w.signal()
		sleep(0)
		w.expectTold(t, "eth0", "eth0", "eth0+eth1")
		w.set()
		w.signal()
		sleep(deviceQuiet)
		w.expectTold(t, "eth0", "eth0", "eth0+eth1", "")
	})
}

func TestWhatCouldNotBeServedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWired(uplink("eth0"), uplink("eth1"))
		w.look()
		w.prepare()
		w.running(t)
		w.breaks("publish", errors.New("no room on eth0"))
		w.begin()
		sleep(time.Second)
		w.expectTold(t, "eth0+eth1", "eth0+eth1")
		if f := w.findings(); len(f) != 1 || !strings.Contains(f[0], "no room on eth0") {
			t.Errorf("findings %q", f)
		}
		if served, all := w.current(); len(served) != 2 || len(all) != 2 || all[0].Problem != "no room on eth0" || all[1].Problem != "" {
			t.Errorf("served %v, all %+v", served, all)
		}
		w.breaks("publish", nil)
		sleep(deviceRefresh)
		w.expectTold(t, "eth0+eth1", "eth0+eth1", "eth0+eth1")
		if _, all := w.current(); len(w.findings()) != 0 || all[0].Problem != "" {
			t.Errorf("healed, and yet %q of %+v", w.findings(), all)
		}
	})
}

func TestDevicesThatCannotBeReadStayAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWired(uplink("eth0"))
		w.look()
		w.prepare()
		w.begin()
		w.running(t)
		w.set()
		w.breaks("network", errors.New("no memory"))
		w.breaks("reserve", errors.New("read only"))
		sleep(deviceRefresh)
		w.expectTold(t, "eth0", "eth0")
		if f := w.findings(); len(f) != 2 || !strings.Contains(f[0], "no memory") || !strings.Contains(f[1], "read only") {
			t.Errorf("findings %q", f)
		}
		w.breaks("network", nil)
		w.breaks("reserve", nil)
		sleep(deviceRefresh)
		w.expectTold(t, "eth0", "eth0", "")
		if f := w.findings(); len(f) != 0 {
			t.Errorf("healed, and yet %q", f)
		}
	})
}

func TestARushOfChangesCostsALookNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWired(uplink("eth0"))
		looks := 0
		read := w.network
		w.network = func() (network, error) { looks++; return read() }
		w.running(t)
		for range 1000 {
			w.signal()
			sleep(time.Millisecond)
		}
		if most := int(time.Second/deviceQuiet) + 1; looks < 2 || looks > most {
			t.Errorf("%d looks in a second, want no more than %d", looks, most)
		}
	})
}

func TestADeviceThatWentAndCameBackUnseenIsToldAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		heard func(changed func(gone bool)) error
		again bool
	}{
		{"a device was announced to be gone", func(changed func(bool)) error { changed(true); return nil }, true},
		{"announcements were lost", func(func(bool)) error { return unix.ENOBUFS }, true},
		{"a route changed", func(changed func(bool)) error { changed(false); return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWired(uplink("eth0"))
				w.look()
				w.prepare()
				w.begin()
				w.running(t)
				sleep(time.Second)
				w.expectTold(t, "eth0", "eth0")
				ctx, cancel := context.WithCancel(t.Context())
				w.follow = func(ctx context.Context, changed func(bool)) error {
					if err := c.heard(changed); err != nil {
						return err
					}
					<-ctx.Done()
					return nil
				}
				go w.watch(ctx)
				sleep(followRetry / 2)
				cancel()
				if c.again {
					w.expectTold(t, "eth0", "eth0", "eth0")
					return
				}
				w.expectTold(t, "eth0", "eth0")
			})
		})
	}
}

func TestSkippedDevicesAreTold(t *testing.T) {
	w := newWired(uplink("eth0"), dev("tunl0", "ipip", packets("ipip"), with("10.1.1.1")))
	w.look()
	w.prepare()
	w.expectTold(t, "eth0")
	served, all := w.current()
	if len(served) != 1 || len(all) != 2 || !strings.HasPrefix(all[1].Problem, "skipped: ") || all[1].Why == "" || all[0].Side != "outside" {
		t.Errorf("served %v, all %+v", served, all)
	}
}

// The real kernel announces devices, their names, addresses and routes.
func TestAChangeOfADeviceIsSeenAtOnce(t *testing.T) {
	node := newNode(t, "192.0.2.1/24")
	told := make(chan []string, 1024)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	tracker := newDeviceTracker(Config{SNATPorts: datapath.Ports{First: 61000, Last: 65535}}, slog.New(slog.DiscardHandler),
		func() []netip.Addr { return nil }, func(d []datapath.Device) []error { told <- names(d); return nil })
	tracker.begin()
	for _, part := range []func(context.Context) error{tracker.run, tracker.watch} {
		go node.Do(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
			ended <- struct{}{}
		})
	}
	seen := func(change func(), want ...string) {
		t.Helper()
		start := time.Now()
		node.Do(change)
		for end := time.After(patience); ; {
			select {
			case got := <-told:
				if !slices.Equal(got, want) {
					continue
				}
				if took := time.Since(start); took > deviceRefresh/2 {
					t.Errorf("%q seen after %s, as if nobody had announced it", want, took)
				}
				return
			case <-end:
				t.Fatalf("%q: not seen after %s", want, patience)
			}
		}
	}
	find := func(name string) netlink.Link {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	seen(func() {})
	seen(func() {
		node.Route(t, netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("192.0.2.2"), "eth0")
	}, "eth0")
	seen(func() {
		_, to, err := net.ParseCIDR("203.0.113.0/24")
		must(t, err, netlink.RouteDel(&netlink.Route{Dst: to}))
	})
	seen(func() {
		node.Route(t, netip.MustParsePrefix("2001:db8:9::/64"), netip.MustParseAddr("fe80::9"), "eth0")
	}, "eth0")
	seen(func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "vxlan0"
		must(t, netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, VxlanId: 1, Port: 4789}))
		address, err := netlink.ParseAddr("10.244.1.0/32")
		must(t, err, netlink.AddrAdd(find("vxlan0"), address))
	}, "eth0", "vxlan0")
	seen(func() { must(t, netlink.LinkSetName(find("vxlan0"), "flannel.1")) }, "eth0", "flannel.1")
	seen(func() { must(t, netlink.LinkDel(find("flannel.1"))) }, "eth0")
	cancel()
	<-ended
	<-ended
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	node := lab.NewNetNS(t, "n1")
	ctx, cancel := context.WithCancel(t.Context())
	followed, result := make(chan struct{}), make(chan error)
	var once sync.Once
	go node.Do(func() {
		result <- followKernel(ctx, func([]syscall.NetlinkMessage) { once.Do(func() { close(followed) }) }, unix.RTNLGRP_LINK)
	})
	<-followed
	cancel()
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}
