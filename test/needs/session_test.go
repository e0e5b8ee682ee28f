// SPDX-License-Identifier: Apache-2.0

package needs

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

var update = flag.Bool("update", false, "write what the commands of docs/rights.md print into it")

const page = "../../docs/rights.md"

// shopYAML is a program that has more rights than it uses, in roles of its own.
const shopYAML = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web, namespace: shop, labels: {app.kubernetes.io/managed-by: Helm}}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, update], resourceNames: [settings]}
- {apiGroups: [""], resources: [pods/exec], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: web, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop-web}
rules:
- {apiGroups: [discovery.k8s.io], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [nodes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop-web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shop-web}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
`

// TestSession plays docs/rights.md: a program reads by its rights, somebody
// deletes its Role, and the commands of the page say what they say there.
func TestSession(t *testing.T) {
	ns, outside := lab.NewNetNS(t, nodeName), lab.NewNetNS(t, "outside")
	lab.Veth(t, lab.End{NetNS: ns, Link: "eth0", Addrs: []string{nodeAddr + "/24"}}, lab.End{NetNS: outside, Link: "eth0", Addrs: []string{"192.0.2.9/24"}})
	cluster := kube.StartAuditedAt(t, ns, netip.MustParseAddr(nodeAddr))
	cluster.Apply(shopYAML)
	dir := t.TempDir()
	kubeconfig := cluster.AccountKubeconfig("shop", "web")
	for name, target := range map[string]string{"kubeconfig": cluster.Kubeconfig, "audit.log": cluster.AuditLog, "fairlead": rig.Program()} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}

	refused := runProgram(t, cluster, ns, kubeconfig)
	if err := os.WriteFile(filepath.Join(dir, "web.log"), []byte(refused), 0o600); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	place := lab.Place{NetNS: ns}
	played := session.ReplaceAllStringFunc(string(text), func(block string) string {
		line := session.FindStringSubmatch(block)[1]
		process := place.Start(t, "sh", "-c", "cd "+dir+" && PATH=.:$PATH && "+line)
		_ = process.Wait() // its status is in the page's words, and a script tests it
		if process.Stdout() == "" {
			t.Errorf("%s printed nothing\n%s", line, process.Stderr())
		}
		return "```console\n$ " + line + "\n" + process.Stdout() + "```"
	})
	if *update {
		if err := os.WriteFile(page, []byte(played), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if n := len(session.FindAllString(played, -1)); n < 4 {
		t.Errorf("the page has %d commands", n)
	}
	if got, want := masked(played), masked(string(text)); got != want {
		t.Errorf("the page would be (-update writes it):\n%s", played)
	}
}

// runProgram asks as the service account does, until its Role is deleted and for
// once after that, and returns what such a program logs.
func runProgram(t *testing.T, cluster *kube.Cluster, ns *lab.NetNS, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = cluster.REST.Dial
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		_, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "settings", metav1.GetOptions{})
		return err
	}
	rig.Eventually(t, ask)
	if _, err := client.DiscoveryV1().EndpointSlices("shop").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	cluster.Kubectl("-n", "shop", "delete", "role", "-l", "app.kubernetes.io/managed-by=Helm")
	var last error
	rig.Eventually(t, func() error {
		if last = ask(); !apierrors.IsForbidden(last) {
			return fmt.Errorf("it is not refused: %w", last)
		}
		return nil
	})
	return fmt.Sprintf("time=%q level=ERROR msg=\"reading the settings\" err=%q\n", time.Now().UTC().Format(time.RFC3339), last.Error())
}

// session is a command of the page with what it prints.
var session = regexp.MustCompile("(?s)```console\n\\$ ([^\n]+)\n.*?```")

// masked leaves out what differs from one run to the next: times, how much a
// server noted, and how often a program had to ask until it was refused.
func masked(text string) string {
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`).ReplaceAllString(text, "TIME")
	text = regexp.MustCompile(`(?m)^audit\.log .*$`).ReplaceAllString(text, "audit.log")
	return regexp.MustCompile(`(?m)^(system:serviceaccount:shop:web +\S+ +\S+ +\S+) +\d+ +`).ReplaceAllString(text, "$1 N ")
}
