// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// world is what a writer is to make of the kernel. There are two, which differ
// in every way in which a set, a frontend, a device or a range can.
type world struct {
	name     string
	sizes    Sizes
	cidrs    []netip.Prefix
	device   string // that is served on the wire
	services []worldService
}

type worldService struct {
	set       *model.Set
	addresses []string
}

// The backends of worlds. Those of UDP have addresses of their own.
const (
	b1, b2, b3, b4 = "10.0.1.1:8080", "10.0.1.2:8080", "10.0.1.3:8080", "10.0.1.4:8080"
	u1, u2         = "10.0.2.1:8080", "10.0.2.2:8080"
	v1, v2         = "[fd00:1::1]:8080", "[fd00:1::2]:8080"
)

func worlds() (a, b world) {
	a = world{
		name: "a", sizes: smallSizes(), device: "eth0", cidrs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		services: []worldService{
			{forward(service("stays"), b1), []string{"10.96.0.1:80"}},
			{forward(service("moves"), b1, b2), []string{"10.96.0.2:80", "192.0.2.2:80"}},
			{forward(service("empties"), b2), []string{"10.96.0.3:80"}},
			{forward(service("fills")), []string{"10.96.0.4:80"}},
			{forward(service("goes"), b4), []string{"10.96.0.5:80", "10.96.0.15:80"}},
			{forward(service("gives"), b1), []string{"10.96.0.6:80", "192.0.2.6:80", "192.0.2.7:80"}},
			{forward(service("takes"), b2), []string{"10.96.0.7:80"}},
			{withRanges(forward(vip("ranged"), b3), "10.0.0.0/8", "172.16.0.0/12"), []string{"192.0.2.10:80"}},
			{forward(service("sticks"), b1, b2), []string{"10.96.0.11:80"}},
			{forward(service("hashes"), b1, b3), []string{"10.96.0.12:80"}},
			{of(model.UDP, forward(service("datagrams"), u1)), []string{"10.96.0.13:53"}},
			{six(forward(service("six"), v1)), []string{"[fd00:96::1]:80"}},
		},
	}
	sticks, hashes := forward(service("sticks"), b1, b2), forward(service("hashes"), b1, b2, b3)
	sticks.AffinitySeconds = 60
	hashes.Selection = model.SelectionMaglev
	moves := forward(service("moves"), b3)
	moves.Draining = backendsOf(b1, b2)
	b = world{
		name: "b", sizes: smallSizes(), device: "eth1",
		services: []worldService{
			{forward(service("stays"), b1), []string{"10.96.0.1:80"}},
			{moves, []string{"10.96.0.2:80", "192.0.2.2:80"}},
			{forward(service("empties")), []string{"10.96.0.3:80"}},
			{forward(service("fills"), b2), []string{"10.96.0.4:80"}},
			{forward(service("gives"), b1), []string{"10.96.0.6:80"}},
			{forward(service("takes"), b2), []string{"10.96.0.7:80", "192.0.2.6:80", "192.0.2.7:80"}},
			{forward(service("comes"), b3), []string{"10.96.0.8:80", "10.96.0.18:80"}},
			{forward(vip("ranged"), b3), []string{"192.0.2.10:80"}},
			{sticks, []string{"10.96.0.11:80"}},
			{hashes, []string{"10.96.0.12:80"}},
			{of(model.UDP, forward(service("datagrams"), u2)), []string{"10.96.0.13:53"}},
			{six(forward(service("six"), v2)), []string{"[fd00:96::1]:80"}},
		},
	}
	return a, b
}

func of(p model.Protocol, s *model.Set) *model.Set {
	s.Key.Protocol = p
	return s
}

func six(s *model.Set) *model.Set {
	s.Key.Family = model.IPv6
	return s
}

// nodeAddress is the node's own in all worlds.
const nodeAddress = "10.0.9.1"

// nobody is what a client hears that dials an address which no Service has, or
// nobody's in a range of ClusterIPs.
var nobody = []string{unix.ENETUNREACH.Error(), unix.EHOSTUNREACH.Error()}

// answers are what a client may hear at each address, as network/address.
func (w world) answers() map[string][]string {
	all := map[string][]string{}
	for _, s := range w.services {
		network := strings.ToLower(s.set.Key.Protocol.String())
		heard := []string{}
		for _, b := range s.set.Backends {
			heard = append(heard, b.AddrPort.String())
		}
		if len(heard) == 0 {
			heard = append(heard, unix.ECONNREFUSED.Error())
		}
		for _, a := range s.addresses {
			all[network+"/"+a] = heard
		}
	}
	return all
}

// mayHear says whether an answer fits one of the worlds. On the way from one to
// another, an address may be known as a ClusterIP's while it has no frontend yet,
// or has none any more; then it is refused (R38).
func mayHear(target, answer string, in ...world) bool {
	return slices.ContainsFunc(in, func(w world) bool {
		heard, ok := w.answers()[target]
		if ok {
			return slices.Contains(heard, answer)
		}
		return slices.Contains(nobody, answer) || len(in) > 1 && answer == unix.ECONNREFUSED.Error()
	})
}

// player makes worlds of a kernel, as the reconciler does.
type player struct {
	*Datapath
	sets      map[model.SetKey]SetID
	frontends []Frontend
}

// play makes all that a world has, and leaves what it has not.
func (p *player) play(w world) error {
	p.frontends = nil
	for _, s := range w.services {
		id, err := p.claim(s.set.Key)
		if err != nil {
			return err
		}
		if _, err := p.Publish(id, s.set); err != nil {
			return err
		}
		for _, a := range s.addresses {
			f := at(a, id)
			f.Key.Protocol = s.set.Key.Protocol
			p.frontends = append(p.frontends, f)
		}
	}
	return errors.Join(p.InsertFrontends(p.frontends)...)
}

func (p *player) claim(k model.SetKey) (SetID, error) {
	if id, ok := p.sets[k]; ok {
		return id, nil
	}
	owner, ok := p.ClaimOwner(k)
	if !ok {
		owner = p.NewOwner()
	}
	id, err := p.CreateSet(k, owner)
	if err != nil {
		return 0, err
	}
	p.sets[k] = id
	return id, nil
}

// start is what an agent does when it starts.
func (p *player) start(w world) error {
	node := []netip.Addr{netip.MustParseAddr(nodeAddress)}
	if err := errors.Join(p.SetNodeAddresses(node, node), p.play(w), p.serveOn(w)); err != nil {
		return err
	}
	if err := p.Attach(); err != nil {
		return err
	}
	_, err := p.Prune()
	return err
}

// change goes over to another world while everything is in force.
func (p *player) change(to world) error {
	before := p.frontends
	if err := p.play(to); err != nil {
		return err
	}
	gone := slices.DeleteFunc(before, func(f Frontend) bool {
		return slices.ContainsFunc(p.frontends, func(o Frontend) bool { return o.Key == f.Key })
	})
	if err := p.DeleteFrontends(gone); err != nil {
		return err
	}
	for k, id := range p.sets {
		if slices.ContainsFunc(to.services, func(s worldService) bool { return s.set.Key == k }) {
			continue
		}
		if err := p.ReleaseSet(id); err != nil {
			return err
		}
		delete(p.sets, k)
	}
	return p.serveOn(to)
}

func (p *player) serveOn(w world) error {
	device, err := net.InterfaceByName(w.device)
	if err != nil {
		return err
	}
	source := netip.AddrFrom4([4]byte{198, 51, 100, byte(device.Index)})
	return errors.Join(p.SetDevices([]Device{{Name: w.device, Index: device.Index, Source4: source}})...)
}
