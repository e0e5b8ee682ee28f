// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/layers"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// cluster is a bundle of a node whose Cilium serves as many Services, with one
// backend each, in all its tables. In the kernel's those in broken have none.
func cluster(t testing.TB, services int, broken func(int) bool) *evidence.Bundle {
	t.Helper()
	at := time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)
	var objects, slices []any
	var frontends, backends, kernel bytes.Buffer
	fmt.Fprintf(&frontends, "%-24s%-12s%-20s%-11s%-24s%-9s%-8s%-8s%s\n", "Address", "Type", "ServiceName", "PortName", "Backends", "Redirect", "Status", "Since", "Error")
	fmt.Fprintf(&backends, "%-20s%-24s%-8s%-8s%s\n", "Service", "Address", "Source", "State", "PortNames")
	fmt.Fprintf(&kernel, "%-32s%s\n", "SERVICE ADDRESS", "BACKEND ADDRESS (REVNAT_ID) (SLOT)")
	for i := range services {
		name, address, backend := fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i>>8, i&255), fmt.Sprintf("10.%d.%d.7", 100+i>>8, i&255)
		meta := metav1.ObjectMeta{Name: name, Namespace: "shop"}
		objects = append(objects, corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta,
			Spec: corev1.ServiceSpec{ClusterIP: address, ClusterIPs: []string{address}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
		})
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		slices = append(slices, discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{backend}}}, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		})
		fmt.Fprintf(&frontends, "%-24s%-12s%-20s%-11s%-24s%-9s%-8s%s\n", address+":80/TCP", "ClusterIP", "shop/"+name, "http", backend+":8080/TCP", "", "Done", "5m")
		fmt.Fprintf(&backends, "%-20s%-24s%-8s%-8s%s\n", "shop/"+name, backend+":8080/TCP", "k8s", "active", "http")
		fmt.Fprintf(&kernel, "%-32s%s\n", address+":80/TCP (0)", fmt.Sprintf("0.0.0.0:0 (%d) (0) [ClusterIP, non-routable]", i+1))
		if !broken(i) {
			fmt.Fprintf(&kernel, "%-32s%s\n", address+":80/TCP (1)", fmt.Sprintf("%s:8080/TCP (%d) (1)", backend, i+1))
		}
	}
	record := func(path string, kind evidence.Kind, content []byte) evidence.Record {
		return evidence.Record{Path: path, Kind: kind, Node: "n1", Command: path, Sample: 1, Time: at, Content: content}
	}
	list := func(resource string, items []any) evidence.Record {
		content, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
		if err != nil {
			t.Fatal(err)
		}
		r := record(resource, evidence.Objects, content)
		r.Node, r.Resources = "", []string{resource}
		return r
	}
	return &evidence.Bundle{Records: []evidence.Record{
		list("services", objects), list("endpointslices.discovery.k8s.io", slices),
		record("db/show frontends", evidence.Dump, frontends.Bytes()),
		record("db/show backends", evidence.Dump, backends.Bytes()),
		record("bpf lb list", evidence.Dump, kernel.Bytes()),
	}}
}

func TestTheKernelAloneIsWrong(t *testing.T) {
	s := facts.Read(cluster(t, 10, func(i int) bool { return i == 7 })).Last()
	all := layers.In(s)
	if len(all) != 1 {
		t.Fatalf("%d partings, want 1: %+v", len(all), all)
	}
	p := all[0]
	if p.Service.String() != "shop/s7" || p.Kind != compare.Empty || p.Layer() != doctor.LayerKernel || !p.InForce() {
		t.Errorf("the parting is %s %v %s, in force %v", p.Service, p.Kind, p.Layer(), p.InForce())
	}
	if again := layers.In(s); &again[0] != &all[0] {
		t.Error("a sample is compared again for each check")
	}
}

func TestATableWithoutAnyBackendsIsOneFinding(t *testing.T) {
	all := layers.In(facts.Read(cluster(t, 10, func(int) bool { return true })).Last())
	if len(all) != 1 || len(all[0].All) != 10 || all[0].Subject() != "all Services" {
		t.Fatalf("%d partings, want one of 10 Services", len(all))
	}
	all = layers.In(facts.Read(cluster(t, 10, func(i int) bool { return i > 0 })).Last())
	if len(all) != 9 {
		t.Fatalf("%d partings, want 9 while one Service is well", len(all))
	}
}

// BenchmarkIn compares 10 000 Services through the three layers of Cilium, after
// the texts were read.
//
// Budget: 1 s.
func BenchmarkIn(b *testing.B) {
	bundle := cluster(b, 10_000, func(i int) bool { return i%1000 == 0 })
	for b.Loop() {
		b.StopTimer()
		s := facts.Read(bundle).Last()
		b.StartTimer()
		if found := layers.In(s); len(found) != 10 {
			b.Fatalf("%d partings, want 10", len(found))
		}
	}
}

// BenchmarkCheck puts 5000 broken Services of 10 000 into words.
//
// Budget: 1 s.
func BenchmarkCheck(b *testing.B) {
	s := facts.Read(cluster(b, 10_000, func(i int) bool { return i%2 == 0 })).Last()
	all := layers.In(s)
	check := layers.Check(layers.Outline{ID: "test", Kind: compare.Empty, Say: func(p *layers.Parting) (doctor.Severity, string, string) {
		return doctor.Critical, p.Subject() + " has no backends", ""
	}})
	for b.Loop() {
		if found := check.Sample(s); len(found) != len(all) {
			b.Fatalf("%d findings of %d partings", len(found), len(all))
		}
	}
}
