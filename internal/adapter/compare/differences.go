// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// kind is a way in which a dump differs from what should be.
type kind int

// The kinds, the worst for who connects first.
const (
	missing    kind = iota // the address is not served
	empty                  // it is, and leads nowhere
	foreign                // it leads to another Service's backends
	stale                  // it leads to who is a backend no more
	incomplete             // some backends get nothing
	unchosen               // it leads to endpoints that a policy or a hint does not give to this node
	extra                  // nobody should be served at that address
)

// difference is one of them at one place.
type difference struct {
	kind     kind
	service  model.Name
	at       string // the frontend, or "port http" of a table of backends
	backends []netip.AddrPort
}

// lacks says that something is not in a dump, rather than there and wrong.
func (d difference) lacks() bool { return d.kind == missing || d.kind == empty || d.kind == incomplete }

// differences are those that no state within the lag explains.
func (c *Comparison) differences(d *adapter.Dump) []difference {
	var out []difference
	if d.HasPools {
		out = c.pools(d)
	} else {
		out = c.frontends(d)
	}
	if d.Unread {
		out = slices.DeleteFunc(out, difference.lacks) // it may have stood in a line that could not be read
	}
	slices.SortFunc(out, func(a, b difference) int {
		return cmp.Or(a.service.Compare(b.service), cmp.Compare(a.kind, b.kind), cmp.Compare(a.at, b.at))
	})
	return slices.CompactFunc(out, func(a, b difference) bool {
		return a.service == b.service && a.kind == b.kind && a.at == b.at && slices.Equal(a.backends, b.backends)
	})
}

func (c *Comparison) frontends(d *adapter.Dump) []difference {
	var out []difference
	served := map[model.Spot]bool{}
	for i := range d.Frontends {
		fe := &d.Frontends[i]
		wants, shadowed := c.index.find(fe)
		for _, w := range wants {
			served[w.claim.Key.Spot()] = true
		}
		switch {
		case !isService(fe):
		case len(wants) == 0:
			out = append(out, c.extra(fe, shadowed)...)
		default:
			out = append(out, c.closest(fe, wants)...)
		}
	}
	return append(out, c.missing(d, served)...)
}

// isService says that a frontend is a Service's, and leads to its endpoints.
func isService(fe *adapter.Frontend) bool {
	other := []string{"HostPort", "LocalRedirect"}
	elsewhere := []string{"redirected", "l7-load-balancer"}
	return !slices.Contains(other, fe.Type) && !slices.ContainsFunc(fe.Flags, func(f string) bool { return slices.Contains(elsewhere, f) })
}

// missing are the frontends that should be and that a dump does not have.
// Cilium may leave whole kinds of addresses to kube-proxy.
func (c *Comparison) missing(d *adapter.Dump, served map[model.Spot]bool) []difference {
	var out []difference
	kinds, left := map[model.FrontendType]bool{}, map[model.FrontendType]int{}
	for spot := range served {
		for _, w := range c.index.wants[spot] {
			kinds[w.claim.Type] = true
		}
	}
	for spot, wants := range c.index.wants {
		if served[spot] || !d.Tells(model.FamilyOf(spot.Address)) {
			continue
		}
		for _, w := range wants {
			must := c.expect(w).must
			if len(must) == 0 {
				continue
			}
			if !kinds[w.claim.Type] && w.claim.Type != model.TypeClusterIP && strings.HasPrefix(d.Source, "cilium") {
				left[w.claim.Type]++
				continue
			}
			out = append(out, difference{missing, w.row.Name, spot.String(), must})
		}
	}
	for _, t := range slices.Sorted(maps.Keys(left)) {
		c.warn(fmt.Sprintf("%s serves no %s at all, so another proxy is taken to: not compared", d.Source, t))
	}
	return out
}

// expectation is what holds by every state within the lag: who must be behind a
// frontend, and who may be.
type expectation struct {
	must     []netip.AddrPort // in order
	may      map[netip.AddrPort]bool
	draining map[netip.AddrPort]bool
}

func newExpectation(set *model.Set) expectation {
	e := expectation{addresses(set.Backends), map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}}
	e.allow(set)
	return e
}

func (e *expectation) allow(set *model.Set) {
	for _, b := range set.Backends {
		e.may[b.AddrPort] = true
	}
	for _, b := range set.Draining {
		e.draining[b.AddrPort] = true
	}
}

// expect joins a row with those that it took the place of a moment ago.
func (c *Comparison) expect(w want) expectation {
	e := newExpectation(w.set())
	for _, before := range c.recent.places[w.claim.Key.Spot()] {
		if before.claim.Key == w.claim.Key {
			e.allow(before.set())
		}
	}
	for _, row := range c.recent.rows[w.row.Name] {
		before, had := claimOf(row, w.claim.Key)
		e.must = slices.DeleteFunc(e.must, func(a netip.AddrPort) bool {
			return !had || !slices.ContainsFunc(before.set().Backends, func(b model.Backend) bool { return b.AddrPort == a })
		})
	}
	return e
}

