// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// podList is as `cilium sysdump` writes lists: their items do not say what they
// are.
const podList = `apiVersion: v1
items:
- metadata: {name: cilium-kddvm, namespace: kube-system}
  spec:
    nodeName: 10.15.0.4
    initContainers: [{name: config}]
    containers: [{name: cilium-agent}]
- metadata: {name: cilium-operator-6f9c-x2, namespace: kube-system}
  spec:
    nodeName: 10.15.0.5
    containers: [{name: cilium-operator}]
kind: PodList
metadata: {resourceVersion: "2589006567"}
`

const endpointTable = `ENDPOINT   POLICY (ingress)   POLICY (egress)   IDENTITY   LABELS (source:key[=value])   IPv6   IPv4         STATUS   
           ENFORCEMENT        ENFORCEMENT                                                                             
3098       Enabled            Enabled           5          reserved:init                        10.0.1.119   ready   
`

// fenced is an output as the bugtool writes it.
func fenced(command, output string) string {
	return fmt.Sprintf("# %s\n\n```\n%s\n```\n", command, output)
}

func TestSysdump(t *testing.T) {
	const stamp = "20260103-231716"
	agent := "cilium-bugtool-cilium-kddvm-" + stamp + "/cmd/"
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a sysdump's objects, logs and agents are read, each agent's outputs as of its node": {
			map[string]string{
				"k8s-pods-" + stamp + ".yaml":                                             podList,
				"k8s-services-" + stamp + ".yaml":                                         "apiVersion: v1\nitems: []\nkind: ServiceList\n",
				"k8s-endpointslices-" + stamp + ".yaml":                                   "apiVersion: discovery.k8s.io/v1\nitems: []\nkind: EndpointSliceList\n",
				"k8s-events-" + stamp + ".html":                                           "<html></html>",
				"cilium-daemonset-" + stamp + ".yaml":                                     "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: cilium, namespace: kube-system}\n",
				"hubble-flows-cilium-kddvm-" + stamp + ".json":                            "{}",
				"logs-cilium-kddvm-cilium-agent-" + stamp + ".log":                        "time=2026-01-03T23:17:56Z level=error msg=k8sError\n",
				"logs-cilium-kddvm-config-" + stamp + "-prev.log":                         "Error: Build config failed\n",
				"logs-cilium-operator-6f9c-x2-cilium-operator-" + stamp + ".log":          "level=info\n",
				"logs-cilium-gone-cilium-agent-" + stamp + ".log":                         "level=info\n",
				agent + "cilium-dbg-endpoint-list.md":                                     fenced("cilium-dbg endpoint list", endpointTable),
				agent + "cilium-dbg-status---verbose.md":                                  fenced("cilium-dbg status --verbose", "KVStore:   Disabled\nCilium:    Ok   1.18.5 (v1.18.5-7d4d8932)"),
				agent + "cilium-dbg-service-list.md":                                      "not read, as there is JSON of it",
				agent + "cilium-dbg-service-list--o-json.md":                              fenced("cilium-dbg service list -o json", "[]"),
				agent + "cilium-dbg-bpf-lb-list.md":                                       fenced("cilium-dbg bpf lb list", "SERVICE ADDRESS   BACKEND ADDRESS (REVNAT_ID) (SLOT)"),
				agent + "ip-route.md":                                                     "default via 10.15.0.1",
				"cilium-bugtool-cilium-kddvm-" + stamp + "/conf/cilium_bpf_lb.o-info.txt": "",
			},
			[]string{
				`logs-cilium-gone-cilium-agent-20260103-231716.log log "" "" "" 0 [] cat logs-cilium-gone-cilium-agent-20260103-231716.log`,
				`logs-cilium-kddvm-cilium-agent-20260103-231716.log log "10.15.0.4" "kube-system/cilium-kddvm" "cilium-agent" 0 [] kubectl logs -n kube-system cilium-kddvm -c cilium-agent`,
				`logs-cilium-kddvm-config-20260103-231716-prev.log log "10.15.0.4" "kube-system/cilium-kddvm" "config" 0 [] kubectl logs -n kube-system cilium-kddvm -c config --previous`,
				`logs-cilium-operator-6f9c-x2-cilium-operator-20260103-231716.log log "10.15.0.5" "kube-system/cilium-operator-6f9c-x2" "cilium-operator" 0 [] kubectl logs -n kube-system cilium-operator-6f9c-x2 -c cilium-operator`,
				agent + `cilium-dbg-bpf-lb-list.md dump "10.15.0.4" "kube-system/cilium-kddvm" "cilium-agent" 1 [] cilium-dbg bpf lb list`,
				agent + `cilium-dbg-endpoint-list.md cilium-endpoints "10.15.0.4" "kube-system/cilium-kddvm" "cilium-agent" 1 [] cilium-dbg endpoint list`,
				agent + `cilium-dbg-service-list--o-json.md dump "10.15.0.4" "kube-system/cilium-kddvm" "cilium-agent" 1 [] cilium-dbg service list -o json`,
				agent + `cilium-dbg-status---verbose.md cilium-status "10.15.0.4" "kube-system/cilium-kddvm" "cilium-agent" 1 [] cilium-dbg status --verbose`,
				`cilium-daemonset-20260103-231716.yaml objects "" "" "" 1 [] cat cilium-daemonset-20260103-231716.yaml`,
				`k8s-endpointslices-20260103-231716.yaml objects "" "" "" 1 [endpointslices.discovery.k8s.io] kubectl get endpointslices.discovery.k8s.io --all-namespaces -o json`,
				`k8s-pods-20260103-231716.yaml objects "" "" "" 1 [pods] kubectl get pods --all-namespaces -o json`,
				`k8s-services-20260103-231716.yaml objects "" "" "" 1 [services] kubectl get services --all-namespaces -o json`,
			},
		},
		"a bugtool's own archive of 1.14 is read as that of some node": {
			map[string]string{
				"cmd/cilium-endpoint-list.md": endpointTable,
				"cmd/cilium-config--a.md":     "##### Read-write configurations #####\nDebug   : Disabled\n",
				"cmd/uname--a.md":             "Linux",
				"conf/sysctl.txt":             "",
			},
			[]string{
				`cmd/cilium-config--a.md cilium-config "" "" "" 1 [] cilium-dbg config -a`,
				`cmd/cilium-endpoint-list.md cilium-endpoints "" "" "" 1 [] cilium-dbg endpoint list`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := evidence.Open(zipped(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var have []string
			for _, r := range b.Records {
				have = append(have, fmt.Sprintf("%s %s %q %q %q %d %v %s", r.Path, r.Kind, r.Node, r.Pod, r.Container, r.Sample, r.Resources, r.Command))
				if strings.Contains(string(r.Content), "```") {
					t.Errorf("%s has the marks of Markdown:\n%s", r.Path, r.Content)
				}
				if r.Error != "" {
					t.Errorf("%s: %s", r.Path, r.Error)
				}
			}
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Errorf("records (- wanted, + found):\n%s", diff)
			}
		})
	}
}

// zipped writes files into an archive as `cilium sysdump` makes it: in one
// folder.
func zipped(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cilium-sysdump-20260103-231716.zip")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(out)
	for name, text := range files {
		w, err := z.Create("cilium-sysdump-20260103-231716/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{z, out} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
