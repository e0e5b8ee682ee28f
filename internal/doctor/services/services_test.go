// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// objects reads lists of Services and EndpointSlices, as kubectl prints them.
func objects(t interface{ Fatalf(string, ...any) }, services, slices string) *facts.Objects {
	record := func(resource, content string) evidence.Record {
		return evidence.Record{
			Path: "1/objects/" + resource + ".yaml", Kind: evidence.Objects, Sample: 1, Command: "kubectl get " + resource,
			Resources: []string{resource}, Content: []byte("apiVersion: v1\nkind: List\nitems: " + content),
		}
	}
	c := facts.Read(&evidence.Bundle{Records: []evidence.Record{
		record("services", services), record("endpointslices.discovery.k8s.io", slices),
	}})
	if len(c.Unread) > 0 {
		t.Fatalf("the objects of the test cannot be read: %s", c.Unread[0].Why)
	}
	return c.Last().Objects
}

const (
	web = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {
		clusterIP: 10.0.0.10, clusterIPs: [10.0.0.10, "fd00::10"], externalIPs: [192.0.2.1], ports: [{port: 80}, {port: 443}]},
		status: {loadBalancer: {ingress: [{ip: 192.0.2.2}, {ip: 192.0.2.3, ipMode: Proxy}, {hostname: lb.example.org}]}}}`
	webSlice = `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}},
		addressType: IPv4, endpoints: [{addresses: [10.1.0.8]}, {addresses: [10.1.0.7], conditions: {ready: true}}, {addresses: [10.1.0.9], conditions: {ready: false}}],
		ports: [{name: http, port: 8080}, {name: none}]}`
	foreignSlice = `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-2, namespace: test, labels: {kubernetes.io/service-name: web}},
		addressType: IPv4, endpoints: [{addresses: [10.1.0.66]}], ports: [{port: 8080}]}`
)

func TestAll(t *testing.T) {
	o := objects(t, "["+web+"]", "["+webSlice+", "+foreignSlice+"]")
	s, found := Find(All(o), "shop/web")
	if !found {
		t.Fatal("the Service is not found")
	}
	t.Run("a slice belongs to the Service of its own namespace (R3)", func(t *testing.T) {
		if len(s.Slices) != 1 || s.Slices[0].Name != "web-1" {
			t.Errorf("the slices are %v", s.Slices)
		}
	})
	t.Run("an endpoint without a condition is ready (R6), a port without a number is none", func(t *testing.T) {
		if got, want := fmt.Sprint(s.Ready()), "[10.1.0.7:8080 10.1.0.8:8080]"; got != want {
			t.Errorf("ready are %s, want %s", got, want)
		}
	})
	t.Run("a load balancer that traffic passes through has no address here (R21)", func(t *testing.T) {
		var got []string
		for _, a := range s.Addresses() {
			got = append(got, a.String())
		}
		want := strings.Fields("10.0.0.10:80 10.0.0.10:443 [fd00::10]:80 [fd00::10]:443 192.0.2.1:80 192.0.2.1:443 192.0.2.2:80 192.0.2.2:443")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("evidence is as kubectl lists it", func(t *testing.T) {
		if got, want := Shown(o, s)[0].Excerpt, "shop/web  ClusterIP  10.0.0.10  192.0.2.2,192.0.2.3,lb.example.org,192.0.2.1  80/TCP,443/TCP"; got != want {
			t.Errorf("the Service is shown as %q, want %q", got, want)
		}
		if got, want := ShownSlices(o, s)[0].Excerpt, "shop/web-1  IPv4  8080  10.1.0.8,10.1.0.7,10.1.0.9 (not ready)"; got != want {
			t.Errorf("its slice is shown as %q, want %q", got, want)
		}
	})
}

func TestServed(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		want   bool
	}{
		"a cluster IP is served":                              {"metadata: {name: a}, spec: {clusterIP: 10.0.0.1}", true},
		"a headless Service is not (R2)":                      {"metadata: {name: a}, spec: {clusterIP: None}", false},
		"an ExternalName is not (R2)":                         {"metadata: {name: a}, spec: {type: ExternalName, externalName: b}", false},
		"what is labelled headless is not (R2)":               {`metadata: {name: a, labels: {service.kubernetes.io/headless: ""}}, spec: {clusterIP: 10.0.0.1}`, false},
		"what is labelled for another proxy is not ours (R1)": {"metadata: {name: a, labels: {service.kubernetes.io/service-proxy-name: b}}, spec: {clusterIP: 10.0.0.1}", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := objects(t, "[{apiVersion: v1, kind: Service, "+c.fields+"}]", "[]")
			if got := All(o)[0].Served(); got != c.want {
				t.Errorf("Served() = %t", got)
			}
		})
	}
}

func TestNothingIsKnownWithoutAllSlices(t *testing.T) {
	c := facts.Read(&evidence.Bundle{Records: []evidence.Record{{
		Path: "1/objects/services.yaml", Kind: evidence.Objects, Sample: 1, Resources: []string{"services"}, Content: []byte(web),
	}}})
	if all := All(c.Last().Objects); all != nil {
		t.Errorf("All() = %v without the slices", all)
	}
	if all := All(nil); all != nil {
		t.Errorf("All(nil) = %v", all)
	}
}

func TestEveryServiceIsFoundByItsName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-c-]{1,3}/[a-c-]{1,3}`), 1, 12, rapid.ID).Draw(t, "names")
		items := make([]string, len(names))
		for i, name := range names {
			namespace, bare, _ := strings.Cut(name, "/")
			items[i] = fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s1, namespace: %s1}}", "a"+bare, "a"+namespace)
			names[i] = fmt.Sprintf("a%s1/a%s1", namespace, bare)
		}
		all := All(objects(t, "["+strings.Join(items, ", ")+"]", "[]"))
		for _, name := range names {
			if s, found := Find(all, name); !found || s.String() != name {
				t.Fatalf("%s is not found among %v", name, all)
			}
		}
		if _, found := Find(all, "a/b"); found {
			t.Fatal("found what is not there")
		}
	})
}

func TestPast(t *testing.T) {
	kind := journal.Kind{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"}
	content := []byte(`{"metadata":{"labels":{"kubernetes.io/service-name":"web"}},"endpoints":[{"addresses":["10.1.0.7"]}],"ports":[{"port":80}]}`)
	other := []byte(`{"metadata":{"labels":{"kubernetes.io/service-name":"web-2"}}}`)
	past := Past([]journal.Event{
		{ID: 1, Kind: kind, Namespace: "shop", Type: journal.Added, Content: content},
		{ID: 2, Kind: kind, Namespace: "test", Type: journal.Added, Content: content},
		{ID: 3, Kind: kind, Namespace: "shop", Type: journal.Added, Content: other},
		{ID: 4, Kind: kind, Namespace: "shop", Type: journal.Modified, Content: []byte("{")},
		{ID: 5, Kind: journal.Kind{Resource: "services"}, Namespace: "shop", Type: journal.Modified, Content: content},
		{ID: 6, Kind: kind, Namespace: "shop", Type: journal.Deleted, Content: content},
	}, "shop", "web")
	var got []string
	for _, m := range past {
		got = append(got, fmt.Sprintf("%d: %d ready", m.Event.ID, len(m.Ready())))
	}
	if want := []string{"1: 1 ready", "6: 0 ready"}; !slices.Equal(got, want) {
		t.Errorf("the past is %v, want %v: what is gone has no endpoints, and what is damaged or of others is left out", got, want)
	}
}
