// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// The sentences of findings. They are for people, and may change.

const (
	fewPlaces   = 6
	fewBackends = 5
	fewEvents   = 4
)

// finding puts what a dump has of one kind about a Service into words. Its event
// is the last one that changed what the Service asks for.
func (c *Comparison) finding(key subject, at time.Time, all []Difference) replay.Finding {
	e, known := c.past.changed[key.service]
	places, backends := gather(all)
	detail := "no dump of this kind is older"
	if last, found := c.source[key.source]; found {
		detail = fmt.Sprintf("it was right %s before, at %s", replay.DurationText(at.Sub(last)), stamp(last))
	}
	if known && key.kind != Extra {
		detail += "; its own objects ask for the same since " + e.text()
	}
	detail += c.meanwhile(key, at, backends)
	f := replay.Finding{Invariant: replay.ImplDiffers, Time: at.UTC(), Text: key.source + ": " + c.verdict(key, places, backends), Detail: detail}
	if key.service != (model.Name{}) {
		f.Service = key.service.String()
	}
	if known {
		f.Event, f.ResourceVersion, f.Manager, f.Object = e.id, e.version, e.manager, e.object
	}
	return f
}

// gather lists the places and the backends of differences once each.
func gather(all []Difference) (places []string, backends []netip.AddrPort) {
	for _, d := range all {
		places = append(places, d.At)
		backends = append(backends, d.Backends...)
	}
	slices.Sort(places)
	slices.SortFunc(backends, model.CompareAddrPort)
	return slices.Compact(places), slices.Compact(backends)
}

func (c *Comparison) verdict(key subject, places []string, backends []netip.AddrPort) string {
	at, who := list(places, fewPlaces), list(texts(backends), fewBackends)
	is, has, leads, lacks := "is", "has", "leads", "lacks"
	if len(places) > 1 {
		is, has, leads, lacks = "are", "have", "lead", "lack"
	}
	switch key.kind {
	case Missing:
		return fmt.Sprintf("%s %s not served, where the objects give %s", at, is, who)
	case Empty:
		return fmt.Sprintf("%s %s no backends, where the objects give %s", at, has, who)
	case Foreign:
		return fmt.Sprintf("%s %s to %s, which the objects give to %s only", at, leads, who, c.holdersOf(backends))
	case Stale:
		return fmt.Sprintf("%s %s to %s, which the objects do not give to it%s", at, leads, who, c.since(key.service, backends))
	case Incomplete:
		return fmt.Sprintf("%s %s %s", at, lacks, who)
	case Unchosen:
		return fmt.Sprintf("%s %s to %s, endpoints that policy or hints do not give to this node", at, leads, who)
	}
	return fmt.Sprintf("%s %s to %s, where the objects have no such address", at, leads, who)
}

func (c *Comparison) holdersOf(backends []netip.AddrPort) string {
	var names []string
	for _, b := range backends {
		for _, name := range c.index.holders[b] {
			names = append(names, name.String())
		}
	}
	slices.Sort(names)
	return list(slices.Compact(names), fewBackends)
}

// since says when the backends went, if that is known.
func (c *Comparison) since(service model.Name, backends []netip.AddrPort) string {
	for _, b := range backends {
		if e, known := c.past.gone[backend{service, b}]; known {
			return " since " + e.text()
		}
	}
	return ""
}

// meanwhile names what the journal has between the last dump that was right
// and this one.
func (c *Comparison) meanwhile(key subject, at time.Time, backends []netip.AddrPort) string {
	last, found := c.source[key.source]
	if !found {
		return ""
	}
	events := c.past.between(last.Add(-c.lag), at, key.service, func(name model.Name) bool { return c.shares(name, backends) })
	if len(events) == 0 {
		return ""
	}
	var texts []string
	for _, e := range events {
		texts = append(texts, e.text())
	}
	if more := len(texts) - fewEvents; more > 0 {
		texts = append([]string{fmt.Sprintf("%d others", more)}, texts[more:]...)
	}
	return "; meanwhile the journal has, about it or Services with the same backends, " + strings.Join(texts, ", ")
}

// shares says that a Service has, or had, one of the backends.
func (c *Comparison) shares(name model.Name, backends []netip.AddrPort) bool {
	has := backendsOf(c.rows[name])
	return slices.ContainsFunc(backends, func(b netip.AddrPort) bool {
		_, had := c.past.gone[backend{name, b}]
		return has[b] || had
	})
}

func (e event) text() string {
	if e.id == 0 {
		return stamp(e.time)
	}
	by := ""
	if e.manager != "" {
		by = " by " + e.manager
	}
	return fmt.Sprintf("event %d (%s%s, %s)", e.id, e.object, by, stamp(e.time))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func texts(all []netip.AddrPort) []string {
	out := make([]string, len(all))
	for i, a := range all {
		out[i] = a.String()
	}
	return out
}

func list(all []string, few int) string {
	if more := len(all) - few; more > 0 {
		all = append(slices.Clone(all[:few]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
