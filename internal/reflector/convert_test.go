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
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

// compareAddresses lets cmp look into values of net/netip.
var compareAddresses = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

func web() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			Ports:      []corev1.ServicePort{{Port: 80}},
		},
	}
}

// webModel is what web converts to.
func webModel() *model.Service {
	return &model.Service{
		Name:            model.Name{Namespace: "shop", Name: "web"},
		ResourceVersion: "7",
		ClusterIPs:      []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		Ports:           []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
}

func TestConvertService(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name string
		edit func(*corev1.Service)
		want func(*model.Service)
	}{
		{"a plain Service takes the defaults of the API", func(*corev1.Service) {}, func(*model.Service) {}},
		{"the proxy name is kept, and so is that it is empty (R1)",
			func(s *corev1.Service) { s.Labels = map[string]string{proxyNameLabel: ""} },
			func(s *model.Service) { s.HasProxyName = true }},
		{"the proxy name is kept (R1)",
			func(s *corev1.Service) { s.Labels = map[string]string{proxyNameLabel: "other"} },
			func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "other" }},
		{"the headless label is kept, whatever its value (R2)",
			func(s *corev1.Service) { s.Labels = map[string]string{corev1.IsHeadlessService: ""} },
			func(s *model.Service) { s.Headless = true }},
		{"clusterIPs None means no address (R2)",
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			func(s *model.Service) { s.ClusterIPs = nil }},
		{"clusterIP None alone means no address (R2)",
			func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", nil },
			func(s *model.Service) { s.ClusterIPs = nil }},
		{"a headless Service needs no ports (R2)",
			func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports = "None", []string{"None"}, nil
			},
			func(s *model.Service) { s.ClusterIPs, s.Ports = nil, nil }},
		{"an ExternalName Service needs no ports (R2)",
			func(s *corev1.Service) {
				s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "x.example"}
			},
			func(s *model.Service) { s.Type, s.ClusterIPs, s.Ports = model.ServiceExternalName, nil, nil }},
		{"clusterIPs count before clusterIP",
			func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.11"} },
			func(s *model.Service) { s.ClusterIPs = []netip.Addr{netip.MustParseAddr("10.96.0.11")} }},
		{"clusterIP stands in for clusterIPs",
			func(s *corev1.Service) { s.Spec.ClusterIPs = nil },
			func(*model.Service) {}},
		{"both families are kept (R26)",
			func(s *corev1.Service) {
				s.Spec.ClusterIPs = []string{"10.96.0.10", "fd00::a"}
			},
			func(s *model.Service) { s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd00::a")) }},
		{"external addresses are kept (R23)",
			func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1", "2001:db8::1"} },
			func(s *model.Service) {
				s.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
			}},
		{"ipMode Proxy is told from VIP and none, and host names are skipped (R21)",
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
					{Hostname: "lb.example"},
					{IP: "192.0.2.1"},
					{IP: "192.0.2.2", IPMode: ptr(corev1.LoadBalancerIPModeVIP)},
					{IP: "192.0.2.3", IPMode: ptr(corev1.LoadBalancerIPModeProxy)},
				}
			},
			func(s *model.Service) {
				s.Type = model.ServiceLoadBalancer
				s.LoadBalancerIngress = []model.LoadBalancerIngress{
					{Address: netip.MustParseAddr("192.0.2.1")},
					{Address: netip.MustParseAddr("192.0.2.2")},
					{Address: netip.MustParseAddr("192.0.2.3"), Proxy: true},
				}
			}},
		{"the port of the health check is kept (R29)",
			func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 32000 },
			func(s *model.Service) { s.HealthCheckNodePort = 32000 }},
		{"a loopback address of a load balancer is kept, for the API server takes it",
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "127.0.0.1"}}
			},
			func(s *model.Service) {
				s.Type = model.ServiceLoadBalancer
				s.LoadBalancerIngress = []model.LoadBalancerIngress{{Address: netip.MustParseAddr("127.0.0.1")}}
			}},
		{"source ranges are trimmed and masked (R22)",
			func(s *corev1.Service) {
				s.Spec.LoadBalancerSourceRanges = []string{" 10.1.2.3/8 ", "2001:db8::1/32\t", "0.0.0.0/0"}
			},
			func(s *model.Service) {
				s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
					netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("0.0.0.0/0")}
			}},
		{"one port number may have several protocols (R27)",
			func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeNodePort
				s.Spec.Ports = []corev1.ServicePort{
					{Name: "a", Port: 53, Protocol: "TCP", NodePort: 30053},
					{Name: "b", Port: 53, Protocol: "UDP", NodePort: 30053},
					{Name: "c", Port: 53, Protocol: "SCTP"},
				}
			},
			func(s *model.Service) {
				s.Type = model.ServiceNodePort
				s.Ports = []model.ServicePort{
					{Name: "a", Port: 53, Protocol: model.TCP, NodePort: 30053},
					{Name: "b", Port: 53, Protocol: model.UDP, NodePort: 30053},
					{Name: "c", Port: 53, Protocol: model.SCTP},
				}
			}},
		{"both policies are kept (R10, R11)",
			func(s *corev1.Service) {
				s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			},
			func(s *model.Service) {
				s.InternalTrafficPolicy, s.ExternalTrafficPolicy = model.PolicyLocal, model.PolicyLocal
			}},
		{"session affinity has a default timeout (R18)",
			func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			func(s *model.Service) { s.AffinitySeconds = 10800 }},
		{"session affinity keeps its timeout (R18)",
			func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(86400))}}
			},
			func(s *model.Service) { s.AffinitySeconds = 86400 }},
		{"without session affinity there is no timeout (R18)",
			func(s *corev1.Service) {
				s.Spec.SessionAffinity = corev1.ServiceAffinityNone
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(5))}}
			},
			func(*model.Service) {}},
		{"the annotation for Maglev is kept",
			func(s *corev1.Service) { s.Annotations = map[string]string{"fairlead.io/selection": "maglev"} },
			func(s *model.Service) { s.Selection, s.HasSelection = model.SelectionMaglev, true }},
		{"that random is asked for is kept, since the operator may have something else",
			func(s *corev1.Service) { s.Annotations = map[string]string{"fairlead.io/selection": "random"} },
			func(s *model.Service) { s.HasSelection = true }},
		{"other annotations mean nothing",
			func(s *corev1.Service) { s.Annotations = map[string]string{"fairlead.io/other": "maglev"} },
			func(*model.Service) {}},
		{"the time of creation is kept, in UTC (R27)",
			func(s *corev1.Service) { s.CreationTimestamp = metav1.NewTime(created.In(time.FixedZone("x", 3600))) },
			func(s *model.Service) { s.CreationTimestamp = created }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, want := web(), webModel()
			tc.edit(in)
			tc.want(want)
			event, problems := new(Converter).Event(in)
			if len(problems) > 0 {
				t.Fatalf("refused: %v", problems)
			}
			wantEvent := Event{Kind: KindService, Name: want.Name, ResourceVersion: "7", Service: want}
			if diff := cmp.Diff(wantEvent, event, compareAddresses, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestConvertServiceRefuses(t *testing.T) {
	ports := func(p ...corev1.ServicePort) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Ports = p }
	}
	timeout := func(seconds int32) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	for _, tc := range []struct {
		name string
		edit func(*corev1.Service)
		want []string
	}{
		{"no name", func(s *corev1.Service) { s.Name = "" },
			[]string{"Service: metadata.name: the name is missing"}},
		{"a name with a slash", func(s *corev1.Service) { s.Name = "a/b" },
			[]string{`Service shop/a/b: metadata.name: "a/b" is no valid name`}},
		{"a name with a space", func(s *corev1.Service) { s.Name = "a b" },
			[]string{`metadata.name: "a b" is no valid name`}},
		{"a name with control characters, shown harmless", func(s *corev1.Service) { s.Name = "a\x1b[31m\nb" },
			[]string{`Service shop/a [31m b: metadata.name: "a\x1b[31m\nb" is no valid name`}},
		{"a name of 64 characters", func(s *corev1.Service) { s.Name = strings.Repeat("a", 64) },
			[]string{"is no valid name: must be no more than 63"}},
		{"a namespace with control characters", func(s *corev1.Service) { s.Namespace = "a\x00b" },
			[]string{`metadata.namespace: "a\x00b" is no valid namespace`}},
		{"no namespace", func(s *corev1.Service) { s.Namespace = "" },
			[]string{"Service web: metadata.namespace: the namespace is missing"}},
		{"a clusterIP with leading zeros", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"010.96.0.1"} },
			[]string{`Service shop/web: spec.clusterIPs[0]: "010.96.0.1" is not an IP address: IPv4 field has octet with leading zero`}},
		{"a clusterIP that is text", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "web", nil },
			[]string{`Service shop/web: spec.clusterIP: "web" is not an IP address`}},
		{"an IPv4 address in IPv6 form", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"::ffff:192.0.2.1"} },
			[]string{`spec.externalIPs[0]: "::ffff:192.0.2.1" is an IPv4 address in IPv6 form: write 192.0.2.1`}},
		{"an address with a zone", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"fe80::1%eth0"} },
			[]string{`spec.externalIPs[0]: "fe80::1%eth0" has a zone, which means nothing on another host: write fe80::1`}},
		{"the unspecified address", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"0.0.0.0"} },
			[]string{`spec.externalIPs[0]: "0.0.0.0" is not the address of one host`}},
		{"a loopback address as clusterIP", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"127.0.0.1"} },
			[]string{`spec.clusterIPs[0]: "127.0.0.1" is a loopback address, which every host has for itself`}},
		{"a loopback address as the only clusterIP field", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "::1", nil },
			[]string{`spec.clusterIP: "::1" is a loopback address`}},
		{"a multicast address as clusterIP", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"224.0.0.1"} },
			[]string{`spec.clusterIPs[0]: "224.0.0.1" is not the address of one host`}},
		{"a loopback address as externalIP", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"127.9.9.9"} },
			[]string{`spec.externalIPs[0]: "127.9.9.9" is a loopback address`}},
		{"None beside an address", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.10", "None"} },
			[]string{`spec.clusterIPs[1]: "None" is not an IP address`}},
		{"two addresses of a family (R26)", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1", "10.96.0.2"} },
			[]string{`spec.clusterIPs[1]: "10.96.0.2" is a second address of one family`}},
		{"no ports", ports(), []string{"spec.ports: there are no ports"}},
		{"port 0", ports(corev1.ServicePort{Port: 0}),
			[]string{"spec.ports[0].port: 0 is not a port number from 1 to 65535"}},
		{"port 70000", ports(corev1.ServicePort{Port: 70000}),
			[]string{"spec.ports[0].port: 70000 is not a port number from 1 to 65535"}},
		{"a negative node port", ports(corev1.ServicePort{Port: 80, NodePort: -1}),
			[]string{"spec.ports[0].nodePort: -1 is not a port number from 0 to 65535"}},
		{"a port of the health check that is none", func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 70000 },
			[]string{"spec.healthCheckNodePort: 70000 is not a port number from 0 to 65535"}},
		{"an unknown protocol", ports(corev1.ServicePort{Port: 80, Protocol: "tcp"}),
			[]string{`spec.ports[0].protocol: "tcp" is none of TCP, UDP, SCTP`}},
		{"an unnamed port among several", ports(corev1.ServicePort{Port: 80}, corev1.ServicePort{Name: "b", Port: 81}),
			[]string{"spec.ports[0].name: a port needs a name where there are several"}},
		{"a port name with control characters", ports(corev1.ServicePort{Name: "a\x1b[2Jb", Port: 80}),
			[]string{`Service shop/web: spec.ports[0].name: "a\x1b[2Jb" is no valid name of a port`}},
		{"a port name of capitals", ports(corev1.ServicePort{Name: "HTTP", Port: 80}),
			[]string{`spec.ports[0].name: "HTTP" is no valid name of a port`}},
		{"a port name of 64 characters", ports(corev1.ServicePort{Name: strings.Repeat("a", 64), Port: 80}),
			[]string{"is no valid name of a port: must be no more than 63"}},
		{"two ports of one name", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "a", Port: 81}),
			[]string{`spec.ports[1].name: "a" is also the name of spec.ports[0]`}},
		{"two ports of one number and protocol", ports(corev1.ServicePort{Name: "a", Port: 80}, corev1.ServicePort{Name: "b", Port: 80}),
			[]string{"spec.ports[1].port: 80/TCP is also the port of spec.ports[0]"}},
		{"two ports of one node port and protocol",
			ports(corev1.ServicePort{Name: "a", Port: 80, NodePort: 30000}, corev1.ServicePort{Name: "b", Port: 81, NodePort: 30000}),
			[]string{"spec.ports[1].nodePort: 30000/TCP is also the node port of spec.ports[0]"}},
		{"an unknown type", func(s *corev1.Service) { s.Spec.Type = "Clusterip" },
			[]string{`spec.type: "Clusterip" is none of ClusterIP, NodePort, LoadBalancer, ExternalName`}},
		{"an unknown internal policy", func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicy("Node"))
		},
			[]string{`spec.internalTrafficPolicy: "Node" is none of Cluster, Local`}},
		{"an unknown external policy", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = "local" },
			[]string{`spec.externalTrafficPolicy: "local" is none of Cluster, Local`}},
		{"an unknown affinity", func(s *corev1.Service) { s.Spec.SessionAffinity = "Cookie" },
			[]string{`spec.sessionAffinity: "Cookie" is none of None, ClientIP`}},
		{"a timeout of 0 (R18)", timeout(0),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 0 is not between 1 and 86400"}},
		{"a timeout of more than a day (R18)", timeout(86401),
			[]string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: 86401 is not between 1 and 86400"}},
		{"a range that is no CIDR (R22)", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0"} },
			[]string{`spec.loadBalancerSourceRanges[0]: "10.0.0.0" is not a CIDR such as 192.0.2.0/24: no '/'`}},
		{"a range of a mapped address (R22)", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"::ffff:10.0.0.0/104"} },
			[]string{`spec.loadBalancerSourceRanges[0]: "::ffff:10.0.0.0/104" is `}},
		{"an unknown ipMode (R21)", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: ptr(corev1.LoadBalancerIPMode("DSR"))}}
		}, []string{`status.loadBalancer.ingress[0].ipMode: "DSR" is none of VIP, Proxy`}},
		{"an ingress that is no address", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "lb.example"}}
		}, []string{`status.loadBalancer.ingress[0].ip: "lb.example" is not an IP address`}},
		{"several things at once, all named", func(s *corev1.Service) {
			s.Spec.Type = "x"
			s.Spec.Ports = []corev1.ServicePort{{Port: 0, Protocol: "y"}}
		}, []string{"spec.type", "spec.ports[0].protocol", "spec.ports[0].port"}},
		{"a value of several lines, in one line", func(s *corev1.Service) { s.Spec.Type = "a\nb" },
			[]string{`spec.type: "a\nb" is none of`}},
	} {
		t.Run("a Service is refused for "+tc.name, func(t *testing.T) {
			in := web()
			tc.edit(in)
			event, problems := new(Converter).Event(in)
			wantProblems(t, problems, tc.want...)
			if !event.gone() {
				t.Errorf("an object came with the problems: %+v", event)
			}
		})
	}
}

