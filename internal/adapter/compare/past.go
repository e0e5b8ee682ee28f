// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// past is what of the events is needed to explain a difference.
type past struct {
	// changed is the last event that changed what a Service asks for.
	changed map[model.Name]event
	// gone are backends that a Service lost, by the event, and places are
	// frontends that some Service lost.
	gone   map[backend]event
	places map[model.Spot]model.Name
	recent []event // the last ones, oldest first
	// last is the last event of each object of a Service.
	last map[object]event
}

type object struct {
	kind string // as in URLs
	name model.Name
}

// event is what a finding says of one.
type event struct {
	id               int64
	time             time.Time
	version, manager string
	object           string
	service          model.Name // whose object it is, if a Service's
}

type backend struct {
	service model.Name
	address netip.AddrPort
}

// The bounds of what is remembered.
const (
	maxRecent = 256
	maxGone   = 1 << 17
)

func newPast() past {
	return past{changed: map[model.Name]event{}, gone: map[backend]event{}, places: map[model.Spot]model.Name{}, last: map[object]event{}}
}

// note remembers a step, before the rows take it.
func (p *past) note(s *replay.Step) {
	owners := ownersOf(s.Changes)
	about := map[model.Name]event{}
	last := event{time: s.Time}
	for i := range s.Events {
		last = newEvent(&s.Events[i], owners)
		p.seen(&s.Events[i], last)
		if _, known := about[last.service]; !known {
			about[last.service] = last
		}
		if len(s.Events)-i <= maxRecent {
			p.recent = append(p.recent, last)
		}
	}
	if drop := len(p.recent) - maxRecent; drop > 0 {
		p.recent = slices.Delete(p.recent, 0, drop)
	}
	for i := range s.Changes {
		change := &s.Changes[i]
		cause, own := about[change.Service]
		switch {
		case own:
		case change.Before == nil:
			cause = p.birth(change.After, last)
		default:
			cause = last // another object's
		}
		p.change(change, cause)
	}
}

func (p *past) seen(e *journal.Event, as event) {
	if e.Kind.Resource == "services" || e.Kind.Resource == "endpointslices" {
		p.last[object{e.Kind.Resource, model.Name{Namespace: e.Namespace, Name: e.Name}}] = as
	}
}

// birth is the event that completed a Service whose row is made only now: rows
// wait until all kinds were listed.
func (p *past) birth(row *tables.Service, otherwise event) event {
	youngest, found := p.last[object{"services", row.Name}]
	for _, slice := range row.Slices {
		if e, known := p.last[object{"endpointslices", slice.Name}]; known && (!found || e.id > youngest.id) {
			youngest, found = e, true
		}
	}
	if !found {
		return otherwise
	}
	return youngest
}

func (p *past) change(change *replay.Change, e event) {
	if change.Before != nil && change.After != nil && change.Before.Changed.Equal(change.After.Changed) {
		return
	}
	p.changed[change.Service] = e
	after := backendsOf(change.After)
	for address := range after {
		delete(p.gone, backend{change.Service, address})
	}
	for address := range backendsOf(change.Before) {
		if !after[address] {
			remember(p.gone, backend{change.Service, address}, e)
		}
	}
	for _, spot := range placesOf(change.After) {
		delete(p.places, spot)
	}
	if change.After == nil || change.Before != nil && len(change.Before.Own.Claims) > len(change.After.Own.Claims) {
		for _, spot := range placesOf(change.Before) {
			if !slices.Contains(placesOf(change.After), spot) {
				remember(p.places, spot, change.Service)
			}
		}
	}
}

// remember forgets all when there is too much of it: what is long gone explains
// little.
func remember[K comparable, V any](all map[K]V, key K, value V) {
	if len(all) >= maxGone {
		clear(all)
	}
	all[key] = value
}

func placesOf(row *tables.Service) []model.Spot {
	if row == nil {
		return nil
	}
	return slices.Collect(row.Own.Spots())
}

// ownersOf are the Services whose slices stand in rows that changed, by slice.
func ownersOf(changes []replay.Change) map[model.Name]model.Name {
	owners := map[model.Name]model.Name{}
	for i := range changes {
		for _, row := range []*tables.Service{changes[i].Before, changes[i].After} {
			if row == nil {
				continue
			}
			for _, slice := range row.Slices {
				owners[slice.Name] = changes[i].Service
			}
		}
	}
	return owners
}

// newEvent takes what is said of an event. A slice belongs to the Service in
// whose row it stands.
func newEvent(e *journal.Event, owners map[model.Name]model.Name) event {
	name := model.Name{Namespace: e.Namespace, Name: e.Name}
	out := event{e.ID, e.Time, e.ResourceVersion, e.Manager, e.Kind.Kind + " " + e.Name, model.Name{}}
	if e.Namespace != "" {
		out.object = e.Kind.Kind + " " + name.String()
	}
	switch e.Kind.Resource {
	case "services":
		out.service = name
	case "endpointslices":
		out.service = owners[name]
	}
	return out
}

// holder is the Service that had the place of a frontend, as far as is
// remembered.
func (p *past) holder(fe *adapter.Frontend) model.Name {
	own, node := spots(fe)
	for _, spot := range slices.Concat(own, node) {
		if service, found := p.places[spot]; found {
			return service
		}
	}
	return model.Name{}
}

// between are the events after one moment and up to another that are about a
// Service, or about one that shares a backend with it: with those a proxy may
// have mixed it up.
func (p *past) between(from, to time.Time, service model.Name, related func(model.Name) bool) []event {
	var out []event
	for _, e := range p.recent {
		if e.time.After(from) && !e.time.After(to) && (e.service == service || related(e.service)) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b event) int { return cmp.Compare(a.id, b.id) })
	return out
}
