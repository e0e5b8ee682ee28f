// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

var began = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }

// incidentData is the shut-down of one of two API servers that share an
// address, amid what a cluster does all the time.
func incidentData() Data {
	endpoints := json.RawMessage(`[{"addresses":["100.64.128.7"],"conditions":{"ready":true}}]`)
	ports := json.RawMessage(`[{"name":"https","port":60002,"protocol":"TCP"}]`)
	slice := func(id int64, seconds float64, manager string, version string, diff ...journal.Change) Event {
		return Event{ID: id, Time: at(seconds), Kind: "EndpointSlice", Namespace: "default", Name: "kubernetes", Type: "modified", Manager: manager, ResourceVersion: version, Diff: diff}
	}
	d := Data{
		Title: "Incident 1", Source: "journal.db · kube-apiserver-1.log, kube-apiserver-2.log", Span: Span{From: at(0), To: at(180)},
		Events: []Event{
			{ID: 1, Time: at(0), Kind: "Service", Namespace: "default", Name: "kubernetes", Type: "listed", Manager: "kube-apiserver", ResourceVersion: "201",
				Diff: []journal.Change{{Op: "add", New: json.RawMessage(`{"metadata":{"name":"kubernetes","namespace":"default"},"spec":{"clusterIP":"192.168.0.1"}}`)}}},
			slice(40, 95.3, "kube-apiserver", "412", journal.Change{Path: "/endpoints", Op: "replace", Old: endpoints, New: json.RawMessage("null")}, journal.Change{Path: "/ports", Op: "replace", Old: ports, New: json.RawMessage("null")}),
			slice(44, 99.02, "kube-apiserver", "418", journal.Change{Path: "/endpoints", Op: "replace", Old: json.RawMessage("null"), New: endpoints}, journal.Change{Path: "/ports", Op: "replace", Old: json.RawMessage("null"), New: ports}),
			{ID: 48, Time: at(130), Kind: "Pod", Namespace: "shop", Name: "web-7", Type: "deleted", Manager: "kubelet", ResourceVersion: "430"},
			{ID: 49, Time: at(131), Kind: "Service", Namespace: "shop", Name: "web", Type: "added", Manager: "kubectl-client-side-apply", ResourceVersion: "431"},
		},
		Gaps: []Gap{{Kind: "NetworkPolicy", From: at(140), To: at(149.5), Reason: "410 Gone: too old resource version"}},
		Marks: []Mark{
			{Time: at(95.29), User: "system:apiserver", Verb: "update", What: "endpointslices default/kubernetes", Server: "kube-apiserver-1.log", Event: 40},
			{Time: at(99.01), User: "system:apiserver", Verb: "update", What: "endpointslices default/kubernetes", Server: "kube-apiserver-2.log", Event: 44},
			{Time: at(131), User: "admin", Verb: "create", What: "services shop/web", Server: "kube-apiserver-2.log", Event: 49},
		},
		Findings: []Finding{
			{Time: at(140), Severity: Warning, Invariant: "no-audit-record", Text: "No audit log has a record of how Pod shop/web-7 was deleted", Detail: "a server's log may be lost", Event: 48},
			{Time: at(95.3), Cleared: at(99.02), Severity: Alarm, Invariant: "apiserver-empty", Service: "default/kubernetes", Event: 40,
				Text: "the API left the Service without backend 192.0.2.11:6443", Detail: "an agent goes on with what the Service had for 10m at most; changed: /endpoints"},
		},
		Services: []Service{
			{Name: "default/kubernetes", Series: []Point{{Time: at(0), Backends: 1}, {Time: at(95.3), Backends: 0, Retained: 1}, {Time: at(99.02), Backends: 1}}},
			{Name: "default/kubernetes-intranet", Series: []Point{{Time: at(0), Backends: 1}}},
			{Name: "shop/web", Series: []Point{{Time: at(0), Backends: 3}, {Time: at(30), Backends: 4}, {Time: at(96), Backends: 2}, {Time: at(110), Backends: 4}}},
			{Name: "shop/none", Series: []Point{{Time: at(0), Backends: 0}}},
			{Name: "shop/late", Series: []Point{{Time: at(131), Backends: 0}, {Time: at(135), Backends: 2}, {Time: at(170), Gone: true}}},
		},
	}
	for i := range int64(36) {
		d.Events = append(d.Events, Event{
			ID: 2 + i, Time: at(float64(i) * 5), Kind: "Lease", Namespace: "kube-system", Name: fmt.Sprintf("apiserver-%d", i%2), Type: "modified", Manager: "kube-apiserver",
			ResourceVersion: fmt.Sprint(300 + i), Diff: []journal.Change{{Path: "/spec/renewTime", Op: "replace", Old: json.RawMessage(`"2026-11-20T10:00:00.000000Z"`), New: json.RawMessage(`"2026-11-20T10:00:05.000000Z"`)}},
		})
	}
	return d
}

// largeData is a day of a large cluster: many writers, objects and Services.
func largeData(events int) Data {
	chance := rand.New(rand.NewPCG(1, 2))
	managers := []string{"kube-controller-manager", "endpointslice-controller", "kubelet", "kube-scheduler", "kube-apiserver", "cloud-controller-manager", "argocd", "kubectl-client-side-apply", "cilium-operator", "helm", "node-problem-detector", "vpa"}
	kinds := []string{"EndpointSlice", "Lease", "Service", "Node", "NetworkPolicy", "ClusterRole"}
	types := []string{"modified", "modified", "modified", "modified", "modified", "added", "deleted"}
	d := Data{Title: "A day of a large cluster", Source: "large.db", Span: Span{From: began, To: began.Add(24 * time.Hour)}}
	for i := range events {
		when := began.Add(time.Duration(float64(24*time.Hour) * float64(i) / float64(events)))
		kind := kinds[min(int(chance.ExpFloat64()*1.3), len(kinds)-1)]
		d.Events = append(d.Events, Event{
			ID: int64(i + 1), Time: when, Kind: kind, Namespace: fmt.Sprintf("team-%d", chance.IntN(60)), Name: fmt.Sprintf("workload-%d-x%04x", chance.IntN(2000), chance.IntN(4)),
			Type: types[chance.IntN(len(types))], Manager: managers[min(int(chance.ExpFloat64()*2), len(managers)-1)], ResourceVersion: fmt.Sprint(1_000_000 + i*3),
			Diff: []journal.Change{
				{Path: fmt.Sprintf("/endpoints/%d/conditions/ready", chance.IntN(9)), Op: "replace", Old: json.RawMessage("true"), New: json.RawMessage("false")},
				{Path: "/metadata/annotations/endpoints.kubernetes.io~1last-change-trigger-time", Op: "replace",
					Old: json.RawMessage(`"2026-11-20T10:00:00Z"`), New: json.RawMessage(fmt.Sprintf("%q", when.Format(time.RFC3339)))},
			},
		})
	}
	for s := range 1500 {
		service := Service{Name: fmt.Sprintf("team-%d/service-%d", s%60, s), Series: []Point{{Time: began, Backends: 3}}}
		if s%5 == 0 {
			for n := range 400 {
				service.Series = append(service.Series, Point{Time: began.Add(time.Duration(n) * 210 * time.Second), Backends: 1 + chance.IntN(9)})
			}
		}
		d.Services = append(d.Services, service)
	}
	for i := range 20_000 {
		d.Marks = append(d.Marks, Mark{Time: began.Add(time.Duration(i) * 4 * time.Second), User: "system:node:n1", Verb: "patch", What: "nodes n1", Server: fmt.Sprintf("cp-%d", i%3)})
	}
	return d
}
