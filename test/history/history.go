// SPDX-License-Identifier: Apache-2.0

// Package history draws random histories of a cluster for property tests:
// Services, EndpointSlices and a node that come, change, move and go.
//
// Names, addresses and ports are few, so that claims collide, slices change
// hands and names are prefixes of each other. The package knows what an event
// is; it knows nothing of what is made of one.
package history

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// World is the objects there are, as the last event left each of them.
type World struct {
	Services map[model.Name]*model.Service
	Slices   map[model.Name]*model.EndpointSlice
	Node     model.Node

	version int
}

// NewWorld returns a world with a node and nothing else.
func NewWorld() *World {
	return &World{
		Services: map[model.Name]*model.Service{},
		Slices:   map[model.Name]*model.EndpointSlice{},
		Node:     nodes()[0],
	}
}

// Step is one thing that happens: events that come together, or a new picture
// of the node.
type Step struct {
	Events []reflector.Event
	Node   *model.Node
	// Involved are the Services whose own objects the step is about; none for a
	// node.
	Involved []model.Name
}

// Step draws what happens next, and makes it happen to the world.
func (w *World) Step(t *rapid.T) Step {
	kinds := []func(*rapid.T) Step{w.putService, w.putService, w.putSlice, w.putSlice, w.putSlice, w.deleteService, w.recreateService, w.deleteSlice, w.moveNode}
	return rapid.SampledFrom(kinds).Draw(t, "what happens")(t)
}

// Clear deletes whatever is left, in an order that is drawn.
func (w *World) Clear(t *rapid.T) Step {
	var all []Step
	for _, name := range sortedNames(w.Services) {
		all = append(all, w.removeService(name))
	}
	for _, name := range sortedNames(w.Slices) {
		all = append(all, w.removeSlice(name))
	}
	return Join(rapid.Permutation(all).Draw(t, "order of deletes"))
}

// Join makes one step of several without a node.
func Join(steps []Step) Step {
	var joined Step
	for _, s := range steps {
		joined.Events = append(joined.Events, s.Events...)
		joined.Involved = append(joined.Involved, s.Involved...)
	}
	return joined
}

// Objects are the world's objects, each kind sorted by name.
func (w *World) Objects() (services []*model.Service, endpointSlices []*model.EndpointSlice) {
	for _, name := range sortedNames(w.Services) {
		services = append(services, w.Services[name])
	}
	for _, name := range sortedNames(w.Slices) {
		endpointSlices = append(endpointSlices, w.Slices[name])
	}
	return services, endpointSlices
}

func sortedNames[V any](m map[model.Name]V) []model.Name {
	return slices.SortedFunc(maps.Keys(m), model.Name.Compare)
}

func (w *World) nextVersion() string {
	w.version++
	return strconv.Itoa(w.version)
}

// putService creates a Service, or changes one, which keeps its age.
func (w *World) putService(t *rapid.T) Step {
	s := service(t)
	if was, ok := w.Services[s.Name]; ok {
		s.CreationTimestamp = was.CreationTimestamp
	}
	return w.addService(s)
}

// recreateService deletes a Service and creates another of its name, so
// quickly that both may come in one batch. It may be as the old one in all but
// its age.
func (w *World) recreateService(t *rapid.T) Step {
	s := service(t)
	if was, ok := w.Services[s.Name]; ok && rapid.Bool().Draw(t, "as it was") {
		again := *was
		again.CreationTimestamp = s.CreationTimestamp
		s = &again
	}
	return Join([]Step{w.removeService(s.Name), w.addService(s)})
}

func (w *World) deleteService(t *rapid.T) Step {
	return w.removeService(serviceName.Draw(t, "Service"))
}

func (w *World) addService(s *model.Service) Step {
	s.ResourceVersion = w.nextVersion()
	w.Services[s.Name] = s
	e := reflector.Event{Kind: reflector.KindService, Name: s.Name, ResourceVersion: s.ResourceVersion, Service: s}
	return Step{Events: []reflector.Event{e}, Involved: []model.Name{s.Name}}
}

// removeService deletes a Service that may not be there: a source may say so.
func (w *World) removeService(name model.Name) Step {
	delete(w.Services, name)
	e := reflector.Event{Kind: reflector.KindService, Name: name, ResourceVersion: w.nextVersion()}
	return Step{Events: []reflector.Event{e}, Involved: []model.Name{name}}
}

// putSlice creates a slice, changes one, or gives one to another Service by
// its label.
func (w *World) putSlice(t *rapid.T) Step {
	s := endpointSlice(t)
	s.ResourceVersion = w.nextVersion()
	step := Step{Involved: w.ownerOf(s.Name)}
	step.Involved = append(step.Involved, s.ServiceName())
	w.Slices[s.Name] = s
	step.Events = []reflector.Event{{Kind: reflector.KindEndpointSlice, Name: s.Name, ResourceVersion: s.ResourceVersion, Slice: s}}
	return step
}

func (w *World) deleteSlice(t *rapid.T) Step {
	return w.removeSlice(sliceName.Draw(t, "slice"))
}

func (w *World) removeSlice(name model.Name) Step {
	step := Step{Involved: w.ownerOf(name)}
	delete(w.Slices, name)
	step.Events = []reflector.Event{{Kind: reflector.KindEndpointSlice, Name: name, ResourceVersion: w.nextVersion()}}
	return step
}

func (w *World) ownerOf(slice model.Name) []model.Name {
	if s, ok := w.Slices[slice]; ok {
		return []model.Name{s.ServiceName()}
	}
	return nil
}

func (w *World) moveNode(t *rapid.T) Step {
	w.Node = rapid.SampledFrom(nodes()).Draw(t, "node")
	node := w.Node
	return Step{Node: &node}
}

