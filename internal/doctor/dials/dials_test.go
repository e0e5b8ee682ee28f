// SPDX-License-Identifier: Apache-2.0

package dials

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

const objects = `
-- 1/objects/services.yaml --
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: kubernetes, namespace: default}, spec: {clusterIP: 192.168.0.1, ports: [{name: https, port: 443}]}}
- {apiVersion: v1, kind: Service, metadata: {name: kubernetes-intranet, namespace: default}, spec: {type: LoadBalancer, clusterIP: 192.168.60.179, ports: [{name: https, port: 443}]}, status: {loadBalancer: {ingress: [{ip: 10.15.1.8}]}}}
- {apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {clusterIP: 192.168.0.7, ports: [{name: http, port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: kube-dns, namespace: kube-system}, spec: {clusterIP: 192.168.0.10, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}}
-- 1/objects/endpointslices.discovery.k8s.io.yaml --
apiVersion: v1
kind: List
items:
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}, addressType: IPv4, ports: [{name: https, port: 60002}], endpoints: [{addresses: [169.254.128.7]}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: kubernetes-intranet-qxgk4, namespace: default, labels: {kubernetes.io/service-name: kubernetes-intranet}}, addressType: IPv4, ports: [{name: https, port: 60002}], endpoints: [{addresses: [169.254.128.7]}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web, namespace: default, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.0.1.4]}]}
- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}, addressType: IPv4, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}], endpoints: [{addresses: [10.0.2.9]}, {addresses: [10.0.1.9], conditions: {ready: false}}]}
-- 1/objects/pods.yaml --
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: default, uid: u1}, spec: {nodeName: n1}, status: {phase: Running, podIP: 10.0.1.2}}
- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default, uid: u2}, spec: {nodeName: n1}, status: {phase: Running, podIP: 10.0.1.3}}
- {apiVersion: v1, kind: Pod, metadata: {name: metrics, namespace: kube-system, uid: u3}, spec: {nodeName: n1}, status: {phase: Running, podIP: 10.0.1.4}}
- {apiVersion: v1, kind: Pod, metadata: {name: agent, namespace: kube-system, uid: u4}, spec: {nodeName: n1, hostNetwork: true}, status: {phase: Running, podIP: 192.0.2.1}}
- {apiVersion: v1, kind: Pod, metadata: {name: done, namespace: jobs, uid: u5}, spec: {nodeName: n1}, status: {phase: Succeeded, podIP: 10.0.1.5}}
- {apiVersion: v1, kind: Pod, metadata: {name: nodelocaldns, namespace: kube-system, labels: {k8s-app: node-local-dns}}, spec: {nodeName: n1, hostNetwork: true, containers: [{name: c, args: [-conf, /etc/Corefile, -localip, "169.254.25.10,fd00::a"]}]}, status: {phase: Running, podIP: 192.0.2.1}}
- {apiVersion: v1, kind: Pod, metadata: {name: coredns-2, namespace: kube-system}, spec: {nodeName: n2, containers: [{name: c, ports: [{containerPort: 53, protocol: UDP}, {containerPort: 9153}]}]}, status: {phase: Running, podIP: 10.0.2.9}}
- {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}, spec: {nodeName: n3}, status: {phase: Running, podIP: 10.0.3.9}}
`

const dump = `
-- 1/nodes/n1/dump-ipvs.txt --
-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 192.0.2.10:6443 -m -w 1
`

func sample(t *testing.T, text string) *facts.Sample {
	t.Helper()
	b, err := evidence.ParseText([]byte(text), time.Date(2026, time.January, 3, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	s := facts.Read(b).Last()
	if s == nil {
		t.Fatal("there is no sample")
	}
	return s
}

func TestChoose(t *testing.T) {
	w := Choose(sample(t, objects), "n1")
	var got []string
	say := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	for _, s := range w.API {
		say("API %s %s %v → %v", s.Name, s.Protocol, s.Addresses, s.Backends)
	}
	for _, s := range w.DNS {
		say("DNS %s %s %v → %v", s.Name, s.Protocol, s.Addresses, s.Backends)
	}
	say("local %v", w.DNSLocal)
	say("peers %v", w.Peers)
	want := []string{
		"API default/kubernetes TCP [192.168.0.1:443] → [169.254.128.7:60002]",
		"API default/kubernetes-intranet TCP [10.15.1.8:443 192.168.60.179:443] → [169.254.128.7:60002]",
		"DNS kube-system/kube-dns UDP [192.168.0.10:53] → [10.0.2.9:53]",
		"local [169.254.25.10:53 [fd00::a]:53]",
		"peers [10.0.2.9:9153]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what leads to the API server, to DNS and to other nodes is dialled, and nothing else (- wanted, + chosen):\n%s", diff)
	}
}

func TestPods(t *testing.T) {
	want := []Pod{{"default/a", "u2"}, {"kube-system/metrics", "u3"}, {"default/b", "u1"}}
	if diff := cmp.Diff(want, Pods(sample(t, objects), "n1")); diff != "" {
		t.Errorf("pods of as many namespaces as there are come first (- wanted, + chosen):\n%s", diff)
	}
}

func TestChooseWithoutObjects(t *testing.T) {
	s := sample(t, dump)
	if w := Choose(s, "n1"); len(w.API)+len(w.DNS)+len(w.Peers) != 0 {
		t.Errorf("a table that names no Service tells nothing to dial: %+v", w)
	}
	if pods := Pods(s, "n1"); len(pods) != 0 {
		t.Errorf("pods %v of nobody", pods)
	}
}

func TestChooseFromTables(t *testing.T) {
	s := sample(t, strings.TrimSpace(`
-- 1/nodes/n1/dump-frontends.txt --
Address             Type       ServiceName         PortName  Backends                 RedirectTo  Status  Since  Error
10.96.0.1:443/TCP   ClusterIP  default/kubernetes  https     192.0.2.10:6443/TCP                  Done    2m
10.96.0.7:80/TCP    ClusterIP  default/web         http      10.0.1.4:8080/TCP                    Done    2m
0.0.0.0:30001/TCP   NodePort   default/kubernetes  https     192.0.2.10:6443/TCP                  Done    2m
`)+"\n")
	w := Choose(s, "n1")
	if len(w.API) != 1 || len(w.API[0].Addresses) != 1 || w.API[0].Addresses[0] != netip.MustParseAddrPort("10.96.0.1:443") ||
		len(w.API[0].Backends) != 1 || w.API[0].Backends[0] != netip.MustParseAddrPort("192.0.2.10:6443") {
		t.Errorf("where the API tells nothing, the node's tables name its Services: %+v of %+v", w, s.Node("n1"))
	}
}
