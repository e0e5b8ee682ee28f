// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestWhichObjectsCount(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	pod, _ := n.client(t, "client")
	all := func(t *testing.T, check func(rig.Way)) {
		for _, w := range ways {
			check(w)
		}
	}

	for _, c := range []struct {
		name   string
		change func(*rig.Service)
		served bool
		reason string
	}{
		{"a Service labelled for another proxy is left to it (R1)",
			func(s *rig.Service) { s.Metadata = "labels: {service.kubernetes.io/service-proxy-name: other}" },
			false, `label service.kubernetes.io/service-proxy-name leaves it to the proxy "other"`},
		{"a Service labelled for fairlead is served (R1)",
			func(s *rig.Service) { s.Metadata = "labels: {service.kubernetes.io/service-proxy-name: fairlead}" },
			true, ""},
		{"a Service of type ExternalName has nothing to serve (R2)",
			func(s *rig.Service) { s.VIP = rig.Pair{}; s.Spec = "type: ExternalName, externalName: example.org" },
			false, "a Service of type ExternalName has no address of its own"},
		{"a headless Service has nothing to serve (R2)",
			func(s *rig.Service) { s.VIP = rig.Pair{}; s.Spec = "clusterIP: None" },
			false, "the Service is headless, or has no clusterIP yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vip := n.vip()
			s := rig.Service{Name: "web", VIP: vip}
			c.change(&s)
			n.Serve(t, s, rig.Ready(a))
			if c.served {
				all(t, func(w rig.Way) { rig.Expect(t, pod, w, vip, rig.ServicePort, "a") })
			} else {
				all(t, func(w rig.Way) { expectUntouched(t, pod, w, vip, rig.ServicePort) })
			}
			services, err := n.API.Services(t.Context())
			if err != nil || len(services.Services) != 1 || services.Services[0].Reason != c.reason {
				t.Errorf("services %+v, %v; want the reason %q", services.Services, err, c.reason)
			}
			n.Remove(t, "web")
		})
	}

	t.Run("a slice labelled headless does not count (R2)", func(t *testing.T) {
		s := rig.Service{Name: "web", VIP: n.vip()}
		label := "service.kubernetes.io/headless: '', kubernetes.io/service-name"
		n.Write(t, "web.yaml", s.YAML(rig.AllReady(a))+strings.ReplaceAll(rig.SliceYAML("headless", "web", rig.AllReady(b)), "kubernetes.io/service-name", label))
		n.Settle(t)
		all(t, func(w rig.Way) { rig.Expect(t, pod, w, s.VIP, rig.ServicePort, "a") })
		n.Remove(t, "web")
	})

	t.Run("slices belong to the Service of their label and namespace, whatever they are called (R3)", func(t *testing.T) {
		web, longer, elsewhere := rig.Service{Name: "web", VIP: n.vip()}, rig.Service{Name: "web-2", VIP: n.vip()}, rig.Service{Name: "web", VIP: n.vip()}
		// All three have slices of the same names.
		text := func(s rig.Service, b *rig.Backend) string {
			return s.YAML(nil)[:strings.Index(s.YAML(nil), "---")] + rig.SliceYAML("slice", s.Name, rig.AllReady(b))
		}
		n.Write(t, "web.yaml", text(web, a))
		n.Write(t, "elsewhere.yaml", strings.ReplaceAll(text(elsewhere, b), "namespace: default", "namespace: elsewhere"))
		n.Serve(t, longer, rig.Ready(b))
		all(t, func(w rig.Way) {
			rig.Expect(t, pod, w, web.VIP, rig.ServicePort, "a")
			rig.Expect(t, pod, w, longer.VIP, rig.ServicePort, "b")
			rig.Expect(t, pod, w, elsewhere.VIP, rig.ServicePort, "b")
		})
		n.Remove(t, "web", "elsewhere", "web-2")
	})

	t.Run("an endpoint that stands in two slices counts once (R4)", func(t *testing.T) {
		s := rig.Service{Name: "web", VIP: n.vip()}
		n.Write(t, "web.yaml", s.YAML(rig.AllReady(a, b))+rig.SliceYAML("again", "web", rig.AllReady(a)))
		n.Settle(t)
		if row := n.Row(t, "web", s.VIP.V4, rig.ServicePort, "TCP"); len(row.Backends) != 2 || len(row.Backends[0].Slices)+len(row.Backends[1].Slices) != 3 {
			t.Errorf("backends %+v, want two, one of them from two slices", row.Backends)
		}
		all(t, func(w rig.Way) { rig.Expect(t, pod, w, s.VIP, rig.ServicePort, "a", "b") })
		n.Remove(t, "web")
	})

	t.Run("a named port may have another number at each endpoint (R5)", func(t *testing.T) {
		const number = 9090
		place, addrs := n.pod(t, "nine")
		rig.Listen(t, place.NetNS, "nine", number, addrs.List()...)
		nine := &rig.Backend{Name: "nine", Node: nodeName, Addrs: addrs}
		s := rig.Service{Name: "web", VIP: n.vip()}
		n.Write(t, "web.yaml", s.YAML(rig.AllReady(a))+
			strings.ReplaceAll(rig.SliceYAML("nine", "web", rig.AllReady(nine)), fmt.Sprint(rig.BackendPort), fmt.Sprint(number)))
		n.Settle(t)
		all(t, func(w rig.Way) { rig.Expect(t, pod, w, s.VIP, rig.ServicePort, "a", "nine") })
		n.Remove(t, "web")
	})

	t.Run("a load balancer without node ports has none (R25)", func(t *testing.T) {
		vip := n.externalAddress()
		n.Serve(t, rig.Service{Name: "web", VIP: n.vip(), Spec: "type: LoadBalancer, allocateLoadBalancerNodePorts: false", Ingress: rig.Ingress(vip, "")}, rig.Ready(a))
		rows, err := n.API.Frontends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Type == "NodePort" {
				t.Errorf("there is a row %+v", row)
			}
		}
		all(t, func(w rig.Way) { rig.Expect(t, pod, w, vip, rig.ServicePort, "a") })
		n.Remove(t, "web")
	})

	t.Run("a family without endpoints does not stop the other (R26)", func(t *testing.T) {
		s := rig.Service{Name: "web", VIP: n.vip()}
		n.Write(t, "web.yaml", strings.Replace(s.YAML(rig.AllReady(a)), "kubernetes.io/service-name: web}}\naddressType: IPv6", "kubernetes.io/service-name: nobody}}\naddressType: IPv6", 1))
		n.Settle(t)
		all(t, func(w rig.Way) {
			if w.V6 {
				rig.ExpectError(t, pod, w, s.VIP, rig.ServicePort, rejected)
				return
			}
			rig.Expect(t, pod, w, s.VIP, rig.ServicePort, "a")
		})
		n.Remove(t, "web")
	})

	t.Run("what is not served says so: SCTP is a row of its own (R28)", func(t *testing.T) {
		s := rig.Service{Name: "web", VIP: n.vip()}
		n.Write(t, "web.yaml", strings.ReplaceAll(s.YAML(rig.AllReady(a)), "protocol: UDP", "protocol: SCTP"))
		n.Settle(t)
		if row := n.Row(t, "web", s.VIP.V4, rig.ServicePort, "SCTP"); row.Action != "unsupported" || row.Reason == "" {
			t.Errorf("row %+v, want the action unsupported, with a reason", row)
		}
		if out := n.Run(t, 0, "get", "frontends", "default/web"); !strings.Contains(out, "unsupported") {
			t.Errorf("get frontends does not say unsupported:\n%s", out)
		}
		rig.Expect(t, pod, ways[0], s.VIP, rig.ServicePort, "a")
		n.Remove(t, "web")
	})
}

