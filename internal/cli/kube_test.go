// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// TestAnAPIServersObjects has a real API server take the examples, and
// compares what kubectl and the API say with the kernel.
func TestAnAPIServersObjects(t *testing.T) {
	cluster := kube.Start(t)
	for _, namespace := range []string{"shop", "telemetry", "edge", "telco", "team-a", "team-b"} {
		cluster.Kubectl("create", "namespace", namespace)
	}
	// A kubelet creates its Node with its status too, which apply cannot do.
	nodes := filepath.Join(examplesDir, "nodes.yaml")
	cluster.Kubectl("create", "-f", nodes)
	services := slices.DeleteFunc(everyExample(t), func(file string) bool { return file == nodes })
	files := append(services, filepath.Join(examplesDir, "incident-1", "kubernetes-intranet.yaml"))
	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Apply(string(manifest))
	}

	exported := filepath.Join(t.TempDir(), "exported.yaml")
	text := cluster.Kubectl("get", "services,endpointslices,nodes", "-A", "-o", "yaml")
	if err := os.WriteFile(exported, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := fairlead(t, "", "compile", "-f", exported, "--node-name", kernelNode)
	if status != exitFine || errOut != "" || !strings.Contains(out, "10.96.0.80:80/TCP") {
		t.Fatalf("what kubectl exports: exit status %d: %s%s", status, out, errOut)
	}

	pinPath := filepath.Join(lab.NewBPFFS(t), "fairlead")
	w := compiled(t, []string{exported})
	writeKernel(t, pinPath, w.resolved)
	args := []string{"diff", "--kubeconfig", cluster.Kubeconfig, "--node-name", kernelNode, "--pin-path", pinPath,
		"--socket", filepath.Join(t.TempDir(), "no-agent")}
	expect(t, exitFine, []string{"no drift: api = kernel ("}, args...)

	cluster.Kubectl("delete", "service", "-n", "shop", "web")
	expect(t, exitFindings, []string{"10.96.0.80:80/TCP", "api/kernel", "frontend"}, args...)

	cluster.StopAPIServer()
	status, _, errOut = fairlead(t, "", args...)
	if status != exitFailed || strings.Count(errOut, "\n") != 1 {
		t.Errorf("without the API server: exit status %d: %s", status, errOut)
	}
	served := func(f api.Frontend) bool { return f.Service == "default/kubernetes" && f.Action == "forward" }
	if !slices.ContainsFunc(w.frontends(), served) {
		t.Error("the API server's own Service, as it wrote it, is not served")
	}
}
