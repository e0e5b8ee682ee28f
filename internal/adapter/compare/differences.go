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

// Kind is a way in which a dump differs from what should be.
type Kind int

// The kinds, the worst for who connects first.
const (
	Missing    Kind = iota // the address is not served
	Empty                  // it is, and leads nowhere
	Foreign                // it leads to another Service's backends
	Stale                  // it leads to who is a backend no more
	Incomplete             // some backends get nothing
	Unchosen               // it leads to endpoints that a policy or a hint does not give to this node
	Extra                  // nobody should be served at that address
)

// Lacks says that something is not in a dump, rather than there and wrong.
func (k Kind) Lacks() bool { return k == Missing || k == Empty || k == Incomplete }

// Difference is one of a dump from what should be, at one place.
type Difference struct {
	Kind Kind
	// Service may be unknown of a frontend that should not be.
	Service model.Name
	// At is the frontend, or "port http" of a table of backends.
	At string
	// Backends are those that are not there, or should not be. Of Missing and
	// Empty they are all that should.
	Backends []netip.AddrPort
	// Line is that of the frontend in the dump; 0 if it is not in it.
	Line int
}

// Differences are those of a dump that no state within the lag explains, in the
// order of Services, kinds and places. Notes say what was not compared.
func (x *Expected) Differences(d *adapter.Dump) (all []Difference, notes []string) {
	if d.HasPools {
		all = x.pools(d)
	} else {
		all, notes = x.frontends(d)
	}
	if d.Unread {
		// It may have stood in a line that could not be read.
		all = slices.DeleteFunc(all, func(a Difference) bool { return a.Kind.Lacks() })
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.At, b.At), cmp.Compare(a.Line, b.Line))
	})
	all = slices.CompactFunc(all, func(a, b Difference) bool {
		return a.Service == b.Service && a.Kind == b.Kind && a.At == b.At && slices.Equal(a.Backends, b.Backends)
	})
	return all, notes
}

func (x *Expected) frontends(d *adapter.Dump) (out []Difference, notes []string) {
	served := map[model.Spot]bool{}
	for i := range d.Frontends {
		fe := &d.Frontends[i]
		wants, shadowed := x.index.find(fe)
		for _, w := range wants {
			served[w.claim.Key.Spot()] = true
		}
		switch {
		case !isService(fe):
		case len(wants) == 0:
			out = append(out, x.extra(fe, shadowed)...)
		default:
			out = append(out, x.closest(fe, wants)...)
		}
	}
	lost, notes := x.missing(d, served)
	return append(out, lost...), notes
}

// isService says that a frontend is a Service's, and leads to its endpoints.
func isService(fe *adapter.Frontend) bool {
	other := []string{"HostPort", "LocalRedirect"}
	elsewhere := []string{"redirected", "l7-load-balancer", "shadowed", "unsupported"}
	return !slices.Contains(other, fe.Type) && !slices.ContainsFunc(fe.Flags, func(f string) bool { return slices.Contains(elsewhere, f) })
}

