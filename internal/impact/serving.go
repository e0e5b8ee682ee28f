// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is one that is ready: a pod's, or an address for which no pod stands.
type endpoint struct {
	slice   *Object
	pod     *Object // nil if none is known
	address string
}

// servings are the ready endpoints of Services.
var servings = newIndex(func(s *State) map[Key][]endpoint {
	out := map[Key][]endpoint{}
	for o, slice := range Contents[*discoveryv1.EndpointSlice](s, EndpointSlices) {
		service := serviceOf(o)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			found := endpoint{slice: o, address: e.Addresses[0]}
			if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" {
				found.pod, _ = s.Get(Key{Pods, o.Namespace, ref.Name})
			}
			out[service] = append(out[service], found)
		}
	}
	return out
})

// served are the Services of which pods are ready endpoints.
var served = newIndex(func(s *State) map[*Object][]Key {
	out := map[*Object][]Key{}
	for service, endpoints := range servings.of(s) {
		for _, e := range endpoints {
			if e.pod != nil && !slices.Contains(out[e.pod], service) {
				out[e.pod] = append(out[e.pod], service)
			}
		}
	}
	return out
})

// serviceOf names the Service to which an EndpointSlice belongs.
func serviceOf(slice *Object) Key {
	return Key{Services, slice.Namespace, slice.Content.GetLabels()[discoveryv1.LabelServiceName]}
}

// fate is what becomes of a Service.
type fate struct {
	service *Object // nil if only its slices are known
	key     Key
	gone    bool // the Service itself goes
	before  int  // its ready endpoints
	after   int  // those that stay
	back    int  // those that something makes again
	// by are the named objects with which endpoints go.
	by []*Object
}

// ends says that nobody answers any more, where somebody did.
func (f *fate) ends() bool { return f.before > 0 && (f.gone || f.after == 0) }

// forGood says that nobody will answer again by itself.
func (f *fate) forGood() bool { return f.gone || f.back == 0 }

// causes are the objects that go and end a Service.
func (f *fate) causes() []*Object {
	if f.gone {
		return []*Object{f.service}
	}
	return f.by
}

// fate is what becomes of a Service of that name.
func (c *Case) fate(key Key) *fate {
	f := &fate{key: key}
	f.service, _ = c.Get(key)
	f.gone = f.service != nil && !c.stays(f.service)
	best := map[any]prospect{} // a pod in two families of addresses is one endpoint
	for _, e := range servings.of(c.State)[key] {
		var id any = e.address
		if e.pod != nil {
			id = e.pod
		}
		p, because := c.prospect(e)
		best[id] = max(best[id], p)
		if because == nil {
			continue
		}
		if root := c.root(because); !slices.Contains(f.by, root) {
			f.by = append(f.by, root)
		}
	}
	f.before = len(best)
	for _, p := range best {
		switch p {
		case remains:
			f.after++
		case returns:
			f.back++
		}
	}
	return f
}

// prospect is what becomes of an endpoint.
type prospect int

const (
	vanishes prospect = iota
	returns           // once something has made it again
	remains
)

// prospect is what becomes of an endpoint, and because of which object. A
// controller writes a slice again before data planes have lost much; the API
// servers take longer over theirs.
func (c *Case) prospect(e endpoint) (prospect, *Object) {
	remade := c.remakes(e.slice)
	switch {
	case e.pod != nil && !c.stays(e.pod):
		if remade && c.remaker(e.pod) != nil && !c.leavesNode(e.pod) {
			return returns, e.pod
		}
		return vanishes, e.pod
	case c.stays(e.slice):
		return remains, nil
	case remade && isAPI(serviceOf(e.slice)):
		return returns, e.slice
	case remade:
		return remains, nil
	}
	return vanishes, e.slice
}

// root is the named object with which another one goes.
func (c *Case) root(o *Object) *Object {
	for {
		cause, ok := c.Gone(o)
		if !ok || cause.By == nil {
			return o
		}
		o = cause.By
	}
}

// remakes says that an EndpointSlice stays, or that a controller writes it
// again: from a selector, from an Endpoints object, or from the API servers'
// own addresses.
func (c *Case) remakes(slice *Object) bool {
	if c.stays(slice) {
		return true
	}
	service, ok := c.Get(serviceOf(slice))
	if !ok || !c.stays(service) {
		return false
	}
	switch slice.Content.GetLabels()[discoveryv1.LabelManagedBy] {
	case "endpointslice-controller.k8s.io":
		content, ok := service.Content.(*corev1.Service)
		return ok && len(content.Spec.Selector) > 0
	case "endpointslicemirroring-controller.k8s.io":
		source, ok := c.Get(Key{endpoints, slice.Namespace, service.Name})
		return ok && c.stays(source)
	}
	return isAPI(service.Key())
}

// isAPI says that it is the Service of the API servers.
func isAPI(k Key) bool {
	return k.GroupResource == Services && k.Namespace == corev1.NamespaceDefault && k.Name == "kubernetes"
}

// fates are those of all Services that go or lose endpoints, in order.
func (c *Case) fates() []*fate {
	seen := map[Key]bool{}
	for _, o := range c.Deleted(Services) {
		seen[o.Key()] = true
	}
	for _, o := range c.Deleted(EndpointSlices) {
		if o.Content != nil {
			seen[serviceOf(o)] = true
		}
	}
	if pods := c.Deleted(Pods); len(pods) > 0 {
		of := served.of(c.State)
		for _, o := range pods {
			for _, service := range of[o] {
				seen[service] = true
			}
		}
	}
	var out []*fate
	for key := range seen {
		out = append(out, c.fate(key))
	}
	slices.SortFunc(out, func(a, b *fate) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	return out
}

// touchesServing says that Services may lose endpoints by what goes.
func (c *Case) touchesServing() bool {
	return len(c.Deleted(Services))+len(c.Deleted(EndpointSlices))+len(c.Deleted(Pods)) > 0
}