// wantProblems compares problems by parts of their one line each.
func wantProblems(t *testing.T, got []Problem, want ...string) {
	t.Helper()
	for i, p := range got {
		if line := p.Error(); i >= len(want) || !strings.Contains(line, want[i]) {
			t.Errorf("unexpected problem: %s", line)
		} else if strings.Contains(line, "\n") {
			t.Errorf("a problem of several lines: %q", line)
		}
	}
	for i := len(got); i < len(want); i++ {
		t.Errorf("missing problem: %s", want[i])
	}
}

func TestASelectionThatMeansNothingIsNamedAndTheServiceServedAllTheSame(t *testing.T) {
	for value, message := range map[string]string{
		"":       `ignored: "" is none of random, maglev`,
		"Maglev": `ignored: "Maglev" is none of random, maglev`,
		"a\nb":   `ignored: "a\nb" is none of random, maglev`,
	} {
		in := web()
		in.Annotations = map[string]string{"fairlead.io/selection": value}
		event, problems := new(Converter).Event(in)
		if diff := cmp.Diff(webModel(), event.Service, compareAddresses); diff != "" {
			t.Errorf("%q (-want +got)\n%s", value, diff)
		}
		if len(problems) != 1 || problems[0].Message != message || problems[0].Field != "metadata.annotations[fairlead.io/selection]" {
			t.Errorf("%q: problems %q, want %q", value, problems, message)
		}
	}
}

