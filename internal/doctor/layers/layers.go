// SPDX-License-Identifier: Apache-2.0

// Package layers finds, for each Service on each node, the first layer at which
// what is served parts from what should be: from the API to the agent's
// backends, to its frontends, to the kernel.
//
// What should be is for package model to say, and what a difference is for
// package compare. Here it is decided what of it may be held against whom; the
// checks of Services put that into words. What is not known never counts.
package layers

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Parting is where what is served of a Service parts from what should be, on
// one node.
type Parting struct {
	Sample *facts.Sample
	Node   *facts.Node
	Plane  facts.DataPlane
	Kind   compare.Kind
	// Service is zero if the frontend is of none that is known, or if All.
	Service model.Name
	// All are the Services, if it is so with each that should be served.
	All []model.Name
	// Seen are the tables that show it, from the first layer on; Right are those
	// that could, and do not.
	Seen  []Seen
	Right []*facts.Dump
	// Recent is that the Service changed just before.
	Recent bool
	// Expected is what the objects ask for; nil: they are not known, and layers
	// were compared with each other.
	Expected *compare.Expected
	// Believed is the agent's table that a kernel was compared with, if so.
	Believed *facts.Dump
}

// Seen is a table and how it differs.
type Seen struct {
	Dump        *facts.Dump
	Differences []compare.Difference
}

// In returns the partings of a sample. They must not be changed.
func In(s *facts.Sample) []Parting { return facts.Derived(s, find).all }

type found struct{ all []Parting }

func find(s *facts.Sample) found {
	var out found
	changed, skew := changes(s.Objects), s.Objects.Skew()
	for _, n := range s.Nodes {
		for _, plane := range planes(n) {
			f := finder{sample: s, node: n, plane: plane, changed: changed, skew: skew, dumps: dumpsOf(n, plane)}
			out.all = append(out.all, f.find()...)
		}
	}
	return out
}

// planes are the data planes of a node that have tables. Rules that a kube-proxy
// left behind, on a node that another one serves, are nobody's.
func planes(n *facts.Node) []facts.DataPlane {
	all := map[facts.DataPlane]bool{}
	for i := range n.Dumps {
		if n.Dumps[i].Silent == "" {
			all[n.Dumps[i].DataPlane] = true
		}
	}
	if len(all) > 1 && n.KubeProxy == nil {
		delete(all, facts.PlaneKubeProxy)
	}
	return slices.Sorted(maps.Keys(all))
}

