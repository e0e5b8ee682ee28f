// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// world is a cluster with one of each way in which objects hang on each other.
const world = `
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: kube-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, controller: true}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web-1-a, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, controller: true}]}, spec: {nodeName: n1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: alone, namespace: shop}, spec: {nodeName: n2}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: builder, namespace: shop}}
---
{apiVersion: v1, kind: Secret, metadata: {name: builder-token, namespace: shop, annotations: {kubernetes.io/service-account.name: builder}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: shop}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: Endpoints, metadata: {name: web, namespace: shop}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {name: web-x, namespace: shop, ownerReferences: [{apiVersion: v1, kind: Service, name: web, controller: true}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: two, namespace: shops}, spec: {clusterIPs: [10.96.0.7, "fd00::7"]}}
---
{apiVersion: v1, kind: Service, metadata: {name: headless, namespace: shops}, spec: {clusterIPs: [None]}}
---
{apiVersion: networking.k8s.io/v1, kind: IPAddress, metadata: {name: 10.96.0.7}}
---
{apiVersion: networking.k8s.io/v1, kind: IPAddress, metadata: {name: 10.96.0.8}}
---
{apiVersion: networking.k8s.io/v1, kind: IPAddress, metadata: {name: "fd00::7"}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.example.com}
spec: {group: example.com, names: {plural: crontabs, kind: CronTab}}
---
{apiVersion: example.com/v1, kind: CronTab, metadata: {name: nightly, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: rows, namespace: shop, ownerReferences: [{apiVersion: example.com/v1, kind: CronTab, name: nightly}, {apiVersion: v1, kind: Secret, name: other}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stray, namespace: kube-system, ownerReferences: [{apiVersion: v1, kind: Secret, name: other, uid: Secret/shop/other}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: shop, ownerReferences: [{apiVersion: v1, kind: Secret, name: never}, {apiVersion: v1, kind: Service, name: web}]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {volumeName: pv-1}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-1}, spec: {persistentVolumeReclaimPolicy: Delete, claimRef: {namespace: shop, name: data}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: kept, namespace: shop}, spec: {volumeName: pv-2}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv-2}, spec: {persistentVolumeReclaimPolicy: Retain, claimRef: {namespace: shop, name: kept}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: claims-anothers, namespace: shop}, spec: {volumeName: pv-1}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: ring, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: two}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: ring, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: one}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: going, namespace: ring, deletionTimestamp: "2026-01-03T11:00:00Z", finalizers: [foregroundDeletion]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: waited-for, namespace: ring, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: going}, {apiVersion: v1, kind: ConfigMap, name: one}]}}
`