// nodes are pictures of one node: its zone, its addresses and what listens on
// it change.
func nodes() []model.Node {
	address := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")}
	listening := []model.Listener{{AddrPort: netip.MustParseAddrPort("0.0.0.0:1"), Protocol: model.TCP}}
	return []model.Node{
		{Name: "n1", Zone: "a", Addresses: address},
		{Name: "n1", Zone: "b", Addresses: address},
		{Name: "n1", Zone: "a", Addresses: address, Listening: listening},
		{Name: "n1", Zone: "a", Addresses: address[1:], Listening: listening},
	}
}

// The generators draw from few values each.
var (
	serviceName = name("web", "web-x", "web-y")
	sliceName   = name("web", "web-x", "s")
	clusterIP   = rapid.SampledFrom(addrs("10.96.0.1", "10.96.0.2", "10.96.0.3", "fd96::1", "fd96::2"))
	endpointIP  = map[model.Family]*rapid.Generator[netip.Addr]{
		model.IPv4: rapid.SampledFrom(addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")),
		model.IPv6: rapid.SampledFrom(addrs("fd00::1", "fd00::2")),
	}
	words    = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "n1"}), 0, 2, rapid.ID[string])
	protocol = rapid.SampledFrom([]model.Protocol{model.TCP, model.TCP, model.UDP, model.SCTP})
	portName = rapid.SampledFrom([]string{"", "p"})
	number   = rapid.Uint16Range(1, 2)
	policy   = rapid.SampledFrom([]model.TrafficPolicy{model.PolicyCluster, model.PolicyLocal})
	created  = rapid.SampledFrom([]time.Time{{}, time.Unix(1, 0), time.Unix(2, 0)})
	ranges   = rapid.SampledFrom([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("fd00::/8")})
)

func addrs(texts ...string) []netip.Addr {
	list := make([]netip.Addr, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParseAddr(s)
	}
	return list
}

func name(names ...string) *rapid.Generator[model.Name] {
	return rapid.Custom(func(t *rapid.T) model.Name {
		return model.Name{
			Namespace: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "namespace"),
			Name:      rapid.SampledFrom(names).Draw(t, "name"),
		}
	})
}

// service draws a Service; one in eight is not served (R1, R2).
func service(t *rapid.T) *model.Service {
	s := &model.Service{
		Name:                  serviceName.Draw(t, "Service"),
		CreationTimestamp:     created.Draw(t, "created"),
		Type:                  rapid.SampledFrom([]model.ServiceType{model.ServiceClusterIP, model.ServiceNodePort, model.ServiceLoadBalancer}).Draw(t, "type"),
		ClusterIPs:            rapid.SliceOfNDistinct(clusterIP, 1, 2, rapid.ID[netip.Addr]).Draw(t, "cluster IPs"),
		ExternalIPs:           rapid.SliceOfNDistinct(clusterIP, 0, 2, rapid.ID[netip.Addr]).Draw(t, "external IPs"),
		InternalTrafficPolicy: policy.Draw(t, "internal policy"),
		ExternalTrafficPolicy: policy.Draw(t, "external policy"),
		AffinitySeconds:       rapid.SampledFrom([]uint32{0, 10}).Draw(t, "affinity"),
		SourceRanges:          rapid.SliceOfNDistinct(ranges, 0, 2, rapid.ID[netip.Prefix]).Draw(t, "ranges"),
	}
	switch rapid.IntRange(0, 15).Draw(t, "kind") {
	case 0:
		s.ClusterIPs = nil
	case 1:
		s.HasProxyName, s.ProxyName = true, "other"
	}
	if rapid.Bool().Draw(t, "has a VIP") {
		s.LoadBalancerIngress = []model.LoadBalancerIngress{{Address: clusterIP.Draw(t, "VIP")}}
	}
	port := rapid.Custom(func(t *rapid.T) model.ServicePort {
		return model.ServicePort{Name: portName.Draw(t, "port name"), Protocol: protocol.Draw(t, "protocol"), Port: number.Draw(t, "port"), NodePort: rapid.Uint16Range(0, 2).Draw(t, "node port")}
	})
	s.Ports = rapid.SliceOfN(port, 0, 2).Draw(t, "ports")
	return s
}

func endpointSlice(t *rapid.T) *model.EndpointSlice {
	at := sliceName.Draw(t, "slice")
	s := &model.EndpointSlice{
		Name:    at,
		Service: rapid.SampledFrom([]string{"web", "web-x", "web-y", "nobody"}).Draw(t, "its Service"),
		Family:  rapid.SampledFrom([]model.Family{model.IPv4, model.IPv4, model.IPv6}).Draw(t, "family"),
	}
	one := rapid.Custom(func(t *rapid.T) model.Endpoint {
		return model.Endpoint{
			Addresses:   []netip.Addr{endpointIP[s.Family].Draw(t, "address")},
			NodeName:    rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"),
			Ready:       rapid.Bool().Draw(t, "ready"),
			Serving:     rapid.Bool().Draw(t, "serving"),
			Terminating: rapid.Bool().Draw(t, "terminating"),
			ZoneHints:   words.Draw(t, "zone hints"),
			NodeHints:   words.Draw(t, "node hints"),
		}
	})
	s.Endpoints = rapid.SliceOfN(one, 0, 4).Draw(t, "endpoints")
	port := rapid.Custom(func(t *rapid.T) model.EndpointPort {
		return model.EndpointPort{Name: portName.Draw(t, "port name"), Protocol: protocol.Draw(t, "protocol"), Port: number.Draw(t, "port")}
	})
	s.Ports = rapid.SliceOfN(port, 1, 2).Draw(t, "ports")
	return s
}
