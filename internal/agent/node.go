// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// nodeRefresh is how often the node's addresses and listening sockets are
// asked for; a change of an address is seen at once besides.
const nodeRefresh = 10 * time.Second

// nodeTracker joins what the flags, the API and the kernel say of this node,
// and tells the tables and the datapath when it changes.
type nodeTracker struct {
	name    string
	given   []netip.Addr
	serve   model.NodePortAddresses
	log     *slog.Logger
	tell    func(model.Node)                // the tables
	publish func(served []netip.Addr) error // the datapath

	mu     sync.Mutex
	api    reflector.Node
	node   model.Node
	served []netip.Addr
}

// setAPI takes the Node object; nil if it is gone.
func (t *nodeTracker) setAPI(n *reflector.Node) {
	t.mu.Lock()
	t.api = reflector.Node{}
	if n != nil {
		t.api = *n
	}
	t.mu.Unlock()
	t.refresh()
}

// current returns the node as it was told last, and the addresses on which it
// serves NodePorts.
func (t *nodeTracker) current() (model.Node, []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.node, t.served
}

// refresh asks the kernel again. What cannot be asked stays as it was.
func (t *nodeTracker) refresh() {
	local, err := localAddresses()
	if err != nil {
		t.log.Error("the node's addresses could not be read and stay as they were", "error", err)
		return
	}
	listening, err := listeners()
	if err != nil {
		t.log.Error("the node's listening sockets could not be read and stay as they were", "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := model.Node{Name: t.name, Zone: t.api.Zone, Addresses: t.order(local), Listening: listening}
	var served []netip.Addr
	for _, a := range n.Addresses {
		if t.serve.Serve(&n, a) {
			served = append(served, a)
		}
	}
	t.node, t.served = n, served
	t.tell(n)
	if err := t.publish(served); err != nil {
		t.log.Error("the addresses that serve NodePorts could not be written, will try again", "error", err, "in", nodeRefresh)
	}
}

// order puts the node's own addresses first that flags, then the API name: the
// first of each family is the primary one. Names of addresses the kernel does
// not have, as behind a cloud's NAT, do not count.
func (t *nodeTracker) order(local []netip.Addr) []netip.Addr {
	named := slices.Clone(t.given)
	for _, text := range t.api.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			named = append(named, a.Unmap())
		}
	}
	ordered := make([]netip.Addr, 0, len(local))
	for _, a := range append(named, local...) {
		if slices.Contains(local, a) && !slices.Contains(ordered, a) {
			ordered = append(ordered, a)
		}
	}
	return ordered
}

// run follows the kernel until ctx ends.
func (t *nodeTracker) run(ctx context.Context) error {
	updates := make(chan netlink.AddrUpdate, 64)
	if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
		return fmt.Errorf("follow the node's addresses: %w", err)
	}
	tick := time.NewTicker(nodeRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-updates:
			if !ok {
				updates = nil // the ticker goes on
			}
		case <-tick.C:
		}
		t.refresh()
	}
}

// localAddresses are those of the network namespace's interfaces, but for
// loopback and link-local ones, which nobody else can dial.
func localAddresses() ([]netip.Addr, error) {
	list, err := netlink.AddrList(nil, unix.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of all interfaces: %w", err)
	}
	var addresses []netip.Addr
	for _, l := range list {
		a, ok := netip.AddrFromSlice(l.IP)
		a = a.Unmap()
		if ok && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}
