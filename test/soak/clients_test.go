// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

const (
	// heldEach is how many connections a client holds open.
	heldEach = 8
	// promisedTimeout is long, for nothing but a busy machine may delay an
	// answer that was promised. Others are not waited for.
	promisedTimeout = 15 * time.Second
	hopelessTimeout = 2 * time.Second
	// breath is between two rounds: the machine has other things to do.
	breath = 15 * time.Millisecond
)

// The ways by which clients connect.
var ways = []rig.Way{
	{Name: "TCP", Network: traffic.TCP},
	{Name: "TCP over IPv6", Network: traffic.TCP, V6: true},
	{Name: "TCP to a mapped address", Network: traffic.TCP, Mapped: true},
	{Name: "connected UDP", Network: traffic.UDP},
	{Name: "connected UDP over IPv6", Network: traffic.UDP, V6: true},
	{Name: "unconnected UDP", Network: traffic.UDPUnconnected},
	{Name: "unconnected UDP over IPv6", Network: traffic.UDPUnconnected, V6: true},
}

// client is a process that holds connections through Services and opens new
// ones, until it is told to stop.
type client struct {
	name    string
	outside bool // its packets meet the node on the wire
	process *traffic.Client
	rand    *rand.Rand
	world   *world
	keys    []string
	targets map[string]*service // by key
	held    []*held
	rounds  atomic.Int64
	stop    chan struct{}
	stopped chan struct{}
}

// held is a connection that is open.
type held struct {
	way     rig.Way
	service *service
	conn    *traffic.Conn
	server  string
	since   attempt // begun when it was last seen to work
}

// startClients starts some in pods, one on the node, and one outside.
func (w *world) startClients(seed uint64) {
	pod := func(i int, name string) lab.Place {
		ns, _ := newPod(w.t, w.agent.NS, 1, i, name)
		return lab.Place{NetNS: ns, Cgroup: w.agent.Cgroup}
	}
	for i, c := range []struct {
		name  string
		place lab.Place
	}{
		{"pod-1", pod(1, "pod-1")}, {"pod-2", pod(2, "pod-2")}, {"host", w.agent.Place()}, {"outside", lab.Place{NetNS: w.outside}},
	} {
		// Ports of connections that were closed come back after a second.
		c.place.NetNS.Sysctl(w.t, "net.ipv4.tcp_tw_reuse", "1")
		one := &client{
			name: c.name, outside: c.name == "outside", world: w, targets: map[string]*service{},
			process: traffic.StartClient(w.t, c.place), rand: rand.New(rand.NewPCG(seed, uint64(i+1))),
			stop: make(chan struct{}), stopped: make(chan struct{}),
		}
		for _, s := range w.services {
			one.keys = append(one.keys, s.key())
			one.targets[s.key()] = s
		}
		w.clients = append(w.clients, one)
		go one.run()
	}
	// They end before their processes do.
	w.t.Cleanup(func() {
		for _, c := range w.clients {
			close(c.stop)
			<-c.stopped
		}
	})
}

func (c *client) run() {
	defer close(c.stopped)
	for {
		c.open()
		c.askHeld()
		c.rounds.Add(1)
		if c.stopping() {
			return
		}
		time.Sleep(breath)
	}
}

func (c *client) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// timeout is how long the client waits for an answer.
func (c *client) timeout(promised bool) time.Duration {
	if promised && !c.world.proving.Load() {
		return promisedTimeout
	}
	return hopelessTimeout
}

// open opens a new connection and asks through it. It is kept if there is room.
func (c *client) open() {
	s := c.targets[c.keys[c.rand.IntN(len(c.keys))]]
	way := ways[c.rand.IntN(len(ways))]
	to, port := s.VIP, uint16(rig.ServicePort)
	if c.outside || c.rand.IntN(4) == 0 {
		to, port = nodeAddrs, s.NodePort
	}
	a := c.world.ledger.begin(s.key())
	promised := a.promised()
	if !promised && c.rand.IntN(8) > 0 {
		return
	}
	c.process.Timeout = c.timeout(promised)
	if promised {
		c.world.report.opened.Add(1)
	}
	at := way.To(to, port).String()
	conn, reply := c.process.Open(way.Network, at)
	opened := reply.Error == ""
	if opened {
		reply = conn.Ask()
	}
	c.judge(way, s, at, a, reply)
	if reply.Error == "" && c.keep(&held{way, s, conn, reply.Server, a}) {
		return
	}
	if opened {
		conn.Close()
	}
}

