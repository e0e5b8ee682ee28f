// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/model"
)

const (
	// proxyNameLabel gives a Service to another proxy (R1).
	proxyNameLabel = "service.kubernetes.io/service-proxy-name"
	// defaultAffinity is sessionAffinity ClientIP's timeout without a
	// sessionAffinityConfig (R18).
	defaultAffinity = corev1.DefaultClientIPServiceAffinitySeconds
	// selectionAnnotation says how one of a Service's backends is chosen.
	selectionAnnotation = "fairlead.io/selection"
	// maxAffinity is the longest timeout the API allows: a day (R18).
	maxAffinity = 86400
	// toBeDeletedTaint is how the cluster autoscaler marks a node that it is
	// about to remove (R30).
	toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"
)

// Converter turns objects of the API into the model's values. The zero value
// is ready for use by several goroutines. Values from one Converter share
// strings, and must not be modified.
type Converter struct {
	shared interner
}

// Event converts a *corev1.Service, *discoveryv1.EndpointSlice or
// *corev1.Node. The event always names the object, and then says one of three
// things. With the pointer of its kind set, the object can be used. Without
// it, the problems say why the whole object is refused. With neither, the
// object is none of the proxy's business (R2).
func (c *Converter) Event(object any) (Event, []Problem) {
	switch o := object.(type) {
	case *corev1.Service:
		return c.service(o)
	case *discoveryv1.EndpointSlice:
		return c.slice(o)
	case *corev1.Node:
		return c.node(o)
	}
	return Event{}, []Problem{{Message: fmt.Sprintf("an object of type %T is not read", object)}}
}

// gone says that the event brings no object.
func (e Event) gone() bool { return e.Service == nil && e.Slice == nil && e.Node == nil }

