// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// network is two namespaces: the node, in which this process runs, and one
// that stands for all pods. A cable joins them; there is no other way out.
type network struct {
	node, pods *netlink.Handle
	podsNS     netns.NsHandle
	cable      netlink.Link // the node's end
	podCable   netlink.Link
}

func newNetwork(nodeAddresses []netip.Addr) (*network, error) {
	n := &network{}
	var err error
	if n.node, err = netlink.NewHandle(); err != nil {
		return nil, fmt.Errorf("open netlink in the node: %w", err)
	}
	err = inNewNamespace(func() error {
		n.podsNS, err = netns.Get()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make the pods' namespace: %w", err)
	}
	if n.pods, err = netlink.NewHandleAt(n.podsNS); err != nil {
		return nil, fmt.Errorf("open netlink in the pods: %w", err)
	}
	if err := n.plug(); err != nil {
		return nil, err
	}
	for _, a := range nodeAddresses {
		if err := addAddress(n.node, n.cable, a); err != nil {
			return nil, err
		}
		if err := addRoute(n.pods, n.podCable, a); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// inNewNamespace runs f on a thread in a new network namespace. The thread is
// not used for anything else, and ends.
func inNewNamespace(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func (n *network) plug() (err error) {
	n.cable, n.podCable, err = join(n.node, n.pods, n.podsNS, "pods")
	return err
}

// join lays a cable between the node and another namespace: its node's end has
// the name of what is there, the other one is eth0.
func join(node, there *netlink.Handle, ns netns.NsHandle, name string) (cable, end netlink.Link, err error) {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name},
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(ns),
	}
	if err := node.LinkAdd(veth); err != nil {
		return nil, nil, fmt.Errorf("join node and %s: %w", name, err)
	}
	if cable, err = bringUp(node, name); err != nil {
		return nil, nil, err
	}
	end, err = bringUp(there, "eth0")
	return cable, end, err
}

func bringUp(h *netlink.Handle, name string) (netlink.Link, error) {
	for _, each := range []string{"lo", name} {
		l, err := h.LinkByName(each)
		if err != nil {
			return nil, fmt.Errorf("find the interface %s: %w", each, err)
		}
		if err := h.LinkSetUp(l); err != nil {
			return nil, fmt.Errorf("bring the interface %s up: %w", each, err)
		}
		if each == name {
			return l, nil
		}
	}
	return nil, nil
}

func addAddress(h *netlink.Handle, l netlink.Link, a netip.Addr) error {
	address := &netlink.Addr{IPNet: hostNet(a)}
	if a.Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := h.AddrAdd(l, address); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	return nil
}

func addRoute(h *netlink.Handle, l netlink.Link, a netip.Addr) error {
	return replaceRoute(h, &netlink.Route{LinkIndex: l.Attrs().Index, Dst: hostNet(a), Scope: netlink.SCOPE_LINK})
}

// addRouteVia leads through another machine on the cable.
func addRouteVia(h *netlink.Handle, l netlink.Link, a, via netip.Addr) error {
	return replaceRoute(h, &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: hostNet(a), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	})
}

func replaceRoute(h *netlink.Handle, route *netlink.Route) error {
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("add a route to %s: %w", route.Dst, err)
	}
	return nil
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// serve gives a pod its address and starts its server, which answers every
// connection or datagram with its own address.
func (n *network) serve(ctx context.Context, at netip.AddrPort, p model.Protocol) error {
	if err := n.addPod(at.Addr()); err != nil {
		return err
	}
	// The socket belongs to the namespace of the thread that makes it.
	var err error
	if entered := do(n.podsNS, func() { err = listen(ctx, at, p) }); entered != nil {
		return entered
	}
	if err != nil {
		return fmt.Errorf("start the server %s/%s: %w", at, p, err)
	}
	return nil
}

func listen(ctx context.Context, at netip.AddrPort, p model.Protocol) error {
	if p == model.UDP {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		go answerDatagrams(conn, at.String())
		return nil
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	go answerConnections(listener, at.String())
	return nil
}

func answerDatagrams(conn *net.UDPConn, name string) {
	buffer := make([]byte, 1500)
	for {
		_, from, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			conn.WriteToUDPAddrPort([]byte(name), from)
		}
	}
}

func answerConnections(listener *net.TCPListener, name string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		conn.Write([]byte(name))
		conn.Close()
	}
}