func TestConvertNode(t *testing.T) {
	for _, tc := range []struct {
		name     string
		in       corev1.Node
		want     *Node
		problems []string
	}{
		{"zone and addresses are read, host names are not (R17)",
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "z1"}},
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeHostName, Address: "n1"},
					{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
					{Type: corev1.NodeExternalIP, Address: "2001:db8::1"}}}},
			&Node{Name: "n1", Zone: "z1", Addresses: []string{"10.0.0.1", "2001:db8::1"}}, nil},
		{"an address that cannot be read is named, and the node is kept",
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "x"}}}},
			&Node{Name: "n1"}, []string{`Node n1: status.addresses[0].address: ignored: "x" is not an IP address`}},
		{"a node that is being deleted leaves (R30)",
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", DeletionTimestamp: &metav1.Time{}}},
			&Node{Name: "n1", Leaving: true}, nil},
		{"a node that the cluster autoscaler will delete leaves (R30)",
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: "ToBeDeletedByClusterAutoscaler"}}}},
			&Node{Name: "n1", Leaving: true}, nil},
		{"a node with other taints stays (R30)",
			corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.kubernetes.io/unschedulable"}}}},
			&Node{Name: "n1"}, nil},
		{"a node without a name is refused", corev1.Node{}, nil, []string{"metadata.name: the name is missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			event, problems := new(Converter).Event(&tc.in)
			wantProblems(t, problems, tc.problems...)
			if diff := cmp.Diff(tc.want, event.Node); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestConvertRefusesOtherTypes(t *testing.T) {
	event, problems := new(Converter).Event(&corev1.Pod{})
	wantProblems(t, problems, "an object of type *v1.Pod is not read")
	if !event.gone() {
		t.Errorf("got %+v", event)
	}
}

func TestConvertNeverHalf(t *testing.T) {
	// For any ports, a Service comes with all of them, or is refused.
	rapid.Check(t, func(t *rapid.T) {
		in := web()
		in.Spec.Ports = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.ServicePort {
			return corev1.ServicePort{
				Name:     rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "name"),
				Port:     rapid.SampledFrom([]int32{0, 80, 81, 82, 70000}).Draw(t, "port"),
				Protocol: rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "ICMP"}).Draw(t, "protocol"),
			}
		}), 0, 4).Draw(t, "ports")
		event, problems := new(Converter).Event(in)
		if event.gone() != (len(problems) > 0) {
			t.Fatalf("object %+v with problems %v", event.Service, problems)
		}
		if event.gone() {
			return
		}
		numbers := make(map[string]bool)
		for _, p := range event.Service.Ports {
			numbers[fmt.Sprint(p.Port, p.Protocol)] = true
		}
		if len(numbers) != len(in.Spec.Ports) {
			t.Fatalf("%d distinct ports of %d", len(numbers), len(in.Spec.Ports))
		}
	})
}