// judge says what is wrong with what a new connection came to.
func (c *client) judge(way rig.Way, s *service, at string, a attempt, reply traffic.Reply) {
	switch {
	case reply.Error == "" && !a.may(reply.Server):
		c.lost("%s: a new connection to %s (%s) by %s is answered by %s, which was no endpoint since the last quiet point", c.name, s.Name, at, way.Name, reply.Server)
	case reply.Error != "" && a.promised() && !released(way, reply, a):
		c.lost("%s: a new connection to %s (%s) by %s fails: %s, though it has had endpoints all the time since the last quiet point", c.name, s.Name, at, way.Name, reply.Error)
	}
}

// released says whether a connected datagram socket may have lost its endpoint
// between its connect and the answer (R35).
func released(way rig.Way, reply traffic.Reply, a attempt) bool {
	return way.Network == traffic.UDP && !a.unchanged() && slices.Contains([]string{"ECONNABORTED", "EDESTADDRREQ"}, reply.Error)
}

func (c *client) lost(format string, args ...any) {
	c.world.report.lost.Add(1)
	c.world.ledger.breach(format, args...)
}

// keep holds a connection, most often while there is room, and sometimes in
// the place of an older one.
func (c *client) keep(h *held) bool {
	if len(c.held) < heldEach {
		c.held = append(c.held, h)
		c.world.report.held.Add(1)
		return true
	}
	if c.rand.IntN(50) > 0 {
		return false
	}
	i := c.rand.IntN(heldEach)
	c.held[i].conn.Close()
	c.held[i] = h
	c.world.report.held.Add(1)
	return true
}

// askHeld asks through every connection that is held, and lets go of those
// that have ended.
func (c *client) askHeld() {
	c.held = slices.DeleteFunc(c.held, func(h *held) bool {
		if c.stopping() {
			return false
		}
		ended := !c.askOne(h)
		if ended {
			h.conn.Close()
		}
		return ended
	})
}

// askOne says whether the connection is still open.
func (c *client) askOne(h *held) bool {
	now := c.world.ledger.begin(h.service.key())
	if h.way.Network == traffic.UDPUnconnected {
		return c.askUnconnected(h, now)
	}
	c.process.Timeout = c.timeout(c.mustStay(h))
	reply := h.conn.Ask()
	switch {
	case reply.Error != "":
		if c.mustStay(h) {
			c.lost("%s: a connection to %s by %s that was held open to %s is lost: %s", c.name, h.service.Name, h.way.Name, h.server, reply.Error)
		}
		return false
	case reply.Server != h.server && !c.mayMove(h):
		c.lost("%s: a connection to %s by %s that was held open to %s is answered by %s", c.name, h.service.Name, h.way.Name, h.server, reply.Server)
		return false
	}
	h.server, h.since = reply.Server, now
	return true
}

// askUnconnected asks with one more datagram, which stays with its server while
// that drains, and else chooses like the first one.
func (c *client) askUnconnected(h *held, now attempt) bool {
	if !now.promised() {
		return true
	}
	c.process.Timeout = c.timeout(true)
	reply := h.conn.Ask()
	switch {
	case reply.Error != "" && now.promised():
		c.lost("%s: a datagram to %s by %s on a socket held open fails: %s", c.name, h.service.Name, h.way.Name, reply.Error)
		return false
	case reply.Error == "" && !now.may(reply.Server) && (reply.Server != h.server || !now.mayStay(h.server)):
		c.lost("%s: a datagram to %s by %s on a socket held open is answered by %s, which was no endpoint since the last quiet point", c.name, h.service.Name, h.way.Name, reply.Server)
		return false
	}
	h.server = reply.Server
	return reply.Error == ""
}

// mustStay says whether nothing excuses that a connection has ended: open
// connections of TCP stay with their endpoint whatever becomes of it (R9), and
// at sockets whatever becomes of the programs; datagrams as long as it is one
// (R35).
func (c *client) mustStay(h *held) bool {
	if h.way.UDP() {
		return h.since.stayed(h.server)
	}
	return !c.outside || !h.since.interrupted()
}

// mayMove says whether another server may answer on an open connection: on the
// wire, datagrams move on once their endpoint is gone.
func (c *client) mayMove(h *held) bool { return c.outside && h.way.UDP() && !h.since.stayed(h.server) }