// dumpsOf are the tables of a data plane that tell something, from its first
// layer to the kernel.
func dumpsOf(n *facts.Node, plane facts.DataPlane) []*facts.Dump {
	var out []*facts.Dump
	for i := range n.Dumps {
		if d := &n.Dumps[i]; d.DataPlane == plane && d.Silent == "" {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(a, b *facts.Dump) int { return cmp.Compare(a.Layer, b.Layer) })
	return out
}

// finder looks at one data plane on one node.
type finder struct {
	sample   *facts.Sample
	node     *facts.Node
	plane    facts.DataPlane
	dumps    []*facts.Dump
	changed  history
	skew     time.Duration // of the cluster's clock to the collector's
	world    *facts.World
	expected *compare.Expected
	design   design
	all      []Parting
	open     map[family][]int // partings by Service, in all
}

// family is what one layer passes on to the next: what it lacks, the next one
// lacks, and what it has too much.
type family struct {
	service model.Name
	lacks   bool
}

func (f *finder) find() []Parting {
	f.open = map[family][]int{}
	f.world = f.sample.Known(f.node.Name, f.plane)
	if f.world == nil || len(f.world.Services) == 0 {
		return f.between()
	}
	f.expected = compare.Against(f.world.Services, f.world.Slices, &f.world.Node, &f.world.Options)
	f.design = designOf(f.plane, f.dumps)
	for _, d := range f.dumps {
		differences, _ := f.expected.Differences(&d.Dump)
		differences = slices.DeleteFunc(differences, func(a compare.Difference) bool { return f.excused(d, &a) })
		f.take(d, differences)
	}
	return f.finish()
}

// between compares the layers with each other: what the API has is not known.
func (f *finder) between() []Parting {
	for i, earlier := range f.dumps {
		if earlier.Layer == facts.Kernel {
			break
		}
		for _, later := range f.dumps[i+1:] {
			if later.Layer != earlier.Layer+1 {
				continue
			}
			shows := later
			if earlier.HasPools {
				shows = earlier
			}
			known := len(f.all)
			f.take(shows, compare.Between(&earlier.Dump, &later.Dump))
			for j := known; j < len(f.all); j++ {
				f.all[j].Believed = earlier
			}
		}
	}
	return f.finish()
}

// take adds a table's differences, in the order of Services and kinds. What an
// earlier layer lacks already, or has already, is that layer's.
func (f *finder) take(d *facts.Dump, all []compare.Difference) {
	for begin := 0; begin < len(all); {
		end := begin + 1
		for end < len(all) && all[end].Service == all[begin].Service && all[end].Kind == all[begin].Kind {
			end++
		}
		f.takeKind(d, all[begin:end])
		begin = end
	}
}

func (f *finder) takeKind(d *facts.Dump, all []compare.Difference) {
	if all[0].Kind == compare.Extra {
		all = f.unexplained(d, all)
	}
	if len(all) == 0 {
		return
	}
	key := family{all[0].Service, all[0].Kind.Lacks()}
	for _, i := range f.open[key] {
		if p := &f.all[i]; p.explains(all) {
			p.Seen = append(p.Seen, Seen{d, all})
			return
		}
	}
	f.open[key] = append(f.open[key], len(f.all))
	f.all = append(f.all, Parting{
		Sample: f.sample, Node: f.node, Plane: f.plane, Kind: all[0].Kind, Service: all[0].Service,
		Seen: []Seen{{d, all}}, Expected: f.expected, Recent: f.recent(d, all[0].Service),
	})
}

// unexplained are the frontends of nobody that no earlier table has: a kernel's
// may not say whose they were.
func (f *finder) unexplained(d *facts.Dump, all []compare.Difference) []compare.Difference {
	return slices.DeleteFunc(slices.Clone(all), func(a compare.Difference) bool {
		for i := range f.all {
			p := &f.all[i]
			if p.Kind != compare.Extra || p.Seen[0].Dump == d || !p.Seen[0].places()[a.At] {
				continue
			}
			if last := &p.Seen[len(p.Seen)-1]; last.Dump == d {
				last.Differences = append(last.Differences, a)
			} else {
				p.Seen = append(p.Seen, Seen{d, []compare.Difference{a}})
			}
			return true
		}
		return false
	})
}

// explains says whether a table shows only what an earlier one has shown.
func (p *Parting) explains(all []compare.Difference) bool {
	if p.Kind == compare.Extra || all[0].Kind == compare.Extra {
		return false
	}
	backends := p.Seen[0].backends()
	for _, d := range all {
		if slices.ContainsFunc(d.Backends, func(b netip.AddrPort) bool { return !slices.Contains(backends, b) }) {
			return false
		}
	}
	return true
}

// few is how many Services a table may lack before it is said at once.
const few = 3

// join makes one parting of those of a table that has none of the Services that
// it should have.
func (f *finder) join() {
	type key struct {
		dump *facts.Dump
		kind compare.Kind
	}
	groups := map[key][]int{}
	for i := range f.all {
		p := &f.all[i]
		if p.Kind == compare.Missing || p.Kind == compare.Empty {
			k := key{p.Seen[0].Dump, p.Kind}
			groups[k] = append(groups[k], i)
		}
	}
	joined := map[int]bool{}
	for k, group := range groups {
		if len(group) <= few || len(group) < f.served(k.dump) {
			continue
		}
		first := &f.all[group[0]]
		first.All = []model.Name{first.Service}
		for _, i := range group[1:] {
			first.add(&f.all[i])
			joined[i] = true
		}
		first.Service = model.Name{}
	}
	kept := f.all[:0]
	for i, p := range f.all {
		if !joined[i] {
			kept = append(kept, p)
		}
	}
	f.all = kept
}

// served is how many Services a table should have backends of.
func (f *finder) served(d *facts.Dump) int {
	n := 0
	for _, s := range f.world.Services {
		if slices.ContainsFunc(f.expected.Row(s.Name).Own.Sets, func(set model.Set) bool { return len(set.Backends) > 0 && d.Tells(set.Key.Family) }) {
			n++
		}
	}
	return n
}

// add takes over what another parting of the same tables shows.
func (p *Parting) add(o *Parting) {
	p.All, p.Recent = append(p.All, o.Service), p.Recent && o.Recent
	for _, seen := range o.Seen {
		i := slices.IndexFunc(p.Seen, func(s Seen) bool { return s.Dump == seen.Dump })
		if i < 0 {
			p.Seen = append(p.Seen, seen)
			continue
		}
		p.Seen[i].Differences = slices.Concat(p.Seen[i].Differences, seen.Differences)
	}
}

// finish notes which tables do not show what others do.
func (f *finder) finish() []Parting {
	if f.expected != nil {
		f.join()
	}
	for i := range f.all {
		p := &f.all[i]
		for _, d := range f.dumps {
			if d.Layer >= p.Seen[0].Dump.Layer && !p.seenIn(d) && p.couldShow(d) {
				p.Right = append(p.Right, d)
			}
		}
	}
	return f.all
}

func (p *Parting) seenIn(d *facts.Dump) bool {
	return slices.ContainsFunc(p.Seen, func(s Seen) bool { return s.Dump == d })
}

// couldShow says whether a table would tell if it were wrong, too.
func (p *Parting) couldShow(d *facts.Dump) bool {
	if p.Kind.Lacks() && d.Unread {
		return false
	}
	return slices.ContainsFunc(p.Backends(), func(b netip.AddrPort) bool { return d.Tells(model.FamilyOf(b.Addr())) })
}

// Layer is the first one that is wrong.
func (p *Parting) Layer() doctor.Layer {
	if p.Seen[0].Dump.Layer == facts.Kernel {
		return doctor.LayerKernel
	}
	return doctor.LayerAgent
}

// InForce says whether connections meet it: the kernel shows it, or was not
// read.
func (p *Parting) InForce() bool {
	return !slices.ContainsFunc(p.Right, func(d *facts.Dump) bool { return d.Layer == facts.Kernel })
}

// Backends are those that the first table lacks, or has too much.
func (p *Parting) Backends() []netip.AddrPort { return p.Seen[0].backends() }

// Places are the frontends at which the last table shows it.
func (p *Parting) Places() []string {
	return slices.Sorted(maps.Keys(p.Seen[len(p.Seen)-1].places()))
}

func (s *Seen) backends() []netip.AddrPort {
	var out []netip.AddrPort
	for _, d := range s.Differences {
		out = append(out, d.Backends...)
	}
	slices.SortFunc(out, model.CompareAddrPort)
	return slices.Compact(out)
}

func (s *Seen) places() map[string]bool {
	out := map[string]bool{}
	for _, d := range s.Differences {
		out[d.At] = true
	}
	return out
}
