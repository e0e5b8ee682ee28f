// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// expected is what should be known of one client at one Service.
type expected struct {
	talk      talk
	service   *published
	answered  bool
	confirmed bool
	ended     uint8 // flowFinClient, flowFinServer, flowReset
}

// published is a Service and what it has now.
type published struct {
	family   family
	protocol model.Protocol
	front    netip.AddrPort
	id       SetID
	backends []model.Backend
	draining []model.Backend
}

func (s *published) has(b netip.AddrPort) bool {
	is := func(o model.Backend) bool { return o.AddrPort == b }
	return slices.ContainsFunc(s.backends, is) || slices.ContainsFunc(s.draining, is)
}

// machine draws what happens to a node, and says what it should come to.
type machine struct {
	*node
	services []*published
	flows    map[string]*expected // by client and Service
	began    time.Time            // with no flows
}

func newMachine(n *node) *machine {
	m := &machine{node: n}
	for _, f := range families {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			for range 2 {
				s := &published{family: f, protocol: protocol}
				key := n.backendSet(model.RoleVIPInternal, protocol, f)
				s.front = n.front(f)
				s.id = n.serve(s.front, &model.Set{Key: key, Action: model.ActionReject})
				m.services = append(m.services, s)
			}
		}
	}
	return m
}

// reset makes the node what newMachine left.
func (m *machine) reset() {
	for _, s := range m.services {
		s.backends, s.draining = nil, nil
		m.publish(s.id, &model.Set{Key: m.key(s.id), Action: model.ActionReject})
	}
	m.expire()
}

// republish gives a Service other backends; some of the old ones may drain.
func (m *machine) republish(t *rapid.T) {
	s := m.services[rapid.IntRange(0, len(m.services)-1).Draw(t, "service")]
	every := append(withPort(8080, several(s.family.pod, 3)...), withPort(8080, several(s.family.remote, 3)...)...)
	slices.SortFunc(every, func(a, b model.Backend) int { return a.AddrPort.Compare(b.AddrPort) })
	s.backends, s.draining = []model.Backend{}, []model.Backend{}
	for _, b := range every {
		switch rapid.IntRange(0, 2).Draw(t, b.AddrPort.String()) {
		case 0:
			s.backends = append(s.backends, b)
		case 1:
			s.draining = append(s.draining, b)
		}
	}
	set := &model.Set{Key: m.key(s.id), Backends: s.backends, Draining: s.draining}
	if len(s.backends) == 0 {
		set.Action = model.ActionReject
	}
	m.publish(s.id, set)
}

func (m *machine) key(id SetID) model.SetKey {
	k, _ := m.current.names[id].key()
	return k
}

// client draws one, and a Service that it talks to.
func (m *machine) client(t *rapid.T) (string, *published, talk) {
	s := m.services[rapid.IntRange(0, len(m.services)-1).Draw(t, "service")]
	port := uint16(rapid.IntRange(1, 4).Draw(t, "client"))
	k := talkTo(s.family, s.protocol, s.front, netip.AddrPort{}).from(port)
	return fmt.Sprint(k.client, s.front, s.protocol), s, k
}

// ask sends a packet of a client, the first or one amid a flow.
func (m *machine) ask(t *rapid.T) {
	name, s, k := m.client(t)
	flags := opening[s.protocol]
	if s.protocol == model.TCP {
		flags = rapid.SampledFrom([]uint8{packet.SYN, packet.SYN, packet.ACK, packet.ACK, packet.ACK | packet.FIN, packet.RST}).Draw(t, "flags")
	}
	p := k.there(flags, "question")
	e := m.flows[name]
	if e != nil && !m.goesOn(e, flags) {
		delete(m.flows, name)
		e = nil
	}
	o := m.in(m.eth0, p.Bytes())
	if e == nil {
		m.opens(name, s, k, p, o)
		return
	}
	if e.talk.isLocal() {
		o.becomes(e.talk.translated(p))
	} else {
		o.leaves(e.talk.translated(p))
	}
	e.note(flags, flowFinClient)
	if e.answered && (s.protocol == model.UDP || flags&(packet.SYN|packet.ACK|packet.RST) == packet.ACK) {
		e.confirmed = true
	}
}

// goesOn says whether a packet of the client goes on in the flow.
func (m *machine) goesOn(e *expected, flags uint8) bool {
	gone := !e.service.has(e.talk.back)
	if e.talk.protocol == model.UDP {
		return !gone
	}
	if flags&(packet.SYN|packet.ACK) != packet.SYN {
		return true
	}
	over := e.ended&flowReset != 0 || e.ended&flowEnded == flowEnded
	return !over && !gone
}

