// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/helm"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// theDelete are the arguments of the second incident's command, which was meant to
// clean up after another release.
const theDelete = "clusterrole,clusterrolebinding -l app.kubernetes.io/managed-by=Helm"

// restoreLine is what doctor tells to paste.
var restoreLine = regexp.MustCompile(`(?m)^\s*(fairlead restore .+)$`)

// startIncident is the cluster before: Cilium is a release of the real helm, and
// what controllers and kubelets would write stands in testdata.
func startIncident(t *testing.T) *cluster {
	t.Helper()
	c := start(t)
	c.serveMetrics(t)
	h := helm.New(t, c.Cluster, lab.Place{NetNS: c.ns})
	h.Install("kube-system", "cilium", "cilium")
	h.Install("shop", "shop", "shop")
	c.Kubectl("--namespace", "kube-system", "patch", "daemonset", "cilium", "--subresource=status", "--type=merge", "-p",
		`{"status":{"desiredNumberScheduled":3,"currentNumberScheduled":3,"numberMisscheduled":0,"numberReady":3,"numberAvailable":3}}`)
	c.load(t, "cluster/10-nodes.yaml", "cluster/30-system.yaml", "incident/cilium.yaml")
	return c
}

// TestSecondIncident plays the second incident on a real API server: what
// preflight foresees comes to pass, and two commands lead from the broken cluster
// to a healed one.
func TestSecondIncident(t *testing.T) {
	c := startIncident(t)
	agent := c.startAgent(t)

	t.Run("preflight puts the CNI's ClusterRole first, and what people would see", func(t *testing.T) {
		status, a := c.preflight(t, theDelete)
		object, sees := a.first()
		if status != 1 || object != "ClusterRole cilium" || !strings.HasPrefix(sees, "pods created from now on have no network") || a.Consequences[0].Severity != "Outage" {
			t.Errorf("status %d, %s: %s: %s", status, a.Consequences[0].Severity, object, sees)
		}
	})
	t.Run("doctor finds nothing of rights before", func(t *testing.T) {
		if _, stdout := c.doctor(t); strings.Contains(stdout, "rbac-missing") || strings.Contains(stdout, "component-forbidden") {
			t.Error(stdout)
		}
	})

	c.Kubectl(append([]string{"delete"}, strings.Fields(theDelete)...)...)
	said(t, agent, "the agent is refused all that it follows", func(log string) bool {
		for _, r := range follows() {
			if !strings.Contains(log, `User \"system:serviceaccount:kube-system:cilium\" cannot `) || !strings.Contains(log, `resource \"`+r.Resource+`\"`) {
				return false
			}
		}
		return true
	})
	t.Run("the agent does not hear of a pod that is made now", func(t *testing.T) {
		c.makePod(t, "made-after-the-delete")
		if log := agent.Stderr(); strings.Contains(log, "made-after-the-delete") {
			t.Error(log)
		}
	})
	t.Run("with the agent's own log doctor shows how it spread", func(t *testing.T) {
		status, stdout, stderr := c.run(t, rig.Program(), "doctor", "--bundle", c.bundle(t), "--bundle", logsOf(t, agent.Stderr()))
		root, spread := strings.Index(stdout, "rbac-missing · ServiceAccount kube-system/cilium"), strings.Index(stdout, "(component-forbidden, on n1)")
		if status != 1 || root < 0 || spread < root {
			t.Errorf("status %d\n%s%s", status, stdout, stderr)
		}
	})

	commands := 0
	var restore string
	t.Run("the first command, doctor, names the rights first, and the line that puts them back", func(t *testing.T) {
		commands++
		status, stdout := c.doctor(t)
		if !regexp.MustCompile(`(?m)^1\. critical, confirmed: .*Cilium's agent \(kube-system/cilium\)`).MatchString(stdout) || status != 1 {
			t.Fatalf("status %d\n%s", status, stdout)
		}
		line := restoreLine.FindStringSubmatch(stdout)
		if line == nil {
			t.Fatalf("there is no line to paste\n%s", stdout)
		}
		restore = line[1]
	})
	if restore == "" {
		t.FailNow()
	}
	t.Run("the second command is that line, and creates what is missing", func(t *testing.T) {
		commands++
		status, stdout, stderr := c.shell(t, restore)
		if status != 0 {
			t.Errorf("%s: status %d\n%s%s", restore, status, stdout, stderr)
		}
		c.Kubectl("get", "clusterrole/cilium", "clusterrole/cilium-operator", "clusterrolebinding/cilium", "clusterrolebinding/cilium-operator")
	})
	t.Run("the agent recovers by itself, and hears of a pod that is made then", func(t *testing.T) {
		said(t, agent, "it lists pods again", recovered)
		c.makePod(t, "made-after-the-restore")
		said(t, agent, "it hears of the pod", func(log string) bool { return strings.Contains(log, "made-after-the-restore") })
	})
	t.Run("doctor finds nothing of rights any more, and two commands were enough", func(t *testing.T) {
		if _, stdout := c.doctor(t); strings.Contains(stdout, "rbac-missing") || strings.Contains(stdout, "component-forbidden") {
			t.Error(stdout)
		}
		if commands != 2 {
			t.Errorf("%d commands", commands)
		}
	})
}

