// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDenial(t *testing.T) {
	const cilium = "system:serviceaccount:kube-system:cilium"
	list := func(group, resource string) Request { return Request{Verb: "list", Group: group, Resource: resource} }
	for name, tt := range map[string]struct {
		line string
		want Denial
	}{
		"klog": {
			`E1210 03:12:45.123456       1 reflector.go:200] "Failed to watch" err="failed to list *v1.Service: services is forbidden: User \"system:serviceaccount:kube-system:cilium\" cannot list resource \"services\" in API group \"\" at the cluster scope" reflector="x" type="*v1.Service"`,
			Denial{User: cilium, Request: list("", "services")},
		},
		"logfmt, with the role that is gone": {
			`time="2025-12-10T03:12:45Z" level=error msg="networkpolicies.networking.k8s.io is forbidden: User \"system:serviceaccount:kube-system:cilium\" cannot list resource \"networkpolicies\" in API group \"networking.k8s.io\" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io \"cilium\" not found"`,
			Denial{User: cilium, Request: list("networking.k8s.io", "networkpolicies"), Missing: []Ref{{"ClusterRole", "", "cilium"}}},
		},
		"JSON": {
			`{"level":"error","msg":"pods \"web-1\" is forbidden: User \"system:serviceaccount:shop:till\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"shop\": RBAC: [role.rbac.authorization.k8s.io \"a\" not found, clusterrole.rbac.authorization.k8s.io \"b\" not found]"}`,
			Denial{User: "system:serviceaccount:shop:till", Request: Request{Verb: "get", Resource: "pods/log", Namespace: "shop"}, Missing: []Ref{{"Role", "shop", "a"}, {"ClusterRole", "", "b"}}},
		},
		"a line that ends early names its group with the resource": {
			`ciliumendpoints.cilium.io is forbidden: User "system:serviceaccount:kube-system:cilium" cannot list resource "ciliumendpoints"`,
			Denial{User: cilium, Request: list("cilium.io", "ciliumendpoints")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := ParseDenial(tt.line)
			if !found {
				t.Fatal("nothing was found")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, line := range map[string]string{
		"another use of the word":       `pods "web-1" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=4, limited: pods=4`,
		"a path":                        `forbidden: User "system:anonymous" cannot get path "/metrics"`,
		"a token that is not taken":     `Failed to watch *v1.Namespace: Unauthorized`,
		"a sentence with the same verb": `User "ada" cannot be found`,
	} {
		t.Run(name+" is none", func(t *testing.T) {
			if got, found := ParseDenial(line); found {
				t.Errorf("%+v", got)
			}
		})
	}
}

func FuzzParseDenial(f *testing.F) {
	f.Add(`services is forbidden: User "system:serviceaccount:kube-system:cilium" cannot list resource "services" in API group "" at the cluster scope`)
	f.Add(`x is forbidden: User \"a\" cannot get resource \"b/c\" in API group \"d\" in the namespace \"e\": RBAC: role.rbac.authorization.k8s.io \"f\" not found`)
	f.Fuzz(func(t *testing.T, line string) {
		d, found := ParseDenial(line)
		if found && (d.User == "" || d.Verb == "" || d.Resource == "") {
			t.Errorf("%q: %+v", line, d)
		}
	})
}
