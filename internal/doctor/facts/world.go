// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// World is what the API asks of a data plane on a node, in the model's terms.
type World struct {
	Services []*model.Service
	Slices   []*model.EndpointSlice
	Node     model.Node
	Options  model.Options
	// Unsure says why it is not known what a Service asks for, by its name: an
	// object that cannot be read, or a rule that the data plane may not follow.
	Unsure map[model.Name]string
	// Choice are those of which all endpoints are known, and unsure is only which
	// of them are for this node.
	Choice map[model.Name]bool
}

// worldKey is what a World depends on besides the objects.
type worldKey struct {
	node  string
	plane DataPlane
}

// World returns what the API asks of a data plane on a node; nil if not all
// Services and EndpointSlices are known.
func (s *Sample) World(node string, plane DataPlane) *World {
	if !s.Objects.Complete("services") || !s.Objects.Complete("endpointslices.discovery.k8s.io") {
		return nil
	}
	return s.Known(node, plane)
}

// Known is what of World the objects tell, be they all or a few; nil if there
// are none. Of a few, what is not among them may be there, too.
func (s *Sample) Known(node string, plane DataPlane) *World {
	if s.Objects == nil {
		return nil
	}
	key := worldKey{node, plane}
	if w := s.worlds[key]; w != nil {
		return w
	}
	if s.converted == nil {
		s.converted = convert(s.Objects)
	}
	w := s.converted.world(s, key)
	if s.worlds == nil {
		s.worlds = map[worldKey]*World{}
	}
	s.worlds[key] = w
	return w
}

// converted are the objects of a sample in the model's types.
type converted struct {
	services []*model.Service
	slices   []*model.EndpointSlice
	nodes    map[string]*reflector.Node
	unsure   map[model.Name]string
	// zoneHints and nodeHints are the Services whose endpoints have them.
	zoneHints, nodeHints map[model.Name]bool
}

func convert(o *Objects) *converted {
	c := &converted{
		nodes: map[string]*reflector.Node{}, unsure: map[model.Name]string{},
		zoneHints: map[model.Name]bool{}, nodeHints: map[model.Name]bool{},
	}
	var in reflector.Converter
	for _, service := range o.Services {
		event, problems := in.Event(service)
		if event.Service != nil {
			c.services = append(c.services, event.Service)
		} else if len(problems) > 0 {
			c.unsure[event.Name] = problems[0].Error()
		}
	}
	for _, slice := range o.EndpointSlices {
		event, problems := in.Event(slice)
		if event.Slice != nil {
			c.slice(event.Slice)
		} else if len(problems) > 0 {
			c.unsure[model.Name{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}] = problems[0].Error()
		}
	}
	for _, node := range o.Nodes {
		if event, _ := in.Event(node); event.Node != nil {
			c.nodes[node.Name] = event.Node
		}
	}
	return c
}

func (c *converted) slice(s *model.EndpointSlice) {
	c.slices = append(c.slices, s)
	for i := range s.Endpoints {
		if len(s.Endpoints[i].ZoneHints) > 0 {
			c.zoneHints[s.ServiceName()] = true
		}
		if len(s.Endpoints[i].NodeHints) > 0 {
			c.nodeHints[s.ServiceName()] = true
		}
	}
}

func (c *converted) world(s *Sample, key worldKey) *World {
	w := &World{Services: c.services, Slices: c.slices, Unsure: map[model.Name]string{}}
	for name, why := range c.unsure {
		w.Unsure[name] = why
	}
	node := s.Node(key.node)
	if node == nil {
		node = &Node{Name: key.node}
	}
	known := c.nodes[key.node]
	w.Node = modelNode(node, known, key.plane)
	w.Options = options(node, key.plane)
	w.Choice = map[model.Name]bool{}
	unsure := func(name model.Name, why string) {
		w.Choice[name] = c.unsure[name] == ""
		w.Unsure[name] = why
	}
	zoneKnown := known != nil || key.plane == PlaneFairlead && node.Fairlead != nil && node.Fairlead.Status != nil
	for name := range c.zoneHints {
		switch {
		case !zoneKnown:
			unsure(name, "its endpoints have hints for zones, and the zone of the node is not known")
		case key.plane == PlaneCilium:
			unsure(name, "its endpoints have hints for zones, which Cilium follows only where it is told to")
		}
	}
	for name := range c.nodeHints {
		if key.plane != PlaneFairlead {
			unsure(name, "its endpoints have hints for nodes, which only some versions follow")
		}
	}
	return w
}

// modelNode joins what the API says of a node with what its agent says.
func modelNode(n *Node, known *reflector.Node, plane DataPlane) model.Node {
	out := model.Node{Name: n.Name}
	var addresses []string
	if known != nil {
		out.Zone, addresses = known.Zone, known.Addresses
	}
	if plane == PlaneFairlead && n.Fairlead != nil && n.Fairlead.Status != nil {
		status := n.Fairlead.Status
		out.Zone, addresses = cmp.Or(status.Zone, out.Zone), status.NodeAddresses
		out.Listening = listeners(status.Listening)
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(out.Addresses, a.Unmap()) {
			out.Addresses = append(out.Addresses, a.Unmap())
		}
	}
	return out
}

// listeners reads ADDRESS:PORT/PROTOCOL.
func listeners(all []string) []model.Listener {
	var out []model.Listener
	for _, text := range all {
		where, name, _ := strings.Cut(text, "/")
		address, err := adapter.ParseAddress(where)
		protocol, unknown := adapter.ParseProtocol(name)
		if err == nil && unknown == nil {
			out = append(out, model.Listener{AddrPort: address, Protocol: protocol})
		}
	}
	return out
}

// nobodysName is no value of a label: a proxy of this name takes no Service that
// is labelled for another one.
const nobodysName = "/"

func options(n *Node, plane DataPlane) model.Options {
	switch {
	case plane == PlaneCilium && n.Cilium != nil && n.Cilium.Config["k8s-service-proxy-name"] != "":
		return model.Options{ProxyName: n.Cilium.Config["k8s-service-proxy-name"], AllowNodeAddressClaims: true}
	case plane != PlaneFairlead:
		return model.Options{ProxyName: nobodysName, AllowNodeAddressClaims: true}
	case n.Fairlead != nil && n.Fairlead.Status != nil:
		return model.Options{DisableExternalIPs: n.Fairlead.Status.DisableExternalIPs, AllowNodeAddressClaims: n.Fairlead.Status.AllowNodeAddressClaims}
	}
	return model.Options{}
}

// Controller says who made a pod and keeps it: "DaemonSet kube-system/cilium". A
// ReplicaSet of a Deployment is named after it.
func Controller(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		if o.Controller == nil || !*o.Controller {
			continue
		}
		kind, name := o.Kind, o.Name
		if hash := pod.Labels["pod-template-hash"]; kind == "ReplicaSet" && hash != "" {
			kind, name = "Deployment", strings.TrimSuffix(name, "-"+hash)
		}
		return kind + " " + pod.Namespace + "/" + name
	}
	return ""
}