// opens expects that a packet opens a flow, or is answered where none can be.
func (m *machine) opens(name string, s *published, k talk, p packet.Packet, o outcome) {
	switch {
	case s.protocol == model.TCP && p.Flags == packet.RST:
		o.dropped()
		return
	case s.protocol == model.TCP && p.Flags != packet.SYN, len(s.backends) == 0:
		o.answered(closed(p))
		return
	case o.isAnswer():
		m.t.Errorf("%s is refused", p)
		return
	}
	k.source, k.back, k.ttl = o.packet().Source, o.packet().Target, o.packet().TTL
	if o.verdict == verdictNext {
		o.becomes(k.translated(p))
	} else {
		o.leaves(k.translated(p))
	}
	if !slices.ContainsFunc(s.backends, func(b model.Backend) bool { return b.AddrPort == k.back }) {
		m.t.Errorf("%s was sent to %s, which is none of %v", p, k.back, s.backends)
	}
	if !m.maySee(s, k) {
		m.t.Errorf("%s comes from %s to %s", p, k.source, k.back)
	}
	m.flows[name] = &expected{talk: k, service: s}
}

// maySee says whether a backend may see the client so: a local one by its own
// address and, unless another flow has that at the backend, its own port.
func (m *machine) maySee(s *published, k talk) bool {
	if s.family.pods.Contains(k.back.Addr()) {
		ports := m.cfg.Wire.SNATPorts
		return k.source.Addr() == s.family.second && ports.First <= k.source.Port() && k.source.Port() <= ports.Last
	}
	return k.source.Addr() == k.client.Addr() && (k.source.Port() == k.client.Port() || m.mayConflict(s, k))
}

// mayConflict says whether the client has a flow by another Service to a local
// backend of this one.
func (m *machine) mayConflict(s *published, k talk) bool {
	for _, e := range m.flows {
		if e.service != s && e.talk.protocol == k.protocol && e.talk.client == k.client &&
			slices.ContainsFunc(s.backends, func(b model.Backend) bool { return b.AddrPort == e.talk.back }) {
			return true
		}
	}
	return false
}

// tell sends a packet of a backend.
func (m *machine) tell(t *rapid.T) {
	name, s, _ := m.client(t)
	e := m.flows[name]
	if e == nil {
		return
	}
	flags := uint8(0)
	if s.protocol == model.TCP {
		flags = rapid.SampledFrom([]uint8{packet.SYN | packet.ACK, packet.SYN | packet.ACK, packet.ACK, packet.ACK | packet.FIN, packet.RST}).Draw(t, "flags")
	}
	m.reply(e.talk, flags, "answer")
	e.note(flags, flowFinServer)
	if s.protocol == model.UDP || flags == packet.SYN|packet.ACK {
		e.answered = true
	}
}

// note is what a packet of one side does to a TCP connection's end.
func (e *expected) note(flags, end uint8) {
	if e.talk.protocol == model.UDP {
		return
	}
	e.ended &^= flowReset
	if flags&packet.RST != 0 {
		e.ended |= flowReset
	}
	if flags&packet.FIN != 0 {
		e.ended |= end
	}
}

// check compares the maps with what is expected.
func (m *machine) check() {
	confirmed, embryos := m.confirmed(), m.flowsIn(mapEmbryos)
	for _, e := range m.flows {
		in := embryos
		if e.confirmed {
			in = confirmed
		}
		k := e.talk
		key := flowKey{
			Source: addressOf(k.client.Addr()), SourcePort: portOf(k.client.Port()),
			Target: addressOf(k.front.Addr()), TargetPort: portOf(k.front.Port()), Protocol: uint8(k.protocol),
		}
		there, ok := in[key]
		back, both := in[key.other(&there)]
		if !ok || !both || back.Flags != there.Flags|flowReply || key != key.other(&there).other(&back) {
			m.t.Errorf("of the flow %+v the elements are %+v, %v, and %+v, %v", e, there, ok, back, both)
			continue
		}
		if got := there.State & (flowEnded | flowReset); got != e.ended {
			m.t.Errorf("the flow %+v has come to %#x, want %#x", e, got, e.ended)
		}
		if netip.AddrPortFrom(there.Target.addr(), there.TargetPort.uint16()) != k.back {
			m.t.Errorf("the flow %+v leads to %s", e, there.Target.addr())
		}
	}
	if got, want := len(confirmed)+len(embryos), 2*len(m.flows); got != want {
		m.t.Errorf("%d elements, want %d of %d flows", got, want, len(m.flows))
	}
}

// expire makes all flows forgotten.
func (m *machine) expire() {
	m.forgetFlows()
	m.flows, m.began = map[string]*expected{}, time.Now()
}

// attentive is less than what it takes for flows to be over by themselves.
const attentive = 2 * time.Second

// witness keeps what is wrong for who asked.
type witness struct {
	testing.TB
	said []string
}

func (w *witness) Errorf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// TestPacketsDoAsTheModelSays runs any history of packets and publications.
// After each step both directions of each flow that there should be are there,
// lead to each other, and nothing else is.
func TestPacketsDoAsTheModelSays(t *testing.T) {
	m := newMachine(newNode(t))
	rapid.Check(t, func(rt *rapid.T) {
		w := &witness{TB: t}
		m.t = w
		m.reset()
		rt.Repeat(map[string]func(*rapid.T){
			"publish": m.republish,
			"ask":     m.ask,
			"tell":    m.tell,
			"expire":  func(*rapid.T) { m.expire() },
			"": func(rt *rapid.T) {
				if m.check(); len(w.said) > 0 {
					rt.Fatal(strings.Join(w.said, "\n"))
				}
				if time.Since(m.began) > attentive {
					m.expire()
				}
			},
		})
	})
}