func (c *Converter) service(in *corev1.Service) (Event, []Problem) {
	f := &faults{kind: KindService}
	f.identity(&in.ObjectMeta, true, validation.IsDNS1123Label)
	spec := &in.Spec
	proxyName, hasProxyName := in.Labels[proxyNameLabel]
	_, headless := in.Labels[corev1.IsHeadlessService]
	out := &model.Service{
		Name:              model.Name{Namespace: c.shared.string(in.Namespace), Name: in.Name},
		ResourceVersion:   in.ResourceVersion,
		CreationTimestamp: in.CreationTimestamp.UTC(),
		ProxyName:         c.shared.string(proxyName),
		HasProxyName:      hasProxyName,
		Headless:          headless,

		Type:                  serviceType(f, spec.Type),
		ClusterIPs:            clusterIPs(f, spec),
		ExternalIPs:           externalIPs(f, spec.ExternalIPs),
		LoadBalancerIngress:   ingress(f, in.Status.LoadBalancer.Ingress),
		SourceRanges:          sourceRanges(f, spec.LoadBalancerSourceRanges),
		Ports:                 c.servicePorts(f, spec),
		InternalTrafficPolicy: internalPolicy(f, spec.InternalTrafficPolicy),
		ExternalTrafficPolicy: trafficPolicy(f, "spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy)),
		HealthCheckNodePort:   f.port("spec.healthCheckNodePort", spec.HealthCheckNodePort, 0),
		AffinitySeconds:       affinity(f, spec),
	}
	event := Event{Kind: KindService, Name: out.Name, ResourceVersion: in.ResourceVersion}
	if len(f.list) > 0 {
		return event, f.list
	}
	out.Selection, out.HasSelection = selection(f, in.Annotations)
	event.Service = out
	return event, f.list
}

// selection reads the annotation, if there is one. For a value that means
// nothing, the Service is not refused but served as others are.
func selection(f *faults, annotations map[string]string) (selected model.Selection, has bool) {
	value, has := annotations[selectionAnnotation]
	if !has {
		return 0, false
	}
	selected, err := model.ParseSelection(value)
	if err != nil {
		f.add("metadata.annotations["+selectionAnnotation+"]", "ignored: %s is none of random, maglev", quote(value))
	}
	return selected, err == nil
}

func serviceType(f *faults, t corev1.ServiceType) model.ServiceType {
	if t == "" {
		return model.ServiceClusterIP
	}
	return choice(f, "spec.type", string(t),
		[]string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"},
		[]model.ServiceType{model.ServiceClusterIP, model.ServiceNodePort, model.ServiceLoadBalancer, model.ServiceExternalName})
}

// clusterIPs returns nothing for a headless Service (R2). The field clusterIP
// stands in for clusterIPs in manifests that people write by hand.
func clusterIPs(f *faults, spec *corev1.ServiceSpec) []netip.Addr {
	if len(spec.ClusterIPs) == 0 {
		if spec.ClusterIP == "" || spec.ClusterIP == corev1.ClusterIPNone {
			return nil
		}
		return []netip.Addr{f.hostAddress("spec.clusterIP", spec.ClusterIP)}
	}
	if len(spec.ClusterIPs) == 1 && spec.ClusterIPs[0] == corev1.ClusterIPNone {
		return nil
	}
	addresses := make([]netip.Addr, 0, len(spec.ClusterIPs))
	for i, value := range spec.ClusterIPs {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		a := f.hostAddress(field, value)
		sameFamily := func(b netip.Addr) bool { return b.Is4() == a.Is4() }
		if a.IsValid() && slices.ContainsFunc(addresses, sameFamily) {
			f.add(field, "%s is a second address of one family", quote(value))
		}
		if a.IsValid() {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

func externalIPs(f *faults, values []string) []netip.Addr {
	if len(values) == 0 {
		return nil
	}
	addresses := make([]netip.Addr, len(values))
	for i, value := range values {
		addresses[i] = f.hostAddress(fmt.Sprintf("spec.externalIPs[%d]", i), value)
	}
	return addresses
}

// ingress leaves out entries that have only a host name: there is nothing to
// program for them.
func ingress(f *faults, entries []corev1.LoadBalancerIngress) []model.LoadBalancerIngress {
	var out []model.LoadBalancerIngress
	for i, entry := range entries {
		if entry.IP == "" {
			continue
		}
		field := fmt.Sprintf("status.loadBalancer.ingress[%d]", i)
		address := f.address(field+".ip", entry.IP)
		proxy := entry.IPMode != nil &&
			choice(f, field+".ipMode", string(*entry.IPMode), []string{"VIP", "Proxy"}, []bool{false, true})
		out = append(out, model.LoadBalancerIngress{Address: address, Proxy: proxy})
	}
	return out
}

func sourceRanges(f *faults, values []string) []netip.Prefix {
	if len(values) == 0 {
		return nil
	}
	ranges := make([]netip.Prefix, len(values))
	for i, value := range values {
		ranges[i] = f.prefix(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), value)
	}
	return ranges
}

// servicePorts refuses ports that could not be told apart: by name, by number
// and protocol, or by node port and protocol.
func (c *Converter) servicePorts(f *faults, spec *corev1.ServiceSpec) []model.ServicePort {
	headless := spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(spec.ClusterIPs, corev1.ClusterIPNone)
	if len(spec.Ports) == 0 && !headless && spec.Type != corev1.ServiceTypeExternalName {
		f.add("spec.ports", "there are no ports")
		return nil
	}
	ports := make([]model.ServicePort, 0, len(spec.Ports))
	for i := range spec.Ports {
		in, field := &spec.Ports[i], fmt.Sprintf("spec.ports[%d]", i)
		port := model.ServicePort{
			Name:     c.shared.string(in.Name),
			Protocol: f.protocol(field+".protocol", string(in.Protocol)),
			Port:     f.port(field+".port", in.Port, 1),
			NodePort: f.port(field+".nodePort", in.NodePort, 0),
		}
		f.portName(field+".name", in.Name)
		if in.Name == "" && len(spec.Ports) > 1 {
			f.add(field+".name", "a port needs a name where there are several")
		}
		clashes(f, field, port, ports)
		ports = append(ports, port)
	}
	return ports
}

// clashes compares a port with those before it.
func clashes(f *faults, field string, port model.ServicePort, before []model.ServicePort) {
	for i, other := range before {
		sameProtocol := port.Protocol == other.Protocol
		if port.Name == other.Name && port.Name != "" {
			f.add(field+".name", "%s is also the name of spec.ports[%d]", quote(port.Name), i)
		}
		if port.Port == other.Port && port.Port != 0 && sameProtocol {
			f.add(field+".port", "%d/%s is also the port of spec.ports[%d]", port.Port, port.Protocol, i)
		}
		if port.NodePort == other.NodePort && port.NodePort != 0 && sameProtocol {
			f.add(field+".nodePort", "%d/%s is also the node port of spec.ports[%d]", port.NodePort, port.Protocol, i)
		}
	}
}

func internalPolicy(f *faults, policy *corev1.ServiceInternalTrafficPolicy) model.TrafficPolicy {
	if policy == nil {
		return model.PolicyCluster
	}
	return trafficPolicy(f, "spec.internalTrafficPolicy", string(*policy))
}

func trafficPolicy(f *faults, field, value string) model.TrafficPolicy {
	if value == "" {
		return model.PolicyCluster
	}
	return choice(f, field, value, []string{"Cluster", "Local"},
		[]model.TrafficPolicy{model.PolicyCluster, model.PolicyLocal})
}

// affinity returns the timeout of session affinity, 0 for none (R18).
func affinity(f *faults, spec *corev1.ServiceSpec) uint32 {
	clientIP := spec.SessionAffinity != "" &&
		choice(f, "spec.sessionAffinity", string(spec.SessionAffinity), []string{"None", "ClientIP"}, []bool{false, true})
	if !clientIP {
		return 0
	}
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return uint32(defaultAffinity)
	}
	seconds := *config.ClientIP.TimeoutSeconds
	if seconds < 1 || seconds > maxAffinity {
		f.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not between 1 and %d", seconds, maxAffinity)
		return 0
	}
	return uint32(seconds)
}

// node never refuses a Node for an address that cannot be read: its zone and
// its name matter more (R17).
func (c *Converter) node(in *corev1.Node) (Event, []Problem) {
	f := &faults{kind: KindNode}
	f.identity(&in.ObjectMeta, false, validation.IsDNS1123Subdomain)
	event := Event{Kind: KindNode, Name: model.Name{Name: in.Name}, ResourceVersion: in.ResourceVersion}
	if len(f.list) > 0 {
		return event, f.list
	}
	event.Node = &Node{
		Name:      in.Name,
		Zone:      in.Labels[corev1.LabelTopologyZone],
		Addresses: nodeAddresses(f, in.Status.Addresses),
		Leaving:   in.DeletionTimestamp != nil || slices.ContainsFunc(in.Spec.Taints, isToBeDeleted),
	}
	return event, f.list
}

func isToBeDeleted(t corev1.Taint) bool { return t.Key == toBeDeletedTaint }

func nodeAddresses(f *faults, in []corev1.NodeAddress) []string {
	var out []string
	for i, a := range in {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if _, err := netip.ParseAddr(a.Address); err != nil {
			f.add(fmt.Sprintf("status.addresses[%d].address", i), "ignored: %s is not an IP address", quote(a.Address))
			continue
		}
		out = append(out, a.Address)
	}
	return out
}