func TestNothingMissing(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	place, _ := n.pod(t, "client")

	t.Run("an endpoint that moves between slices is never absent (R4)", func(t *testing.T) {
		s := rig.Service{Name: "web", VIP: n.vip()}
		object, _, _ := strings.Cut(s.YAML(nil), "---")
		text := func(one, two []rig.Endpoint) string {
			return object + rig.SliceYAML("one", "web", one) + rig.SliceYAML("two", "web", two)
		}
		n.Write(t, "web.yaml", text(rig.AllReady(a), nil))
		n.Settle(t)
		load := startLoad(t, place, at(s.VIP, rig.ServicePort)...)
		for range 10 {
			for _, moved := range []string{text(nil, rig.AllReady(a)), text(rig.AllReady(a), nil)} {
				n.Write(t, "web.yaml", moved)
				n.Settle(t)
			}
		}
		load.end()
	})

	t.Run("the loser of an address is shadowed, and takes over without a gap (R27)", func(t *testing.T) {
		shared := n.externalAddress()
		contender := func(name, created string) rig.Service {
			return rig.Service{
				Name: name, VIP: n.vip(), Spec: "externalIPs: [" + shared.Items() + "]",
				Metadata: "creationTimestamp: '" + created + "'",
			}
		}
		older, younger := contender("older", "2026-01-01T00:00:00Z"), contender("younger", "2026-01-02T00:00:00Z")
		n.Serve(t, older, rig.Ready(a))
		n.Serve(t, younger, rig.Ready(b))
		if row := n.Row(t, "younger", shared.V4, rig.ServicePort, "TCP"); row.Action != "shadowed" || !strings.Contains(row.Reason, "default/older") {
			t.Errorf("row %+v, want it shadowed by default/older", row)
		}
		pod := traffic.StartClient(t, place)
		for _, w := range ways {
			rig.Expect(t, pod, w, shared, rig.ServicePort, "a")
			rig.Expect(t, pod, w, younger.VIP, rig.ServicePort, "b")
		}
		load := startLoad(t, place, at(shared, rig.ServicePort)...)
		for range 5 {
			n.Remove(t, "older")
			if row := n.Row(t, "younger", shared.V4, rig.ServicePort, "TCP"); row.Action != "forward" {
				t.Errorf("row %+v, want it to forward", row)
			}
			rig.Expect(t, pod, ways[0], shared, rig.ServicePort, "b")
			n.Serve(t, older, rig.Ready(a))
			rig.Expect(t, pod, ways[0], shared, rig.ServicePort, "a")
		}
		load.end()
	})

	t.Run("the set flips under load, and everybody is answered (R9)", func(t *testing.T) {
		s := rig.Service{Name: "flipping", VIP: n.vip()}
		n.Serve(t, s, rig.Ready(a))
		load := startLoad(t, place, at(s.VIP, rig.ServicePort)...)
		for began := time.Now(); time.Since(began) < time.Second; {
			n.Serve(t, s, rig.AllReady(a, b)...)
			// One that left at once would take its connected UDP sockets with it (R35).
			n.Serve(t, s, rig.Ready(b), rig.Terminating(a))
			n.Serve(t, s, rig.Ready(a), rig.Terminating(b))
		}
		for target, tally := range load.end() {
			if tally.Servers["a"] == 0 || tally.Servers["b"] == 0 {
				t.Errorf("%s: answered by %v, want both", target, tally.Servers)
			}
		}
	})
}
