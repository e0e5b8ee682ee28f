// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// nodeRefresh is how often the node's addresses and listening sockets are asked
// for; a change of an address is seen at once besides.
const nodeRefresh = 10 * time.Second

// nodeTracker joins what the flags, the API and the kernel say of this node,
// and tells the tables and the datapath.
//
// What the API says reaches the tables at once, joined with what the kernel
// said last, so that the tables know the Node before its kind is said to be
// listed. The kernel is asked by one goroutine only, run, so that an older
// answer never comes after a newer one.
type nodeTracker struct {
	*troubles
	name    string
	given   []netip.Addr
	serve   model.NodePortAddresses
	tell    func(model.Node)                     // the tables; short
	publish func(own, served []netip.Addr) error // the datapath

	// The kernel.
	addresses func() ([]netip.Addr, error)
	listening func(diagRequest) ([]model.Listener, error)
	follow    func(ctx context.Context, changed func()) error

	wake    chan struct{}
	sockets sockets     // owned by look
	begun   atomic.Bool // the datapath may be written to
	writing sync.Mutex  // held while publish works

	mu        sync.Mutex // guards what follows
	api       reflector.Node
	local     []netip.Addr
	listeners []model.Listener
	node      model.Node
	served    []netip.Addr
}

const (
	addressesUnread    trouble = "the node's addresses cannot be read, those known last stay in force"
	listenersUnread    trouble = "some of the node's listening sockets cannot be read, those known last stay in force"
	changesUnheard     trouble = "changes of the node's addresses are not announced and may be seen late"
	addressesUnwritten trouble = "the addresses that serve NodePorts could not be written, some of those written before stay in force"
)

// newNodeTracker returns a tracker of the network namespace it is called in.
func newNodeTracker(cfg Config, log *slog.Logger, tell func(model.Node), publish func(own, served []netip.Addr) error) *nodeTracker {
	return &nodeTracker{
		name: cfg.NodeName, given: cfg.NodeIPs, serve: cfg.NodePortAddresses,
		troubles: newTroubles(log), tell: tell, publish: publish,
		addresses: localAddresses, listening: listeners, follow: followAddresses,
		wake: make(chan struct{}, 1), sockets: sockets{},
	}
}

// setAPI takes the Node object; nil if it is gone. It asks the kernel nothing.
func (t *nodeTracker) setAPI(n *reflector.Node) {
	t.mu.Lock()
	t.api = reflector.Node{}
	if n != nil {
		t.api = *n
	}
	t.join()
	t.mu.Unlock()
	t.signal()
}

// current returns the node as it was told last, and the addresses on which it
// serves NodePorts.
func (t *nodeTracker) current() (model.Node, []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.node, t.served
}

// look asks the kernel. What it does not answer stays as it was. Only run, or
// a caller before run, may call it.
func (t *nodeTracker) look() {
	local, err := t.addresses()
	t.note(addressesUnread, err)
	t.note(listenersUnread, t.sockets.refresh(t.listening))
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.local = local
	}
	t.listeners = t.sockets.list()
	t.join()
}

// join makes the node of all that is known, and tells the tables. The lock is
// held, so that they hear of the newest last.
func (t *nodeTracker) join() {
	n := model.Node{Name: t.name, Zone: t.api.Zone, Addresses: t.order()}
	for _, l := range t.listeners {
		// Sockets on loopback come and go, and are in the way of no claim.
		if at := l.AddrPort.Addr(); at.IsUnspecified() || slices.Contains(n.Addresses, at) {
			n.Listening = append(n.Listening, l)
		}
	}
	var served []netip.Addr
	for _, a := range n.Addresses {
		if t.serve.Serve(&n, a) {
			served = append(served, a)
		}
	}
	t.node, t.served = n, served
	t.tell(n)
}

// order puts the node's own addresses first that flags, then the API name: the
// first of each family is the primary one. Names of addresses the kernel does
// not have, as behind a cloud's NAT, do not count.
func (t *nodeTracker) order() []netip.Addr {
	named := slices.Clone(t.given)
	for _, text := range t.api.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			named = append(named, a.Unmap())
		}
	}
	ordered := make([]netip.Addr, 0, len(t.local))
	for _, a := range append(named, t.local...) {
		if slices.Contains(t.local, a) && !slices.Contains(ordered, a) {
			ordered = append(ordered, a)
		}
	}
	return ordered
}

// begin writes the addresses that serve NodePorts, and from now on whenever
// they change. Until then a predecessor's are in force (R33), which may know
// the node better than this agent before it has heard of the API.
func (t *nodeTracker) begin() {
	t.begun.Store(true)
	t.write()
}

// write takes the addresses under its own lock, so that the newest are written last.
func (t *nodeTracker) write() {
	t.writing.Lock()
	defer t.writing.Unlock()
	node, served := t.current()
	t.note(addressesUnwritten, t.publish(node.Addresses, served))
}

// run asks the kernel whenever something may have changed, until ctx ends.
func (t *nodeTracker) run(ctx context.Context) error {
	tick := time.NewTicker(nodeRefresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
		case <-tick.C:
		}
		t.look()
		if t.begun.Load() {
			t.write()
		}
	}
}

// watch wakes run at every change of an address until ctx ends. Whenever it
// may have missed one, it wakes run besides.
func (t *nodeTracker) watch(ctx context.Context) error {
	return keepFollowing(ctx, t.follow, func(err error) {
		t.note(changesUnheard, err)
		t.signal()
	})
}

func (t *nodeTracker) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