// missing are the frontends that should be and that a dump does not have.
// Cilium may leave whole kinds of addresses to kube-proxy.
func (x *Expected) missing(d *adapter.Dump, served map[model.Spot]bool) (out []Difference, notes []string) {
	kinds, left := map[model.FrontendType]bool{}, map[model.FrontendType]int{}
	for spot := range served {
		for _, w := range x.index.wants[spot] {
			kinds[w.claim.Type] = true
		}
	}
	for spot, wants := range x.index.wants {
		if served[spot] || !d.Tells(model.FamilyOf(spot.Address)) {
			continue
		}
		for _, w := range wants {
			must := x.expect(w).must
			if len(must) == 0 {
				continue
			}
			if !kinds[w.claim.Type] && w.claim.Type != model.TypeClusterIP && strings.HasPrefix(d.Source, "cilium") {
				left[w.claim.Type]++
				continue
			}
			out = append(out, Difference{Missing, w.row.Name, spot.String(), must, 0})
		}
	}
	for _, t := range slices.Sorted(maps.Keys(left)) {
		notes = append(notes, fmt.Sprintf("%s serves no %s at all, so another proxy is taken to: not compared", d.Source, t))
	}
	return out, notes
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
func (x *Expected) expect(w want) expectation {
	e := newExpectation(w.set())
	for _, before := range x.recent.places[w.claim.Key.Spot()] {
		if before.claim.Key == w.claim.Key {
			e.allow(before.set())
		}
	}
	for _, row := range x.recent.rows[w.row.Name] {
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
func (x *Expected) closest(fe *adapter.Frontend, wants []want) []Difference {
	var first []Difference
	for _, w := range wants {
		if fe.Scope != model.ScopeAll && w.claim.Key.Scope != model.ScopeAll && fe.Scope != w.claim.Key.Scope {
			continue
		}
		found := x.judge(fe, w)
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
func (x *Expected) judge(fe *adapter.Frontend, w want) []Difference {
	e := x.expect(w)
	have := inUse(fe.Backends)
	at := model.Spot{Address: fe.Address.Addr(), Port: fe.Address.Port(), Protocol: w.claim.Key.Protocol}.String()
	if len(have)+fe.More == 0 {
		if len(e.must) == 0 {
			return nil
		}
		return []Difference{{Empty, w.row.Name, at, e.must, fe.Line}}
	}
	by := map[Kind][]netip.AddrPort{}
	for _, b := range have {
		if !e.may[b.Address] && b.State != adapter.Retained && (b.State == adapter.Active || !e.draining[b.Address]) {
			k := x.surplus(w.row, b.Address)
			if k == Stale && b.State == adapter.Unknown && isListed(w.row, b.Address) {
				continue // the proxy knows it, and may well leave it alone
			}
			by[k] = append(by[k], b.Address)
		}
	}
	by[Incomplete] = lacking(e.must, have, fe.More)
	var out []Difference
	for _, k := range slices.Sorted(maps.Keys(by)) {
		if len(by[k]) > 0 {
			out = append(out, Difference{k, w.row.Name, at, by[k], fe.Line})
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
		case adapter.Active, adapter.Unknown, adapter.Retained:
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
func (x *Expected) surplus(row *tables.Service, address netip.AddrPort) Kind {
	if isEndpoint(row, address) {
		return Unchosen
	}
	another := slices.ContainsFunc(x.index.holders[address], func(name model.Name) bool { return name != row.Name })
	if _, lost := x.past.gone[backend{row.Name, address}]; !lost && another {
		return Foreign
	}
	return Stale
}

// isEndpoint says that an address is in the Service's slices, and usable.
func isEndpoint(row *tables.Service, address netip.AddrPort) bool {
	return inSlices(row, address, func(e *model.Endpoint) bool { return e.Ready || e.Serving })
}

// isListed says that an address is in the Service's slices.
func isListed(row *tables.Service, address netip.AddrPort) bool {
	return inSlices(row, address, func(*model.Endpoint) bool { return true })
}

func inSlices(row *tables.Service, address netip.AddrPort, is func(*model.Endpoint) bool) bool {
	for _, s := range row.Slices {
		if !slices.ContainsFunc(s.Ports, func(p model.EndpointPort) bool { return p.Port == address.Port() }) {
			continue
		}
		for i := range s.Endpoints {
			if is(&s.Endpoints[i]) && slices.Contains(s.Endpoints[i].Addresses, address.Addr()) {
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
func (x *Expected) extra(fe *adapter.Frontend, shadowed bool) []Difference {
	have := inUse(fe.Backends)
	if shadowed || len(have) == 0 || x.index.ignored[fe.Address.Addr()] || x.left(fe) {
		return nil
	}
	d := Difference{Kind: Extra, Service: fe.Service, At: fe.Address.String(), Line: fe.Line}
	if fe.Protocol != 0 {
		d.At += "/" + fe.Protocol.String()
	}
	for _, b := range have {
		d.Backends = append(d.Backends, b.Address)
	}
	if d.Service == (model.Name{}) {
		d.Service = x.past.holder(fe)
	}
	return []Difference{d}
}

// left says that a Service had the place of a frontend a moment ago.
func (x *Expected) left(fe *adapter.Frontend) bool {
	own, node := spots(fe)
	return slices.ContainsFunc(slices.Concat(own, node), func(spot model.Spot) bool { return len(x.recent.places[spot]) > 0 })
}
