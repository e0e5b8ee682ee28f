// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/model"
)

// slice converts an EndpointSlice. Headless and FQDN slices, and those that
// belong to no Service, are not ours (R2, R3, R4). One bad address refuses the
// whole slice: half a slice would look like endpoints that went away.
func (c *Converter) slice(in *discoveryv1.EndpointSlice) (Event, []Problem) {
	f := &faults{kind: KindEndpointSlice}
	f.identity(&in.ObjectMeta, true, validation.IsDNS1123Subdomain)
	event := Event{
		Kind:            KindEndpointSlice,
		Name:            model.Name{Namespace: c.shared.string(in.Namespace), Name: in.Name},
		ResourceVersion: in.ResourceVersion,
	}
	if !ours(in) {
		return event, nil
	}
	family := choice(f, "addressType", string(in.AddressType),
		[]string{"IPv4", "IPv6", "FQDN"}, []model.Family{model.IPv4, model.IPv6, 0})
	out := &model.EndpointSlice{
		Name:            event.Name,
		ResourceVersion: in.ResourceVersion,
		Service:         c.shared.string(in.Labels[discoveryv1.LabelServiceName]),
		Family:          family,
		Endpoints:       c.endpoints(f, family, in.Endpoints),
		Ports:           c.endpointPorts(f, in.Ports),
		Triggered:       triggered(in.Annotations),
	}
	if len(f.list) > 0 {
		return event, f.list
	}
	event.Slice = out
	return event, nil
}

func ours(in *discoveryv1.EndpointSlice) bool {
	_, headless := in.Labels[corev1.IsHeadlessService]
	return !headless && in.AddressType != discoveryv1.AddressTypeFQDN && in.Labels[discoveryv1.LabelServiceName] != ""
}

// triggered returns the time in the annotation for it (R32). One that cannot be
// read is worth no complaint: all that it costs is a sample.
func triggered(annotations map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, annotations[corev1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// endpoints converts all endpoints of a slice. Their addresses lie in one
// array, which matters for slices of thousands.
func (c *Converter) endpoints(f *faults, family model.Family, in []discoveryv1.Endpoint) []model.Endpoint {
	if len(in) == 0 {
		return nil
	}
	total := 0
	for i := range in {
		total += len(in[i].Addresses)
	}
	addresses := make([]netip.Addr, 0, total)
	out := make([]model.Endpoint, len(in))
	for i := range in {
		e := &in[i]
		first := len(addresses)
		if len(e.Addresses) == 0 {
			f.add(fmt.Sprintf("endpoints[%d].addresses", i), "there are no addresses")
		}
		for j, value := range e.Addresses {
			addresses = append(addresses, endpointAddress(f, family, i, j, value))
		}
		out[i] = c.endpoint(e)
		out[i].Addresses = addresses[first:len(addresses):len(addresses)]
	}
	return out
}

// endpointAddress spells the path of the field only for an address that is
// wrong, since slices are converted far more often than they are refused.
func endpointAddress(f *faults, family model.Family, i, j int, value string) netip.Addr {
	a, err := netip.ParseAddr(value)
	if err == nil && plain(a) && model.FamilyOf(a) == family {
		return a
	}
	field := fmt.Sprintf("endpoints[%d].addresses[%d]", i, j)
	before := len(f.list)
	a = f.hostAddress(field, value)
	if len(f.list) == before && family != 0 {
		f.add(field, "%s is not an %s address, which addressType asks for", quote(value), family)
	}
	return a
}

// plain says that an address passes every check of faults.hostAddress.
func plain(a netip.Addr) bool {
	return !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback()
}

// endpoint converts all but the addresses. Conditions that are not set have
// the defaults of R6, as kube-proxy reads them.
func (c *Converter) endpoint(in *discoveryv1.Endpoint) model.Endpoint {
	out := model.Endpoint{
		NodeName:    c.shared.string(deref(in.NodeName)),
		Zone:        c.shared.string(deref(in.Zone)),
		Ready:       in.Conditions.Ready == nil || *in.Conditions.Ready,
		Serving:     in.Conditions.Serving == nil || *in.Conditions.Serving,
		Terminating: in.Conditions.Terminating != nil && *in.Conditions.Terminating,
	}
	if in.Hints == nil {
		return out
	}
	out.ZoneHints = hints(&c.shared, in.Hints.ForZones, func(z discoveryv1.ForZone) string { return z.Name })
	out.NodeHints = hints(&c.shared, in.Hints.ForNodes, func(n discoveryv1.ForNode) string { return n.Name })
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// hints returns a shared list where there is one hint, as there almost always is.
func hints[T any](shared *interner, in []T, name func(T) string) []string {
	if len(in) == 0 {
		return nil
	}
	if len(in) == 1 {
		return shared.list(name(in[0]))
	}
	out := make([]string, len(in))
	for i, hint := range in {
		out[i] = shared.string(name(hint))
	}
	return out
}

// endpointPorts drops ports without a number, as kube-proxy does; the API
// server lets a number of 0 pass, and it means the same.
func (c *Converter) endpointPorts(f *faults, in []discoveryv1.EndpointPort) []model.EndpointPort {
	out := make([]model.EndpointPort, 0, len(in))
	for i := range in {
		p, field := &in[i], fmt.Sprintf("ports[%d]", i)
		if p.Port == nil || *p.Port == 0 {
			continue
		}
		protocol := model.TCP
		if p.Protocol != nil {
			protocol = f.protocol(field+".protocol", string(*p.Protocol))
		}
		port := model.EndpointPort{
			Name:     c.shared.string(deref(p.Name)),
			Protocol: protocol,
			Port:     f.port(field+".port", *p.Port, 1),
		}
		f.portName(field+".name", port.Name)
		sameName := func(o model.EndpointPort) bool { return o.Name == port.Name }
		if slices.ContainsFunc(out, sameName) {
			f.add(field+".name", "%s is also the name of another port of this slice", quote(port.Name))
		}
		out = append(out, port)
	}
	return out
}
