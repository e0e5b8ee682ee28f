// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

func TestTraffic(t *testing.T) {
	judged(t, []string{"service-gone", "service-empty", "slice-remade", "ingress-without-service", "ingress-gone"}, []row{
		{
			name: "a Service with ready endpoints", delete: "service/shop/web",
			want: []string{
				"Breaks service-gone: Service shop/web answers nobody any more: 2 ready endpoints served 10.96.0.40",
				"Breaks ingress-without-service: requests for shop.example fail: Ingress shop/web leads to Service shop/web",
			},
			hits:   []string{"Pod shop/web-2-a", "Pod shop/web-2-b"},
			detail: []string{"The load balancer's address 203.0.113.7 is given back; a new Service may get another one.", "Port 30080 of every node is closed; a new Service may get another one."},
		},
		{
			name: "the Service of the API servers", delete: "service/default/kubernetes",
			want: []string{
				"Outage service-gone: pods no longer reach the API server: Service default/kubernetes is the address by which they know it",
			},
		},
		{
			name: "the cluster's DNS", delete: "service/kube-system/kube-dns",
			want: []string{
				"Outage service-gone: pods no longer resolve any name: Service kube-system/kube-dns (10.96.0.10) is their DNS server",
			},
			hits: []string{"Pod kube-system/coredns-1-a"},
		},
		{
			name: "a headless Service", delete: "service/shop/db",
			want: []string{
				"Breaks service-gone: Service shop/db, by which 1 ready endpoint is found, no longer resolves",
			},
			hits: []string{"Pod shop/db-0"},
		},
		{
			name: "an ExternalName", delete: "service/shop/partner",
			want: []string{
				"Breaks service-gone: the name partner.shop no longer leads to partner.example",
			},
			detail: []string{"Whether anybody uses the name cannot be seen."},
		},
		{
			name: "a Service without endpoints", delete: "service/shop/nobody",
			want: []string{
				"Note service-gone: Service shop/nobody has no ready endpoint: nobody is served by it",
			},
		},
		{
			name: "a slice that a controller writes again", delete: "endpointslice/shop/web-4",
			want: []string{
				"Note slice-remade: EndpointSlice shop/web-4 comes back within seconds: a controller writes it again",
			},
		},
		{
			name: "all slices that a controller writes again", delete: "endpointslice/shop/web-4 endpointslice/shop/web-6",
			want: []string{
				"Note slice-remade: EndpointSlice shop/web-4 and EndpointSlice shop/web-6 come back within seconds: a controller writes them again",
			},
		},
		{
			name: "a slice that somebody wrote by hand", delete: "endpointslice/shop/by-hand-1",
			want: []string{
				"Breaks service-empty: Service shop/by-hand answers nobody: it loses its only ready endpoint",
			},
			hits: []string{"Service shop/by-hand"},
		},
		{
			name: "the API servers' addresses", delete: "endpointslice/default/kubernetes",
			want: []string{
				"Outage service-empty: pods do not reach the API server until it writes its addresses again: Service default/kubernetes loses its only ready endpoint",
			},
			hits: []string{"Service default/kubernetes"},
		},
		{
			name: "the Endpoints of which a slice is a mirror", delete: "endpoints/shop/mirrored",
			want: []string{
				"Breaks service-empty: Service shop/mirrored answers nobody: it loses its only ready endpoint",
			},
			hits: []string{"Service shop/mirrored"},
			by:   []string{"Endpoints shop/mirrored"},
		},
		{
			name: "the mirror, of which the original stays", delete: "endpointslice/shop/mirrored-1",
			want: []string{
				"Note slice-remade: EndpointSlice shop/mirrored-1 comes back within seconds: a controller writes it again",
			},
		},
		{
			name: "one of two endpoints, in two families of addresses", delete: "pod/shop/web-2-a",
		},
		{
			name: "all endpoints, and others are made", delete: "pod/shop/web-2-a pod/shop/web-2-b",
			want: []string{
				"Breaks service-empty: Service shop/web answers nobody until new ones are ready: it loses all of its 2 ready endpoints",
			},
			hits:   []string{"Service shop/web"},
			detail: []string{"It stands behind Ingress shop/web."},
		},
		{
			name: "all endpoints, with what makes them", delete: "deployment/shop/web",
			want: []string{
				"Breaks service-empty: Service shop/web answers nobody: it loses all of its 2 ready endpoints",
			},
			hits: []string{"Service shop/web"},
			by:   []string{"Deployment shop/web"},
		},
		{
			name: "all of DNS", delete: "deployment/kube-system/coredns",
			want: []string{
				"Outage service-empty: pods resolve no names: Service kube-system/kube-dns loses its only ready endpoint",
			},
			hits: []string{"Service kube-system/kube-dns"},
		},
		{
			name: "all of DNS, which is made again", delete: "pod/kube-system/coredns-1-a",
			want: []string{
				"Breaks service-empty: pods resolve no names until new ones are ready: Service kube-system/kube-dns loses its only ready endpoint",
			},
			hits: []string{"Service kube-system/kube-dns"},
		},
		{
			name: "endpoints with their nodes", delete: "node/worker-1 node/worker-2",
			want: []string{
				"Breaks service-empty: Service shop/web answers nobody until new ones are ready: it loses all of its 2 ready endpoints",
				"Breaks service-empty: Service certs/hook answers nobody until new ones are ready: it loses its only ready endpoint",
				"Breaks service-empty: Service kube-system/metrics-server answers nobody until new ones are ready: it loses its only ready endpoint",
				"Breaks service-empty: Service shop/db answers nobody until new ones are ready: it loses its only ready endpoint",
				"Breaks service-empty: pods resolve no names until new ones are ready: Service kube-system/kube-dns loses its only ready endpoint",
			},
			hits: []string{"Service shop/web"},
			by:   []string{"Node worker-1", "Node worker-2"},
		},
		{
			name: "an Ingress in use", delete: "ingress/shop/web",
			want: []string{
				"Breaks ingress-gone: requests for shop.example are no longer led to Service shop/web: Ingress shop/web goes",
			},
			hits: []string{"Service shop/web"},
		},
		{
			name: "an Ingress to nobody", delete: "ingress/shop/old",
			want: []string{
				"Note ingress-gone: Ingress shop/old leads to no Service that has ready endpoints",
			},
		},
		{
			name: "a Service with its Ingress", delete: "service/shop/web ingress/shop/web",
			want: []string{
				"Breaks service-gone: Service shop/web answers nobody any more: 2 ready endpoints served 10.96.0.40",
				"Breaks ingress-gone: requests for shop.example are no longer led to Service shop/web: Ingress shop/web goes",
			},
			hits: []string{"Pod shop/web-2-a", "Pod shop/web-2-b"},
		},
		{
			name: "orphans go on to answer", delete: "--cascade=orphan deployment/shop/web",
		},
	})
}

