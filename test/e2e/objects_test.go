// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

func TestWhichObjectsCount(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	pod, _ := n.client(t, "client")
	all := func(t *testing.T, check func(way)) {
		for _, w := range ways {
			check(w)
		}
	}

	for _, c := range []struct {
		name   string
		change func(*service)
		served bool
		reason string
	}{
		{"a Service labelled for another proxy is left to it (R1)",
			func(s *service) { s.metadata = "labels: {service.kubernetes.io/service-proxy-name: other}" },
			false, `label service.kubernetes.io/service-proxy-name leaves it to the proxy "other"`},
		{"a Service labelled for fairlead is served (R1)",
			func(s *service) { s.metadata = "labels: {service.kubernetes.io/service-proxy-name: fairlead}" },
			true, ""},
		{"a Service of type ExternalName has nothing to serve (R2)",
			func(s *service) { s.vip = pair{}; s.spec = "type: ExternalName, externalName: example.org" },
			false, "a Service of type ExternalName has no address of its own"},
		{"a headless Service has nothing to serve (R2)",
			func(s *service) { s.vip = pair{}; s.spec = "clusterIP: None" },
			false, "the Service is headless, or has no clusterIP yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vip := n.vip()
			s := service{name: "web", vip: vip}
			c.change(&s)
			n.serve(t, s, ready(a))
			if c.served {
				all(t, func(w way) { expect(t, pod, w, vip, servicePort, "a") })
			} else {
				all(t, func(w way) { expectUntouched(t, pod, w, vip, servicePort) })
			}
			services, err := n.api.Services(t.Context())
			if err != nil || len(services.Services) != 1 || services.Services[0].Reason != c.reason {
				t.Errorf("services %+v, %v; want the reason %q", services.Services, err, c.reason)
			}
			n.remove(t, "web")
		})
	}

	t.Run("a slice labelled headless does not count (R2)", func(t *testing.T) {
		s := service{name: "web", vip: n.vip()}
		label := "service.kubernetes.io/headless: '', kubernetes.io/service-name"
		n.write(t, "web.yaml", s.yaml(allReady(a))+strings.ReplaceAll(sliceYAML("headless", "web", allReady(b)), "kubernetes.io/service-name", label))
		n.settle(t)
		all(t, func(w way) { expect(t, pod, w, s.vip, servicePort, "a") })
		n.remove(t, "web")
	})

	t.Run("slices belong to the Service of their label and namespace, whatever they are called (R3)", func(t *testing.T) {
		web, longer, elsewhere := service{name: "web", vip: n.vip()}, service{name: "web-2", vip: n.vip()}, service{name: "web", vip: n.vip()}
		// All three have slices of the same names.
		text := func(s service, b *backend) string {
			return s.yaml(nil)[:strings.Index(s.yaml(nil), "---")] + sliceYAML("slice", s.name, allReady(b))
		}
		n.write(t, "web.yaml", text(web, a))
		n.write(t, "elsewhere.yaml", strings.ReplaceAll(text(elsewhere, b), "namespace: default", "namespace: elsewhere"))
		n.serve(t, longer, ready(b))
		all(t, func(w way) {
			expect(t, pod, w, web.vip, servicePort, "a")
			expect(t, pod, w, longer.vip, servicePort, "b")
			expect(t, pod, w, elsewhere.vip, servicePort, "b")
		})
		n.remove(t, "web", "elsewhere", "web-2")
	})

	t.Run("an endpoint that stands in two slices counts once (R4)", func(t *testing.T) {
		s := service{name: "web", vip: n.vip()}
		n.write(t, "web.yaml", s.yaml(allReady(a, b))+sliceYAML("again", "web", allReady(a)))
		n.settle(t)
		if row := n.row(t, "web", s.vip.v4, servicePort, "TCP"); len(row.Backends) != 2 || len(row.Backends[0].Slices)+len(row.Backends[1].Slices) != 3 {
			t.Errorf("backends %+v, want two, one of them from two slices", row.Backends)
		}
		all(t, func(w way) { expect(t, pod, w, s.vip, servicePort, "a", "b") })
		n.remove(t, "web")
	})

	t.Run("a named port may have another number at each endpoint (R5)", func(t *testing.T) {
		const number = 9090
		place, addrs := n.pod(t, "nine")
		listen(t, place.NetNS, "nine", number, addrs.list()...)
		nine := &backend{name: "nine", node: nodeName, addrs: addrs}
		s := service{name: "web", vip: n.vip()}
		n.write(t, "web.yaml", s.yaml(allReady(a))+
			strings.ReplaceAll(sliceYAML("nine", "web", allReady(nine)), fmt.Sprint(backendPort), fmt.Sprint(number)))
		n.settle(t)
		all(t, func(w way) { expect(t, pod, w, s.vip, servicePort, "a", "nine") })
		n.remove(t, "web")
	})

	t.Run("a load balancer without node ports has none (R25)", func(t *testing.T) {
		vip := n.externalAddress()
		n.serve(t, service{name: "web", vip: n.vip(), spec: "type: LoadBalancer, allocateLoadBalancerNodePorts: false", ingress: ingressOf(vip, "")}, ready(a))
		rows, err := n.api.Frontends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row.Type == "NodePort" {
				t.Errorf("there is a row %+v", row)
			}
		}
		all(t, func(w way) { expect(t, pod, w, vip, servicePort, "a") })
		n.remove(t, "web")
	})

	t.Run("a family without endpoints does not stop the other (R26)", func(t *testing.T) {
		s := service{name: "web", vip: n.vip()}
		n.write(t, "web.yaml", strings.Replace(s.yaml(allReady(a)), "kubernetes.io/service-name: web}}\naddressType: IPv6", "kubernetes.io/service-name: nobody}}\naddressType: IPv6", 1))
		n.settle(t)
		all(t, func(w way) {
			if w.v6 {
				expectError(t, pod, w, s.vip, servicePort, rejected)
				return
			}
			expect(t, pod, w, s.vip, servicePort, "a")
		})
		n.remove(t, "web")
	})

	t.Run("what is not served says so: SCTP is a row of its own (R28)", func(t *testing.T) {
		s := service{name: "web", vip: n.vip()}
		n.write(t, "web.yaml", strings.ReplaceAll(s.yaml(allReady(a)), "protocol: UDP", "protocol: SCTP"))
		n.settle(t)
		if row := n.row(t, "web", s.vip.v4, servicePort, "SCTP"); row.Action != "unsupported" || row.Reason == "" {
			t.Errorf("row %+v, want the action unsupported, with a reason", row)
		}
		if out := n.run(t, 0, "get", "frontends", "default/web"); !strings.Contains(out, "unsupported") {
			t.Errorf("get frontends does not say unsupported:\n%s", out)
		}
		expect(t, pod, ways[0], s.vip, servicePort, "a")
		n.remove(t, "web")
	})
}

