// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	helmtest "github.com/fairlead-io/fairlead/test/helm"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// TestRestore has the roles of a release deleted by their label on a real API
// server, and puts them back: by Helm's release, by a journal, and by manifests.
func TestRestore(t *testing.T) {
	cluster := kube.Start(t)
	helm := helmtest.New(t, cluster, lab.Place{})
	helm.Install("kube-system", "cilium", "cilium")
	helm.Install("shop", "shop", "shop")
	path := filepath.Join(t.TempDir(), "journal.db")
	status, out, errOut := fairlead(t, "", "record", "--journal", path, "--kubeconfig", cluster.Kubeconfig, "--kind", "secrets", "--for", "5s", "-q")
	if status != exitFine {
		t.Fatalf("record: exit status %d: %s%s", status, out, errOut)
	}
	recorded := time.Now().UTC().Format(time.RFC3339)
	lose := func() {
		cluster.Kubectl("delete", "clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/managed-by=Helm")
	}
	check := func(t *testing.T, want int, parts []string, args ...string) string {
		t.Helper()
		status, out, errOut := fairlead(t, "", append([]string{"restore", "--kubeconfig", cluster.Kubeconfig}, args...)...)
		for _, part := range parts {
			if !strings.Contains(out+errOut, part) {
				t.Errorf("%q is not in", part)
			}
		}
		if status != want || t.Failed() {
			t.Fatalf("restore %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), status, want, out, errOut)
		}
		return out
	}
	release := []string{"--helm-release", "kube-system/cilium"}

	t.Run("by Helm's release", func(t *testing.T) {
		check(t, exitFine, []string{"Helm release kube-system/cilium, revision 1 (cilium 1.16.5, deployed ", "): 11 same\n"}, release...)
		lose()
		out := check(t, exitFindings, []string{"missing   ClusterRoleBinding cilium-operator   <none>\n",
			"4 missing, 7 same\n", "Nothing was changed: --apply creates what is missing.\n"}, release...)
		if !strings.HasPrefix(out, "STATE     OBJECT                               WHAT\nmissing   ClusterRole cilium                   <none>\n") {
			t.Errorf("roles do not come first:\n%s", out)
		}
		check(t, exitFindings, []string{"# missing: ClusterRole cilium\n+apiVersion: rbac.authorization.k8s.io/v1\n"}, append(slices.Clone(release), "clusterrole/cilium", "-o", "diff")...)
		check(t, exitFine, []string{"created   ClusterRole cilium ", "4 created, 7 same\n"}, append(slices.Clone(release), "--apply")...)
		check(t, exitFine, []string{": 11 same\n"}, release...)
	})
	t.Run("by a journal", func(t *testing.T) {
		lose()
		cluster.Kubectl("delete", "secret", "database", "-n", "shop")
		args := []string{"--journal", path, "--at", recorded, "rbac"}
		check(t, exitFindings, []string{"4 missing, "}, args...)
		check(t, exitFine, []string{"4 created, "}, append(args, "--apply")...)
		check(t, exitFine, []string{" same\n"}, args...)
		check(t, exitFindings, []string{"refused   Secret shop/database   it cannot be restored from a journal"}, "--journal", path, "--at", recorded, "-n", "shop", "secrets", "--apply")
	})
	t.Run("secrets do not show", func(t *testing.T) {
		for _, format := range []string{"wide", "diff", "json", "yaml"} {
			out := check(t, exitFindings, []string{"database"}, "--helm-release", "shop", "-n", "shop", "-o", format)
			if strings.Contains(out, "hunter2") || strings.Contains(out, "aHVudGVyMi") {
				t.Errorf("-o %s shows a secret:\n%s", format, out)
			}
		}
		check(t, exitFine, []string{"1 created"}, "--helm-release", "shop/shop", "secret", "--apply")
		if have := cluster.Kubectl("get", "secret", "database", "-n", "shop", "-o", "jsonpath={.data.password}"); have != "aHVudGVyMi1vZi10aGUtc2hvcA==" {
			t.Errorf("the Secret has %q", have)
		}
	})
	t.Run("what differs is left", func(t *testing.T) {
		cluster.Kubectl("patch", "clusterrole", "cilium", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/verbs","value":["get"]}]`)
		check(t, exitFindings, []string{`drifted   ClusterRole cilium   /rules/0/verbs: live ["get"], wanted ["get","list","watch"]`,
			"helm upgrade, or helm rollback to the same revision, writes it anew.\n"}, release...)
		check(t, exitFindings, []string{"-/rules/0/verbs: [\"get\"]\n+/rules/0/verbs: [\"get\",\"list\",\"watch\"]\n"}, append(slices.Clone(release), "-o", "diff")...)
		check(t, exitFine, []string{"1 drifted, 10 same\n"}, append(slices.Clone(release), "--apply")...)
		var answer struct {
			SchemaVersion int
			Items         []struct{ State, Kind, Name string }
		}
		if err := json.Unmarshal([]byte(check(t, exitFindings, nil, append(slices.Clone(release), "-o", "json")...)), &answer); err != nil || answer.SchemaVersion == 0 || len(answer.Items) != 11 {
			t.Errorf("%+v, error %v", answer, err)
		}
	})
	t.Run("what is not there", func(t *testing.T) {
		check(t, exitFailed, []string{"fairlead: find Helm release kube-system/calico: there is no such Helm release: the namespace has cilium\n"}, "--helm-release", "kube-system/calico")
		check(t, exitFailed, []string{" has no ingress: it has ClusterRole, "}, append(slices.Clone(release), "ingress")...)
	})
}