// TestAddressing: an API server of which all ranges are being deleted refuses
// every new Service, and the range does not go while default/kubernetes has an
// address of it.
func TestAddressing(t *testing.T) {
	s := impacttest.State(t, `
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes, finalizers: [networking.k8s.io/service-cidr-finalizer]}}
---
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: more}}
---
{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: former, deletionTimestamp: "2026-01-03T11:00:00Z", finalizers: [networking.k8s.io/service-cidr-finalizer]}}
---
{apiVersion: networking.k8s.io/v1, kind: IPAddress, metadata: {name: 10.96.0.1}}
---
{apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default}, spec: {clusterIPs: [10.96.0.1]}}
`)
	for _, c := range []struct {
		delete string
		worst  impact.Severity
		want   string
	}{
		{"ServiceCIDR/kubernetes ServiceCIDR/more", impact.Outage, "new Services are refused, as no address is left for them: ServiceCIDR kubernetes and ServiceCIDR more are given up"},
		{"ServiceCIDR/kubernetes", impact.Note, "new Services get addresses of ServiceCIDR more only; ServiceCIDR kubernetes goes once no Service has an address of it"},
		{"IPAddress/10.96.0.1", impact.Note, "the API server notes within minutes again whose IPAddress 10.96.0.1 is, if a Service has it; until then a new Service may get it too"},
	} {
		r := impact.Examine(s, impacttest.Delete(t, s, impact.Background, strings.Fields(c.delete)...))
		if len(r.Consequences) != 1 || r.Worst() != c.worst || r.Consequences[0].Title != c.want {
			t.Errorf("deleting %s, people would see %+v, want %q", c.delete, r.Consequences, c.want)
		}
	}
	for _, q := range impact.Examine(s, impacttest.Delete(t, s, impact.Background, "Service/default/kubernetes")).Consequences {
		if q.ID == "address-note-gone" {
			t.Errorf("the address goes with its Service: %+v", q)
		}
	}
}
