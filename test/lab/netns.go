// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// NetNS is a network namespace of the test's own. A new one holds nothing but
// a loopback device that is up: no way leads out of it until the test adds
// one. It has no name in the file system, so the kernel removes it with the
// last process, descriptor or socket in it, even when the test is killed.
type NetNS struct {
	name string
	file *os.File
	link *netlink.Handle // speaks for the namespace from any thread
}

// NewNetNS returns a new namespace; its name serves in messages only.
func NewNetNS(t testing.TB, name string) *NetNS {
	t.Helper()
	n := &NetNS{name: name}
	var err error
	onOwnThread(func() { err = n.create() })
	t.Cleanup(n.close)
	if err != nil {
		t.Fatalf("network namespace %s: %v", name, err)
	}
	return n
}

// create makes the calling thread's namespace a new one and keeps it in n.
func (n *NetNS) create() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w (tests of the datapath run as root)", err)
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	n.file = file
	// Nobody else can have taken an address in here, so nobody is asked: the
	// question takes a second, in which the address cannot be used.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0); err != nil {
		return fmt.Errorf("switch off duplicate address detection: %w", err)
	}
	if n.link, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	lo, err := n.link.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	return n.link.LinkSetUp(lo)
}

func (n *NetNS) close() {
	if n.link != nil {
		n.link.Close()
	}
	if n.file != nil {
		n.file.Close()
	}
}

func (n *NetNS) String() string { return n.name }

// Path is a path to the namespace that any process may open while the test
// process lives.
func (n *NetNS) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
}

// Do runs fn in the namespace, on a thread of its own. Sockets that fn makes
// stay in the namespace and may be used anywhere; goroutines that fn starts
// run outside. The test may end in fn, by t.Fatal or otherwise.
func (n *NetNS) Do(fn func()) {
	var err error
	returned := onOwnThread(func() {
		if err = n.enter(); err == nil {
			fn()
		}
	})
	if err != nil {
		panic(err)
	}
	if !returned {
		// What ended fn has marked its test as failed or skipped, as t.Fatal
		// does. All that is left is to end the caller too.
		runtime.Goexit()
	}
}

// enter moves the calling thread, for good.
func (n *NetNS) enter() error {
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", n.name, err)
	}
	return nil
}

// Cookie is the kernel's number for the namespace, as eBPF programs see it.
func (n *NetNS) Cookie(t testing.TB) uint64 {
	t.Helper()
	var cookie uint64
	var err error
	n.Do(func() { cookie, err = netnsCookie() })
	if err != nil {
		t.Fatalf("cookie of network namespace %s: %v", n, err)
	}
	return cookie
}

func netnsCookie() (uint64, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
}

// Sysctl sets a parameter of the namespace by its name with dots, such as
// net.ipv4.ip_forward.
func (n *NetNS) Sysctl(t testing.TB, name, value string) {
	t.Helper()
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	var err error
	n.Do(func() { err = os.WriteFile(path, []byte(value), 0) })
	if err != nil {
		t.Fatalf("set %s=%s in network namespace %s: %v", name, value, n, err)
	}
}