// TestWithAJournal is the same where Helm knows of nothing, and a recorder ran.
func TestWithAJournal(t *testing.T) {
	c := start(t)
	c.serveMetrics(t)
	c.load(t, "cluster/10-nodes.yaml", "cluster/20-cni.yaml", "cluster/30-system.yaml")
	c.Kubectl("--namespace", "kube-system", "annotate", "daemonset/cilium", "deployment/cilium-operator", "meta.helm.sh/release-name-")
	c.Kubectl("--namespace", "kube-system", "delete", "secrets", "-l", "owner=helm")
	journal := filepath.Join(t.TempDir(), "journal.db")
	lab.Place{NetNS: c.ns}.Start(t, rig.Program(), "record", "--kubeconfig", c.Kubeconfig, "--journal", journal)
	c.recorded(t, journal, "ClusterRoleBinding  *cilium  *listed")
	c.Kubectl(append([]string{"delete"}, strings.Fields(theDelete)...)...)
	c.recorded(t, journal, "ClusterRoleBinding  *cilium  *deleted")

	status, stdout, _ := c.fairlead(t, "doctor", "--probe=false", "--interval=1s", "--journal", journal)
	line := restoreLine.FindStringSubmatch(stdout)
	if status != 1 || line == nil || !strings.Contains(line[1], "--journal "+journal+" --at ") {
		t.Fatalf("status %d, %q\n%s", status, line, stdout)
	}
	if status, stdout, stderr := c.shell(t, line[1]); status != 0 {
		t.Fatalf("%s: status %d\n%s%s", line[1], status, stdout, stderr)
	}
	if _, stdout := c.doctor(t); strings.Contains(stdout, "rbac-missing") {
		t.Error(stdout)
	}
}

// recorded waits until a journal's events of ClusterRoleBindings have such a line.
func (c *cluster) recorded(t *testing.T, journal, line string) {
	t.Helper()
	want := regexp.MustCompile(line)
	rig.Eventually(t, func() error {
		_, stdout, stderr := c.run(t, rig.Program(), "events", journal, "--kind", "clusterrolebindings.rbac.authorization.k8s.io")
		if !want.MatchString(stdout) {
			return fmt.Errorf("%s is not among\n%s%s", line, stdout, stderr)
		}
		return nil
	})
}

// doctor looks at the live cluster.
func (c *cluster) doctor(t *testing.T) (status int, stdout string) {
	t.Helper()
	status, stdout, stderr := c.fairlead(t, "doctor", "--probe=false", "--interval=1s")
	if status > 1 {
		t.Fatalf("doctor: status %d\n%s%s", status, stdout, stderr)
	}
	return status, stdout
}

func (c *cluster) bundle(t *testing.T) string {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "cluster.tar.gz")
	if status, stdout, stderr := c.fairlead(t, "bundle", "--probe=false", "--interval=1s", "-o", archive); status != 0 {
		t.Fatalf("bundle: status %d\n%s%s", status, stdout, stderr)
	}
	return archive
}

// logsOf is what a kubelet would have given of the agent's log.
func logsOf(t *testing.T, log string) string {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "logs", "n1", "kube-system_cilium-b_cilium-agent.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// shell runs a line as somebody does who pastes it.
func (c *cluster) shell(t *testing.T, line string) (status int, stdout, stderr string) {
	t.Helper()
	return c.run(t, "env", "KUBECONFIG="+c.Kubeconfig, "PATH="+filepath.Dir(rig.Program())+":"+os.Getenv("PATH"), "sh", "-c", line)
}

func (c *cluster) makePod(t *testing.T, name string) {
	t.Helper()
	c.Apply("{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: shop}, spec: {nodeName: n1, automountServiceAccountToken: false, containers: [{name: app, image: example.com/app}]}}")
}

// recovered says that an agent listed pods again after it was refused them.
func recovered(log string) bool {
	refused := strings.LastIndex(log, `resource \"pods\"`)
	return refused >= 0 && strings.Contains(log[refused:], `"Listed" resource="pods"`)
}