func TestDelete(t *testing.T) {
	s := impacttest.State(t, world)
	for _, c := range []struct {
		name    string
		delete  string
		cascade impact.Cascade
		want    string
	}{
		{name: "nothing", delete: "", want: ""},
		{
			name: "what is owned goes, down to the pods", delete: "Deployment/shop/web",
			want: "Deployment shop/web\nReplicaSet shop/web-1 owned by Deployment shop/web\nPod shop/web-1-a owned by ReplicaSet shop/web-1",
		},
		{name: "orphans stay", delete: "Deployment/shop/web", cascade: impact.Orphan, want: "Deployment shop/web"},
		{
			name: "named twice", delete: "Pod/shop/alone Pod/shop/alone", want: "Pod shop/alone",
		},
		{
			name: "named, and owned by what is named", delete: "ReplicaSet/shop/web-1 Deployment/shop/web",
			want: "ReplicaSet shop/web-1\nDeployment shop/web\nPod shop/web-1-a owned by ReplicaSet shop/web-1",
		},
		{name: "a pod that is bound to a node", delete: "Node/n1", want: "Node n1\nPod shop/web-1-a bound to Node n1"},
		{
			name: "controllers delete what they do not own", delete: "ServiceAccount/shop/builder Service/shop/web", cascade: impact.Orphan,
			want: "ServiceAccount shop/builder\nService shop/web\nSecret shop/builder-token kept by ServiceAccount shop/builder\nEndpoints shop/web kept by Service shop/web",
		},
		{
			name: "the addresses of a Service are free again", delete: "Service/shops/two Service/shops/headless",
			want: "Service shops/two\nService shops/headless\nIPAddress 10.96.0.7 kept by Service shops/two\nIPAddress fd00::7 kept by Service shops/two",
		},
		{
			name: "an owner that does not exist holds nothing", delete: "Service/shop/web",
			want: "Service shop/web\nEndpointSlice shop/web-x owned by Service shop/web\nConfigMap shop/left owned by Service shop/web\nEndpoints shop/web kept by Service shop/web",
		},
		{
			name: "another owner that stays holds", delete: "CustomResourceDefinition/crontabs.example.com",
			want: "CustomResourceDefinition crontabs.example.com\nCronTab shop/nightly an instance of CustomResourceDefinition crontabs.example.com",
		},
		{
			name: "all owners go, and none counts from another namespace", delete: "CustomResourceDefinition/crontabs.example.com Secret/shop/other",
			want: "CustomResourceDefinition crontabs.example.com\nSecret shop/other\nCronTab shop/nightly an instance of CustomResourceDefinition crontabs.example.com\nConfigMap shop/rows owned by Secret shop/other",
		},
		{
			name: "what is left by one owner goes with the other", delete: "Secret/shop/other CustomResourceDefinition/crontabs.example.com", cascade: impact.Orphan,
			want: "Secret shop/other\nCustomResourceDefinition crontabs.example.com\nCronTab shop/nightly an instance of CustomResourceDefinition crontabs.example.com\nConfigMap shop/rows owned by CronTab shop/nightly",
		},
		{name: "a ring ends", delete: "ConfigMap/ring/one", want: "ConfigMap ring/one\nConfigMap ring/two owned by ConfigMap ring/one\nConfigMap ring/waited-for owned by ConfigMap ring/one"},
		{
			name: "a volume that is reclaimed goes with its own claim only", delete: "PersistentVolumeClaim/shop/data PersistentVolumeClaim/shop/kept",
			want: "PersistentVolumeClaim shop/data\nPersistentVolumeClaim shop/kept\nPersistentVolume pv-1 bound to PersistentVolumeClaim shop/data",
		},
		{name: "another's volume", delete: "PersistentVolumeClaim/shop/claims-anothers", want: "PersistentVolumeClaim shop/claims-anothers"},
		{name: "a namespace that the API server does not let go", delete: "Namespace/kube-system", want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := impacttest.Delete(t, s, c.cascade, strings.Fields(c.delete)...)
			if diff := cmp.Diff(c.want, chain(d)); diff != "" {
				t.Errorf("deleting %q takes other objects (- wanted, + found):\n%s", c.delete, diff)
			}
		})
	}
}

// chain is what goes, one line each with its cause.
func chain(d *impact.Deletion) string {
	var lines []string
	for _, o := range d.Objects() {
		line := o.String()
		if cause, _ := d.Gone(o); cause.By != nil {
			line += fmt.Sprintf(" %s %s", cause.Why, cause.By)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// TestDeleteNamespace: all that is inside goes, whatever owns it, also where
// dependents are to stay; and what it takes along outside of it.
func TestDeleteNamespace(t *testing.T) {
	s := impacttest.State(t, world)
	for _, cascade := range []impact.Cascade{impact.Background, impact.Foreground, impact.Orphan} {
		d := impacttest.Delete(t, s, cascade, "Namespace/shop")
		var outside []string
		for _, o := range d.Objects() {
			if o.Namespace != "shop" {
				outside = append(outside, o.String())
			}
		}
		if diff := cmp.Diff([]string{"Namespace shop", "PersistentVolume pv-1"}, outside); diff != "" {
			t.Errorf("%s takes others outside of the namespace (- wanted, + found):\n%s", cascade, diff)
		}
		for _, o := range s.Inside("shop") {
			if _, gone := d.Gone(o); !gone {
				t.Errorf("%s leaves %s", cascade, o)
			}
		}
	}
}

// TestDeleted: the two ways to ask what goes say the same.
func TestDeleted(t *testing.T) {
	s := impacttest.State(t, world)
	d := impacttest.Delete(t, s, impact.Background, "Namespace/shop")
	pods := d.Deleted(impact.Pods)
	if len(pods) != 2 || !slices.Equal(d.Deleted(impact.Namespaces), d.Roots) {
		t.Errorf("of kinds there go pods %v and namespaces %v", pods, d.Deleted(impact.Namespaces))
	}
	if !d.GoneKey(s, pods[0].Key()) || d.GoneKey(s, impact.Key{GroupResource: impact.Nodes, Name: "n1"}) || d.GoneKey(s, impact.Key{GroupResource: impact.Nodes, Name: "n9"}) {
		t.Error("a pod of the namespace goes, a node stays, and one that does not exist does not go")
	}
}
