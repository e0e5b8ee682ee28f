// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// caseOf reads a folder with these files.
func caseOf(t *testing.T, files map[string]string) *facts.Case {
	t.Helper()
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	b, err := evidence.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return facts.Read(b)
}

const (
	endpointTitles = "ENDPOINT   POLICY (ingress)   POLICY (egress)   IDENTITY   LABELS (source:key[=value])   IPv6   IPv4         STATUS   \n" +
		"           ENFORCEMENT        ENFORCEMENT                                                                             \n"
	initEndpoint = "3098       Enabled            Enabled           5          reserved:init                        10.0.1.119   ready   \n"
)

func TestCiliumAgent(t *testing.T) {
	c := caseOf(t, map[string]string{
		"1/nodes/n1/cilium-endpoints.txt":  endpointTitles + initEndpoint,
		"1/nodes/n1/cilium-status.txt":     "Kubernetes:             Failure   no route to host\nKubeProxyReplacement:   True   [eth0 10.15.0.4]\nCilium:                 Ok   1.18.5 (v1.18.5-7d4d8932)\n",
		"1/nodes/n1/cilium-config.txt":     "##### Read-write configurations #####\nDebug   : Disabled\n",
		"1/nodes/n1/cilium-identities.txt": "ID   LABELS\n5    reserved:init\n",
		"1/nodes/n1/cilium-metrics.txt":    "Metric                    Labels                     Value\ncilium_bpf_map_pressure   map_name=lb4_services_v2   0.910000\n",
	})
	for _, u := range c.Unread {
		t.Errorf("%s is not read: %s", u.Record.Path, u.Why)
	}
	agent := c.Last().Node("n1").Cilium
	if agent == nil {
		t.Fatal("nothing is known of the agent")
	}
	if len(agent.Endpoints) != 1 || agent.Endpoints[0].Identity != 5 || agent.EndpointsRecord == nil {
		t.Errorf("endpoints: %+v", agent.Endpoints)
	}
	if agent.Version != "1.18.5" || agent.VersionRecord != agent.StatusRecord {
		t.Errorf("the version is %q, want that of the status", agent.Version)
	}
	if agent.Status.Kubernetes != "Failure" || agent.Config["Debug"] != "Disabled" || agent.MapPressure["lb4_services_v2"] != 0.91 || len(agent.Identities) != 1 {
		t.Errorf("have %+v", agent)
	}
	if !c.Last().Has("n1", "cilium-dbg endpoint list") {
		t.Error("the list of endpoints was read whole, and does not speak against what it does not show")
	}
}

func TestCutOutputOfAgentSpeaksAgainstNothing(t *testing.T) {
	c := caseOf(t, map[string]string{
		"1/nodes/n1/cilium-endpoints.txt": endpointTitles + initEndpoint + initEndpoint[:30],
		"1/nodes/n1/cilium-status.txt":    "/bin/sh: cilium-dbg: not a program\n",
	})
	if agent := c.Last().Node("n1").Cilium; agent == nil || len(agent.Endpoints) != 1 || agent.Status != nil {
		t.Fatalf("have %+v, want the endpoint that is whole, and no status", agent)
	}
	if c.Last().Has("n1", "cilium-dbg endpoint list") {
		t.Error("what is missing in a list that is cut off does not exist")
	}
	if len(c.Unread) != 2 {
		t.Errorf("there are %d records that tell less than they should, want 2", len(c.Unread))
	}
}

// The lists of a sysdump do not say of each item what it is.
func TestSysdumpObjects(t *testing.T) {
	const stamp = "20260103-231716"
	c := caseOf(t, map[string]string{
		"k8s-pods-" + stamp + ".yaml":                                               "apiVersion: v1\nitems:\n- metadata: {name: cilium-kddvm, namespace: kube-system}\n  spec: {nodeName: n1, containers: [{name: cilium-agent}]}\nkind: PodList\n",
		"k8s-services-" + stamp + ".yaml":                                           "apiVersion: v1\nitems:\n- metadata: {name: web, namespace: default}\n  spec: {clusterIP: 10.96.0.9}\nkind: ServiceList\n",
		"cilium-configmap-" + stamp + ".yaml":                                       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cilium-config, namespace: kube-system}\n",
		"cilium-bugtool-cilium-kddvm-" + stamp + "/cmd/cilium-dbg-endpoint-list.md": "# cilium-dbg endpoint list\n\n```\n" + strings.TrimSuffix(endpointTitles+initEndpoint, "\n") + "\n\n```\n",
	})
	for _, u := range c.Unread {
		t.Errorf("%s is not read: %s", u.Record.Path, u.Why)
	}
	o := c.Last().Objects
	if len(o.Pods) != 1 || len(o.Services) != 1 || len(o.ConfigMaps) != 1 || !o.Complete("pods") || o.Complete("configmaps") {
		t.Errorf("there are %d pods, %d Services and %d ConfigMaps, want one each, and all pods and Services", len(o.Pods), len(o.Services), len(o.ConfigMaps))
	}
	if n := c.Last().Node("n1"); n == nil || n.Cilium == nil || len(n.Cilium.Endpoints) != 1 {
		t.Errorf("have %+v of the node, want its endpoint", n)
	}
}

// Commands are made of names of pods, and one that begins with a dash would be
// an option: kubectl delete pod --all.
func TestWhatNamesNoPodIsNone(t *testing.T) {
	c := caseOf(t, map[string]string{
		"1/nodes/n1/cilium-endpoints.json": `[{"id":1,"status":{"state":"ready","external-identifiers":{"k8s-namespace":"shop","k8s-pod-name":"--all","pod-name":"shop/--all"},
			"identity":{"id":5,"labels":["reserved:init"]}}}]`,
		"1/nodes/n1/probes.json": `[{"purpose":"dns","target":"10.0.0.1:53","from":"pod shop/--all","outcome":"timeout"}]`,
	})
	n := c.Last().Node("n1")
	if n == nil || n.Cilium == nil || len(n.Cilium.Endpoints) != 1 {
		t.Fatalf("the endpoint is not read: %v", c.Unread)
	}
	if pod := n.Cilium.Endpoints[0].Pod; pod != "" {
		t.Errorf("%s is a pod", pod)
	}
	if len(n.Probes) > 0 || len(c.Unread) != 1 {
		t.Errorf("%d results count, and %d records are not read", len(n.Probes), len(c.Unread))
	}
}
