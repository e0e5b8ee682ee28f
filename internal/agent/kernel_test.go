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
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

const patience = 15 * time.Second

// newNode is a namespace with one device, eth0, that has these addresses.
func newNode(t *testing.T, addrs ...string) *lab.NetNS {
	t.Helper()
	node := lab.NewNetNS(t, "n1")
	lab.Veth(t, lab.End{NetNS: node, Link: "eth0", Addrs: addrs}, lab.End{NetNS: lab.NewNetNS(t, "n2"), Link: "eth0"})
	return node
}

func TestTheNodesAddressesAreThoseThatOthersCanDial(t *testing.T) {
	var addrs []netip.Addr
	var err error
	newNode(t, "192.0.2.1/24", "2001:db8::1/64", "192.0.2.7/32").Do(func() { addrs, err = localAddresses() })
	if want := parse("192.0.2.1", "192.0.2.7", "2001:db8::1"); err != nil || !slices.Equal(addrs, want) {
		t.Errorf("got %v, %v; want %v, without loopback and fe80::", addrs, err, want)
	}
}

// reusePort lets several sockets have one address and port.
var reusePort = net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
	var err error
	controlErr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(err, controlErr)
}}

func TestListenersAreTheSocketsThatTakeWhatIsSentToThem(t *testing.T) {
	found := sockets{}
	newNode(t, "192.0.2.1/24", "2001:db8::1/64").Do(func() {
		for _, at := range [][2]string{
			{"tcp4", "192.0.2.1:443"}, {"tcp4", "192.0.2.1:443"}, {"tcp4", "0.0.0.0:22"}, {"tcp4", "127.0.0.1:10248"},
			{"tcp6", "[2001:db8::1]:80"}, {"tcp", "[::]:6443"},
		} {
			l, err := reusePort.Listen(t.Context(), at[0], at[1])
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
		}
		for _, at := range []string{"192.0.2.1:53", "[::]:4789", "0.0.0.0:0"} {
			c, err := reusePort.ListenPacket(t.Context(), "udp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		if err := found.refresh(listeners); err != nil {
			t.Fatal(err)
		}
	})
	want := []model.Listener{
		listener(model.TCP, "0.0.0.0:22"), listener(model.TCP, "[::]:6443"), listener(model.TCP, "[2001:db8::1]:80"),
		listener(model.TCP, "127.0.0.1:10248"), listener(model.TCP, "192.0.2.1:443"),
		listener(model.UDP, "[::]:4789"), listener(model.UDP, "192.0.2.1:53"),
	}
	if got := found.list(); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestAChangeOfAnAddressIsSeenAtOnce(t *testing.T) {
	node := newNode(t, "192.0.2.1/24")
	told := make(chan model.Node, 1024)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	tracker := newNodeTracker(Config{NodeName: "n1"}, slog.New(slog.DiscardHandler), func(n model.Node) { told <- n }, nil)
	for _, part := range []func(context.Context) error{tracker.run, tracker.watch} {
		go node.Do(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
			ended <- struct{}{}
		})
	}
	seen := func(want ...string) {
		t.Helper()
		for end := time.After(patience); ; {
			select {
			case n := <-told:
				if slices.Equal(n.Addresses, parse(want...)) {
					return
				}
			case <-end:
				t.Fatalf("%v: not seen after %s", want, patience)
			}
		}
	}
	seen("192.0.2.1")
	start := time.Now()
	node.Addr(t, "eth0", "192.0.2.2/24")
	seen("192.0.2.1", "192.0.2.2")
	if took := time.Since(start); took > nodeRefresh/2 {
		t.Errorf("seen after %s, as if nobody had announced it", took)
	}
	cancel()
	<-ended
	<-ended
}

func TestAnAnnouncementThatTheKernelDroppedIsAnError(t *testing.T) {
	node := newNode(t, "192.0.2.1/24")
	// The callback holds everything up until more was announced than the
	// kernel can keep.
	subscribed, flooded, result := make(chan struct{}), make(chan struct{}), make(chan error)
	first := true
	go node.Do(func() {
		result <- followAddresses(t.Context(), func() {
			if first {
				first = false
				close(subscribed)
				<-flooded
			}
		})
	})
	<-subscribed
	node.Do(func() { flood(t) })
	close(flooded)
	select {
	case err := <-result:
		if err == nil || !strings.Contains(err.Error(), unix.ENOBUFS.Error()) {
			t.Errorf("got %v, want %v", err, unix.ENOBUFS)
		}
	case <-time.After(patience):
		t.Fatal("nobody noticed")
	}
}

// flood announces more than followBuffer holds: an address that comes and
// goes takes more than 500 bytes each time.
func flood(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("198.51.100.1/32")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * followBuffer / 500 {
		if err := errors.Join(netlink.AddrAdd(link, addr), netlink.AddrDel(link, addr)); err != nil {
			t.Fatal(err)
		}
	}
}
