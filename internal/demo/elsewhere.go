// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// do runs f on a thread of its own in the namespace. What f starts on other
// goroutines runs elsewhere.
func do(ns netns.NsHandle, f func()) error {
	entered := make(chan error)
	go func() {
		// The thread is not used again: it ends with the goroutine.
		runtime.LockOSThread()
		err := netns.Set(ns)
		if err == nil {
			f()
		}
		entered <- err
	}()
	if err := <-entered; err != nil {
		return fmt.Errorf("enter a network namespace: %w", err)
	}
	return nil
}

// dialIn opens connections from within the namespace, under a name by which
// the kernel knows the caller. The address is a single one, so that it is this
// thread that makes the socket.
func dialIn(ns netns.NsHandle, name string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		entered := do(ns, func() {
			if err = nameThread(name); err == nil {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
			}
		})
		return conn, errors.Join(entered, err)
	}
}

func nameThread(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
}

// nameMachine gives what this thread starts a machine's name of its own.
func nameMachine(host string) error {
	if host == "" {
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("leave the machine's name: %w", err)
	}
	return unix.Sethostname([]byte(host))
}

// program is a process in a namespace.
type program struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of its end
}

// startIn starts a process in the namespace, which dies with this one. It finds
// its machine called as host says, unless that is empty.
func startIn(ns netns.NsHandle, host string, cmd *exec.Cmd) (*program, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &program{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The process dies with this thread, which waits for it.
		if err := do(ns, func() { p.live(host, started) }); err != nil {
			started <- err
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *program) live(host string, started chan<- error) {
	err := nameMachine(host)
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// distant adds a machine to the network, which is reached through the node: a
// namespace with an address of its own, and a way back to node and pods. Pods
// get a way to it.
func (n *network) distant(name string, at, node netip.Addr, pods ...netip.Addr) (netns.NsHandle, error) {
	var ns netns.NsHandle
	err := inNewNamespace(func() (err error) {
		ns, err = netns.Get()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("make the namespace of %s: %w", name, err)
	}
	there, err := netlink.NewHandleAt(ns)
	if err != nil {
		return 0, fmt.Errorf("open netlink in %s: %w", name, err)
	}
	cable, end, err := join(n.node, there, ns, name)
	if err != nil {
		return 0, err
	}
	if err := addAddress(there, end, at); err != nil {
		return 0, err
	}
	if err := addRoute(n.node, cable, at); err != nil {
		return 0, err
	}
	if err := addRoute(there, end, node); err != nil {
		return 0, err
	}
	for _, pod := range pods {
		if err := addRouteVia(there, end, pod, node); err != nil {
			return 0, err
		}
	}
	if err := addRouteVia(n.pods, n.podCable, at, node); err != nil {
		return 0, err
	}
	return ns, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// addPod gives the pods' namespace one more address.
func (n *network) addPod(a netip.Addr) error {
	if err := addAddress(n.pods, n.podCable, a); err != nil {
		return err
	}
	return addRoute(n.node, n.cable, a)
}
