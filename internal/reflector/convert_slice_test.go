// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/model"
)

func webSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-x7k2p", ResourceVersion: "8",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.1.7"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}},
	}
}

func webSliceModel() *model.EndpointSlice {
	return &model.EndpointSlice{
		Name:            model.Name{Namespace: "shop", Name: "web-x7k2p"},
		ResourceVersion: "8",
		Service:         "web",
		Family:          model.IPv4,
		Endpoints:       []model.Endpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.7")}, Ready: true, Serving: true}},
		Ports:           []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
	}
}

func TestConvertEndpointSlice(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*discoveryv1.EndpointSlice)
		want func(*model.EndpointSlice)
	}{
		{"conditions that are not set mean ready and serving (R6)",
			func(*discoveryv1.EndpointSlice) {}, func(*model.EndpointSlice) {}},
		{"conditions that are set are kept (R6)",
			func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(false), Terminating: ptr(true)}
			},
			func(s *model.EndpointSlice) {
				s.Endpoints[0].Ready, s.Endpoints[0].Serving, s.Endpoints[0].Terminating = false, false, true
			}},
		{"serving that is not set is true although the endpoint terminates (R6)",
			func(s *discoveryv1.EndpointSlice) {
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Terminating: ptr(true)}
			},
			func(s *model.EndpointSlice) { s.Endpoints[0].Ready, s.Endpoints[0].Terminating = false, true }},
		{"node, zone and hints are kept (R15, R42)",
			func(s *discoveryv1.EndpointSlice) {
				e := &s.Endpoints[0]
				e.NodeName, e.Zone = ptr("n1"), ptr("z1")
				e.Hints = &discoveryv1.EndpointHints{
					ForZones: []discoveryv1.ForZone{{Name: "z1"}, {Name: "z2"}},
					ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
				}
			},
			func(s *model.EndpointSlice) {
				e := &s.Endpoints[0]
				e.NodeName, e.Zone, e.ZoneHints, e.NodeHints = "n1", "z1", []string{"z1", "z2"}, []string{"n1"}
			}},
		{"ports without a number are dropped; protocol and name have defaults",
			func(s *discoveryv1.EndpointSlice) {
				s.Ports = []discoveryv1.EndpointPort{
					{Name: ptr("all")},
					{Name: ptr("zero"), Port: ptr(int32(0))},
					{Name: ptr("dns"), Port: ptr(int32(53)), Protocol: ptr(corev1.ProtocolUDP)},
					{Port: ptr(int32(80))},
				}
			},
			func(s *model.EndpointSlice) {
				s.Ports = []model.EndpointPort{{Name: "dns", Protocol: model.UDP, Port: 53}, {Protocol: model.TCP, Port: 80}}
			}},
		{"a link-local endpoint is kept, as the first incident's API server had it",
			func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"169.254.128.7"} },
			func(s *model.EndpointSlice) {
				s.Endpoints[0].Addresses = []netip.Addr{netip.MustParseAddr("169.254.128.7")}
			}},
		{"the time of the change that led to it is kept (R32)",
			func(s *discoveryv1.EndpointSlice) {
				s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-20T11:00:00.25+01:00"}
			},
			func(s *model.EndpointSlice) {
				s.Triggered = time.Date(2026, 11, 20, 10, 0, 0, 250_000_000, time.UTC)
			}},
		{"a time that is none does no harm (R32)",
			func(s *discoveryv1.EndpointSlice) {
				s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "yesterday"}
			},
			func(*model.EndpointSlice) {}},
		{"no endpoints is a slice like any other (R13)",
			func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
			func(s *model.EndpointSlice) { s.Endpoints = nil }},
		{"IPv6 addresses are kept (R26)",
			func(s *discoveryv1.EndpointSlice) {
				s.AddressType = discoveryv1.AddressTypeIPv6
				s.Endpoints[0].Addresses = []string{"fd00::1", "fd00::2"}
			},
			func(s *model.EndpointSlice) {
				s.Family = model.IPv6
				s.Endpoints[0].Addresses = []netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, want := webSlice(), webSliceModel()
			tc.edit(in)
			tc.want(want)
			event, problems := new(Converter).Event(in)
			if len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			wantEvent := Event{Kind: KindEndpointSlice, Name: want.Name, ResourceVersion: "8", Slice: want}
			if diff := cmp.Diff(wantEvent, event, compareAddresses, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestConvertEndpointSliceNotOurs(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"labelled headless (R2)": func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" },
		"of type FQDN (R4)": func(s *discoveryv1.EndpointSlice) {
			s.AddressType = discoveryv1.AddressTypeFQDN
			s.Endpoints[0].Addresses = []string{"a.example"}
		},
		"without the label of a Service (R3)": func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
	} {
		t.Run("a slice is passed over if it is "+name, func(t *testing.T) {
			in := webSlice()
			edit(in)
			event, problems := new(Converter).Event(in)
			if !event.gone() || len(problems) > 0 || event.Name.String() != "shop/web-x7k2p" {
				t.Errorf("got %+v, %v", event, problems)
			}
		})
	}
}

func TestConvertEndpointSliceRefuses(t *testing.T) {
	address := func(a ...string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: a})
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*discoveryv1.EndpointSlice)
		want []string
	}{
		{"an address that is none", address("x"), []string{`EndpointSlice shop/web-x7k2p: endpoints[1].addresses[0]: "x" is not an IP address`}},
		{"leading zeros", address("10.0.0.1", "10.0.0.01"), []string{`endpoints[1].addresses[1]: "10.0.0.01" is not an IP address: IPv4 field has octet with leading zero`}},
		{"an address of the other family (R4)", address("fd00::1"), []string{`endpoints[1].addresses[0]: "fd00::1" is not an IPv4 address, which addressType asks for`}},
		{"a mapped address", address("::ffff:10.0.0.1"), []string{`endpoints[1].addresses[0]: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form`}},
		{"the unspecified address", address("0.0.0.0"), []string{`"0.0.0.0" is not the address of one host`}},
		{"a loopback address", address("127.0.0.2"), []string{`endpoints[1].addresses[0]: "127.0.0.2" is a loopback address, which every host has for itself`}},
		{"a multicast address", address("224.0.0.251"), []string{`endpoints[1].addresses[0]: "224.0.0.251" is not the address of one host`}},
		{"a name with control characters", func(s *discoveryv1.EndpointSlice) { s.Name = "a\tb" }, []string{`metadata.name: "a\tb" is no valid name`}},
		{"a port name with a slash", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr("a/b") },
			[]string{`EndpointSlice shop/web-x7k2p: ports[0].name: "a/b" is no valid name of a port`}},
		{"a port name of 64 characters", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr(strings.Repeat("a", 64)) },
			[]string{"is no valid name of a port: must be no more than 63"}},
		{"an endpoint without addresses", address(), []string{"endpoints[1].addresses: there are no addresses"}},
		{"no addressType", func(s *discoveryv1.EndpointSlice) { s.AddressType = "" }, []string{`addressType: "" is none of IPv4, IPv6, FQDN`}},
		{"port 70000", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr(int32(70000)) },
			[]string{"ports[0].port: 70000 is not a port number from 1 to 65535"}},
		{"an unknown protocol", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr(corev1.Protocol("ICMP")) },
			[]string{`ports[0].protocol: "ICMP" is none of TCP, UDP, SCTP`}},
		{"two ports of one name", func(s *discoveryv1.EndpointSlice) { s.Ports = append(s.Ports, s.Ports[0]) },
			[]string{`ports[1].name: "" is also the name of another port of this slice`}},
		{"no name", func(s *discoveryv1.EndpointSlice) { s.Name = "" }, []string{"metadata.name: the name is missing"}},
	} {
		t.Run("a slice is refused for "+tc.name, func(t *testing.T) {
			in := webSlice()
			tc.edit(in)
			event, problems := new(Converter).Event(in)
			wantProblems(t, problems, tc.want...)
			if !event.gone() {
				t.Errorf("an object came with the problems: %+v", event)
			}
		})
	}
}

func TestConvertTakesTenThousandEndpoints(t *testing.T) {
	event, problems := new(Converter).Event(largeSlice(10_000))
	if len(problems) > 0 {
		t.Fatalf("refused: %v", problems[0])
	}
	last := event.Slice.Endpoints[9_999]
	if len(event.Slice.Endpoints) != 10_000 || last.Addresses[0] != netip.MustParseAddr("10.0.39.15") || last.NodeName != "node-99" {
		t.Errorf("the last of %d endpoints is %+v", len(event.Slice.Endpoints), last)
	}
}

// largeSlice is a slice as a large cluster has it: 100 nodes in 3 zones.
func largeSlice(n int) *discoveryv1.EndpointSlice {
	s := webSlice()
	s.Endpoints = make([]discoveryv1.Endpoint, n)
	for i := range s.Endpoints {
		zone := fmt.Sprintf("zone-%d", i%3)
		s.Endpoints[i] = discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.%d.%d", i/256, i%256)},
			NodeName:  ptr(fmt.Sprintf("node-%d", i%100)),
			Zone:      &zone,
			Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}},
		}
	}
	return s
}