func TestNothingMissing(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	place, _ := n.pod(t, "client")

	t.Run("an endpoint that moves between slices is never absent (R4)", func(t *testing.T) {
		s := service{name: "web", vip: n.vip()}
		object, _, _ := strings.Cut(s.yaml(nil), "---")
		text := func(one, two []endpoint) string {
			return object + sliceYAML("one", "web", one) + sliceYAML("two", "web", two)
		}
		n.write(t, "web.yaml", text(allReady(a), nil))
		n.settle(t)
		load := startLoad(t, place, at(s.vip, servicePort)...)
		for range 10 {
			for _, moved := range []string{text(nil, allReady(a)), text(allReady(a), nil)} {
				n.write(t, "web.yaml", moved)
				n.settle(t)
			}
		}
		load.end()
	})

	t.Run("the loser of an address is shadowed, and takes over without a gap (R27)", func(t *testing.T) {
		shared := n.externalAddress()
		contender := func(name, created string) service {
			return service{
				name: name, vip: n.vip(), spec: "externalIPs: [" + shared.ips() + "]",
				metadata: "creationTimestamp: '" + created + "'",
			}
		}
		older, younger := contender("older", "2026-01-01T00:00:00Z"), contender("younger", "2026-01-02T00:00:00Z")
		n.serve(t, older, ready(a))
		n.serve(t, younger, ready(b))
		if row := n.row(t, "younger", shared.v4, servicePort, "TCP"); row.Action != "shadowed" || !strings.Contains(row.Reason, "default/older") {
			t.Errorf("row %+v, want it shadowed by default/older", row)
		}
		pod := traffic.StartClient(t, place)
		for _, w := range ways {
			expect(t, pod, w, shared, servicePort, "a")
			expect(t, pod, w, younger.vip, servicePort, "b")
		}
		load := startLoad(t, place, at(shared, servicePort)...)
		for range 5 {
			n.remove(t, "older")
			if row := n.row(t, "younger", shared.v4, servicePort, "TCP"); row.Action != "forward" {
				t.Errorf("row %+v, want it to forward", row)
			}
			expect(t, pod, ways[0], shared, servicePort, "b")
			n.serve(t, older, ready(a))
			expect(t, pod, ways[0], shared, servicePort, "a")
		}
		load.end()
	})

	t.Run("the set flips under load, and everybody is answered (R9)", func(t *testing.T) {
		s := service{name: "flipping", vip: n.vip()}
		n.serve(t, s, ready(a))
		load := startLoad(t, place, at(s.vip, servicePort)...)
		for began := time.Now(); time.Since(began) < time.Second; {
			n.serve(t, s, allReady(a, b)...)
			n.serve(t, s, ready(b))
			n.serve(t, s, ready(a))
		}
		for target, tally := range load.end() {
			if tally.Servers["a"] == 0 || tally.Servers["b"] == 0 {
				t.Errorf("%s: answered by %v, want both", target, tally.Servers)
			}
		}
	})
}