// claimOf is what a row had at a key.
func claimOf(row *tables.Service, key model.FrontendKey) (want, bool) {
	if row == nil {
		return want{}, false
	}
	i := slices.IndexFunc(row.Compiled.Claims, func(c model.Claim) bool { return c.Key == key && c.Shadowed == "" })
	if i < 0 {
		return want{}, false
	}
	return want{row, &row.Compiled.Claims[i]}, true
}

// closest compares a frontend with the rows that it may be, and returns nothing
// if it is as one of them: a dump may not part traffic from inside from that
// from outside, or protocols.
func (c *Comparison) closest(fe *adapter.Frontend, wants []want) []difference {
	var first []difference
	for _, w := range wants {
		if fe.Scope != model.ScopeAll && w.claim.Key.Scope != model.ScopeAll && fe.Scope != w.claim.Key.Scope {
			continue
		}
		found := c.judge(fe, w)
		if len(found) == 0 {
			return nil
		}
		if first == nil {
			first = found
		}
	}
	return first
}

// judge says how a frontend differs from one that should be.
func (c *Comparison) judge(fe *adapter.Frontend, w want) []difference {
	e := c.expect(w)
	have := inUse(fe.Backends)
	at := model.Spot{Address: fe.Address.Addr(), Port: fe.Address.Port(), Protocol: w.claim.Key.Protocol}.String()
	if len(have)+fe.More == 0 {
		if len(e.must) == 0 {
			return nil
		}
		return []difference{{empty, w.row.Name, at, e.must}}
	}
	by := map[kind][]netip.AddrPort{}
	for _, b := range have {
		if !e.may[b.Address] && (b.State == adapter.Active || !e.draining[b.Address]) {
			k := c.surplus(w.row, b.Address)
			by[k] = append(by[k], b.Address)
		}
	}
	by[incomplete] = lacking(e.must, have, fe.More)
	var out []difference
	for _, k := range slices.Sorted(maps.Keys(by)) {
		if len(by[k]) > 0 {
			out = append(out, difference{k, w.row.Name, at, by[k]})
		}
	}
	return out
}

// lacking are those who must be and are not. Where a dump only counts some, it
// is all or nobody.
func lacking(must []netip.AddrPort, have []adapter.Backend, more int) []netip.AddrPort {
	if more > 0 {
		if len(have)+more >= len(must) {
			return nil
		}
		return must
	}
	var out []netip.AddrPort
	for _, a := range must {
		if !slices.ContainsFunc(have, func(b adapter.Backend) bool { return b.Address == a }) {
			out = append(out, a)
		}
	}
	return out
}

// inUse are the backends that get new connections. Those that end do if nobody
// else is left (R7).
func inUse(all []adapter.Backend) []adapter.Backend {
	var active, terminating []adapter.Backend
	for _, b := range all {
		switch b.State {
		case adapter.Active, adapter.Unknown:
			active = append(active, b)
		case adapter.Terminating:
			terminating = append(terminating, b)
		}
	}
	if len(active) > 0 {
		return active
	}
	return terminating
}

// surplus says what a backend is that a Service should not have here.
func (c *Comparison) surplus(row *tables.Service, address netip.AddrPort) kind {
	if isEndpoint(row, address) {
		return unchosen
	}
	if _, lost := c.past.gone[backend{row.Name, address}]; !lost && len(c.index.holders[address]) > 0 {
		return foreign
	}
	return stale
}

// isEndpoint says that an address is in the Service's slices, and usable.
func isEndpoint(row *tables.Service, address netip.AddrPort) bool {
	for _, s := range row.Slices {
		if !slices.ContainsFunc(s.Ports, func(p model.EndpointPort) bool { return p.Port == address.Port() }) {
			continue
		}
		for _, e := range s.Endpoints {
			if (e.Ready || e.Serving) && slices.Contains(e.Addresses, address.Addr()) {
				return true
			}
		}
	}
	return false
}

func addresses(all []model.Backend) []netip.AddrPort {
	out := make([]netip.AddrPort, len(all))
	for i, b := range all {
		out[i] = b.AddrPort
	}
	return out
}

// extra is a frontend at an address at which nobody should be served.
func (c *Comparison) extra(fe *adapter.Frontend, shadowed bool) []difference {
	have := inUse(fe.Backends)
	if shadowed || len(have) == 0 || c.index.ignored[fe.Address.Addr()] || c.left(fe) {
		return nil
	}
	d := difference{kind: extra, service: fe.Service, at: fe.Address.String()}
	if fe.Protocol != 0 {
		d.at += "/" + fe.Protocol.String()
	}
	for _, b := range have {
		d.backends = append(d.backends, b.Address)
	}
	if d.service == (model.Name{}) {
		d.service = c.past.holder(fe)
	}
	return []difference{d}
}

// left says that a Service had the place of a frontend a moment ago.
func (c *Comparison) left(fe *adapter.Frontend) bool {
	own, node := spots(fe)
	return slices.ContainsFunc(slices.Concat(own, node), func(spot model.Spot) bool { return len(c.recent.places[spot]) > 0 })
}
