// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/rig"
)

// What a real API server says, read with the rights of deploy/rbac.yaml.
func TestHealthOnKubernetes(t *testing.T) {
	n := newNode(t)
	cluster := kube.StartAt(t, n.NS, nodeAddrs.V4)
	cluster.Kubectl("apply", "-f", rbac)
	cluster.Apply(readerBinding)
	// An agent outlives the part of the test that starts it.
	launch := func() { n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig) }
	launch()
	n.Ready(t)

	t.Run("a node that the API server does not know is none to use (R30)", func(t *testing.T) { n.wantProbes(t, 503, 200, false) })
	cluster.Apply(nodeYAML(""))
	t.Run("once it is registered it is (R30)", func(t *testing.T) { n.wantProbes(t, 200, 200, true) })

	web := rig.Service{Name: "web", VIP: rig.ParsePair("10.96.0.77", "fd00:10:96::77"), Spec: "type: LoadBalancer, externalTrafficPolicy: Local, ipFamilyPolicy: RequireDualStack"}
	port := ""
	at := func() string { return fmt.Sprintf("http://192.0.2.1:%s/", port) }
	t.Run("the port that the API server gives out is answered (R29)", func(t *testing.T) {
		cluster.Apply(web.YAML(rig.AllReady(here, there)))
		port = cluster.Kubectl("get", "service", "web", "-o", "jsonpath={.spec.healthCheckNodePort}")
		wants(t, n.other, at(), verdict(200, "web", 1, true))
	})
	t.Run("its local endpoint terminates (R29)", func(t *testing.T) {
		cluster.Apply(rig.SliceYAML("web", "web", []rig.Endpoint{rig.Terminating(here), rig.Ready(there)}))
		wants(t, n.other, at(), verdict(503, "web", 0, true))
		cluster.Apply(rig.SliceYAML("web", "web", rig.AllReady(here, there)))
		wants(t, n.other, at(), verdict(200, "web", 1, true))
	})
	t.Run("the policy changes, and the API server takes the port back (R29)", func(t *testing.T) {
		cluster.Kubectl("patch", "service", "web", "-p", `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
		wants(t, n.other, at(), "ECONNREFUSED")
		cluster.Kubectl("patch", "service", "web", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
		port = cluster.Kubectl("get", "service", "web", "-o", "jsonpath={.spec.healthCheckNodePort}")
		wants(t, n.other, at(), verdict(200, "web", 1, true))
	})

	t.Run("the cluster autoscaler's taint comes and goes (R30)", func(t *testing.T) {
		cluster.Kubectl("taint", "node", nodeName, "ToBeDeletedByClusterAutoscaler=1:NoSchedule")
		n.wantProbes(t, 503, 200, false)
		wants(t, n.other, at(), verdict(200, "web", 1, true)) // kube-proxy's answer about a Service does not speak of the node
		cluster.Kubectl("taint", "node", nodeName, "ToBeDeletedByClusterAutoscaler-")
		n.wantProbes(t, 200, 200, true)
	})

	t.Run("without the API server all goes on, and says what is stale (R31)", func(t *testing.T) {
		cluster.StopAPIServer()
		n.wantMetric(t, `fairlead_source_stale{kind="EndpointSlice",reason="Unreachable",resource="endpointslices.discovery.k8s.io",verb="watch"}`, "1")
		rig.Eventually(t, func() error {
			h, err := n.probe(t, "/healthz")
			if err != nil || h.status != 200 || !slices.ContainsFunc(h.Stale, func(s stale) bool { return s.Kind == "EndpointSlice" && s.Reason == "Unreachable" && !s.Since.IsZero() }) {
				return fmt.Errorf("/healthz: %+v, %v", h, err)
			}
			return nil
		})
		n.wantProbes(t, 200, 200, true)
		wants(t, n.other, at(), verdict(200, "web", 1, true))
	})
	t.Run("an agent that starts without the API server promises nothing, and need not be restarted (R30, R33)", func(t *testing.T) {
		n.Process.Kill()
		launch()
		rig.Eventually(t, func() error {
			h, err := n.probe(t, "/healthz")
			if err != nil || h.status != 503 || h.Healthy {
				return fmt.Errorf("/healthz: %+v, %v", h, err)
			}
			return nil
		})
		if l, err := n.probe(t, "/livez"); err != nil || l.status != 200 {
			t.Errorf("/livez: %+v, %v", l, err)
		}
		cluster.StartAPIServer()
		n.wantProbes(t, 200, 200, true)
		wants(t, n.other, at(), verdict(200, "web", 1, true))
		n.wantMetric(t, `fairlead_source_stale{kind="EndpointSlice",reason="",resource="",verb=""}`, "0")
		// A server that has just started may have told the agent that it is not ready.
		rig.Eventually(t, func() error {
			if s := n.Status(t); !s.Healthy {
				return fmt.Errorf("status: %v", s.Findings)
			}
			return nil
		})
	})

	t.Run("the node is being deleted (R30)", func(t *testing.T) {
		cluster.Kubectl("patch", "node", nodeName, "-p", `{"metadata":{"finalizers":["example.org/wait"]}}`)
		cluster.Kubectl("delete", "node", nodeName, "--wait=false")
		n.wantProbes(t, 503, 200, false)
		if out := n.Run(t, 0, "status"); !strings.Contains(out, "/healthz 503, /livez 200") || !strings.Contains(out, "the node is gone or about to go") {
			t.Errorf("status does not say so:\n%s", out)
		}
		cluster.Kubectl("patch", "node", nodeName, "-p", `{"metadata":{"finalizers":null}}`)
		n.wantProbes(t, 503, 200, false)
		cluster.Apply(nodeYAML(""))
		n.wantProbes(t, 200, 200, true)
	})

	t.Run("the Service is deleted (R29)", func(t *testing.T) {
		cluster.Kubectl("delete", "service", "web")
		wants(t, n.other, at(), "ECONNREFUSED")
	})
}
