// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/model"
)

// lag is how long a proxy may take to follow a change.
const lag = 5 * time.Second

// excused says that a difference may be as it should be, for all that is known.
// It takes out of it what alone may be.
func (f *finder) excused(d *facts.Dump, a *compare.Difference) bool {
	gone := a.Kind == compare.Missing || a.Kind == compare.Empty
	strange := a.Kind == compare.Stale || a.Kind == compare.Foreign // no endpoint of the Service at all
	switch {
	case !f.complete() && !gone:
		return true // others may have it
	case a.Kind == compare.Extra:
		return f.excusedExtra(a)
	case f.world.Unsure[a.Service] != "" && !gone && !(f.world.Choice[a.Service] && strange):
		return true
	case a.Kind == compare.Unchosen && f.node.Name == "":
		return true // which endpoints are local is not known
	case f.plane == facts.PlaneCilium && f.hasOwnRules(a.Service):
		return true
	case f.plane == facts.PlaneFairlead:
		return f.excusedByDesign(d, a)
	}
	return false
}

// recent says that a Service changed so shortly before a table was read that the
// proxy may not have followed. Objects have the cluster's time, tables that of who
// collected them.
func (f *finder) recent(d *facts.Dump, service model.Name) bool {
	return !d.Time.IsZero() && f.changed[service].After(d.Time.Add(f.skew-lag))
}

// complete says that what is not among the objects is not there.
func (f *finder) complete() bool {
	return f.sample.Objects.Complete("services") && f.sample.Objects.Complete("endpointslices.discovery.k8s.io")
}

// excusedExtra: the frontend of nobody may be that of a Service that cannot be
// read. Names of Services in other clusters are not read either.
func (f *finder) excusedExtra(a *compare.Difference) bool {
	for name := range f.world.Unsure {
		if f.expected.Row(name) == nil && (a.Service == name || a.Service == (model.Name{})) {
			return true
		}
	}
	return false
}

// ciliumPrefixes begin annotations by which Cilium serves a Service by rules of
// its own: on some nodes, with some types, with backends of other clusters.
var ciliumPrefixes = []string{"service.cilium.io/", "io.cilium/"}

func (f *finder) hasOwnRules(name model.Name) bool {
	service := facts.Find[corev1.Service](f.sample.Objects, name.String())
	if service == nil {
		return false
	}
	for key := range service.Annotations {
		if slices.ContainsFunc(ciliumPrefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			return true
		}
	}
	return false
}

// excusedByDesign: Fairlead keeps the backends of emptied Services in front of
// the API server, and does not serve all that is asked for. Where its agent
// does not say what it does, this may be it.
func (f *finder) excusedByDesign(d *facts.Dump, a *compare.Difference) bool {
	switch {
	case d.Layer != facts.Kernel:
		return false
	case a.Kind == compare.Missing && f.design.told:
		return f.design.unserved[a.At]
	case a.Kind == compare.Missing:
		return strings.HasSuffix(a.At, "/"+model.SCTP.String())
	case a.Kind == compare.Stale && f.design.told:
		a.Backends = slices.DeleteFunc(slices.Clone(a.Backends), func(b netip.AddrPort) bool { return f.design.retained[b] })
		return len(a.Backends) == 0
	case a.Kind == compare.Stale || a.Kind == compare.Foreign:
		return !f.design.told && f.isEmpty(a.Service)
	}
	return false
}

// isEmpty says that the API has no backend of a Service.
func (f *finder) isEmpty(name model.Name) bool {
	row := f.expected.Row(name)
	return row == nil || !slices.ContainsFunc(row.Own.Sets, func(s model.Set) bool { return len(s.Backends) > 0 })
}

// design is what a data plane does on purpose, by its agent's words.
type design struct {
	told     bool                    // by its agent
	retained map[netip.AddrPort]bool // backends that it keeps though the API has them no more
	unserved map[string]bool         // frontends that it does not serve
}

func designOf(plane facts.DataPlane, dumps []*facts.Dump) design {
	out := design{retained: map[netip.AddrPort]bool{}, unserved: map[string]bool{}}
	if plane != facts.PlaneFairlead {
		return out
	}
	for _, d := range dumps {
		if d.Layer != facts.Frontends {
			continue
		}
		out.told = true
		for i := range d.Frontends {
			out.note(&d.Frontends[i])
		}
	}
	return out
}

func (d *design) note(fe *adapter.Frontend) {
	if slices.Contains(fe.Flags, "shadowed") || slices.Contains(fe.Flags, "unsupported") {
		d.unserved[model.Spot{Address: fe.Address.Addr(), Port: fe.Address.Port(), Protocol: fe.Protocol}.String()] = true
	}
	for _, b := range fe.Backends {
		if b.State == adapter.Retained {
			d.retained[b.Address] = true
		}
	}
}

// history is when a Service or one of its slices was changed last, as far as
// the objects tell.
type history map[model.Name]time.Time

func changes(o *facts.Objects) history {
	out := history{}
	if o == nil {
		return out
	}
	for _, s := range o.Services {
		out.note(model.Name{Namespace: s.Namespace, Name: s.Name}, &s.ObjectMeta)
	}
	for _, s := range o.EndpointSlices {
		out.note(model.Name{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}, &s.ObjectMeta)
	}
	return out
}

func (h history) note(name model.Name, object *metav1.ObjectMeta) {
	last := object.CreationTimestamp.Time
	take := func(at time.Time) {
		if at.After(last) {
			last = at
		}
	}
	if object.DeletionTimestamp != nil {
		take(object.DeletionTimestamp.Time)
	}
	for _, m := range object.ManagedFields {
		if m.Time != nil {
			take(m.Time.Time)
		}
	}
	if at, err := time.Parse(time.RFC3339Nano, object.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		take(at)
	}
	if last.After(h[name]) {
		h[name] = last
	}
}
