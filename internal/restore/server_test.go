// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/helm"
	"github.com/fairlead-io/fairlead/internal/redact"
	helmtest "github.com/fairlead-io/fairlead/test/helm"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// world is a cluster with releases of the real helm.
type world struct {
	*kube.Cluster
	helm *helmtest.Helm
	way  *Cluster
}

func (w *world) release(t *testing.T, namespace, name string) *Wanted {
	t.Helper()
	release, err := helm.Find(t.Context(), w.Client, namespace, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := FromRelease(release)
	if err != nil {
		t.Fatal(err)
	}
	return wanted
}

func manifest(t *testing.T, text string) *Wanted {
	t.Helper()
	w, err := FromManifests([]string{"-"}, strings.NewReader(text), "default")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func plan(t *testing.T, c *Cluster, w *Wanted, filters ...Filter) *Plan {
	t.Helper()
	p, err := c.Plan(t.Context(), w, filters)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func apply(t *testing.T, c *Cluster, p *Plan) {
	t.Helper()
	if err := c.Apply(t.Context(), p, func(*Item) {}); err != nil {
		t.Fatal(err)
	}
}

// states are the items that are in none of some states, one line each.
func states(p *Plan, but ...State) (lines []string) {
	for _, item := range p.Items {
		if slices.Contains(but, item.State) {
			continue
		}
		line := fmt.Sprintf("%s %s", item.State, item)
		for _, d := range item.Differences {
			live, wanted := d.Texts()
			line += fmt.Sprintf(" %s: %s %s", d.Path, live, wanted)
		}
		for _, text := range append([]string{item.Why}, item.Notes...) {
			if text != "" {
				line += "; " + text
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func expect(t *testing.T, p *Plan, but []State, want ...string) {
	t.Helper()
	if have := states(p, but...); !slices.Equal(have, want) {
		t.Errorf("have\n  %s\nwant\n  %s", strings.Join(have, "\n  "), strings.Join(want, "\n  "))
	}
}

func connect(t *testing.T, config *rest.Config) *Cluster {
	t.Helper()
	c, err := Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnARealAPIServer(t *testing.T) {
	cluster := kube.Start(t)
	w := &world{cluster, helmtest.New(t, cluster, lab.Place{}), connect(t, cluster.REST)}
	w.helm.Install("kube-system", "cilium", "cilium")
	w.helm.Install("shop", "shop", "shop", "--set", "clusterIP=10.96.7.7")

	t.Run("a release that is whole", w.testWhole)
	t.Run("roles that were deleted by their label", w.testRoles)
	t.Run("a namespace with all that was in it", w.testNamespace)
	t.Run("what differs is told and left", w.testDrift)
	t.Run("what cannot be made or judged", w.testTroubles)
	t.Run("what a refused trial quotes", w.testRefusedTrials)
	t.Run("a restored Secret and a journal", w.testRestoredSecret)
	t.Run("owners of a former life", w.testOwners)
	t.Run("users who may not", w.testRights)
}

func (w *world) testWhole(t *testing.T) {
	for _, name := range []string{"kube-system/cilium", "shop/shop"} {
		namespace, release, _ := strings.Cut(name, "/")
		// Differences would be false: helm has just made what its release says.
		expect(t, plan(t, w.way, w.release(t, namespace, release)), []State{Same})
	}
}

const byHelm = "app.kubernetes.io/managed-by=Helm"

func (w *world) testRoles(t *testing.T) {
	w.Kubectl("delete", "clusterrole,clusterrolebinding", "-l", byHelm)
	wanted := func() *Wanted { return w.release(t, "kube-system", "cilium") }
	p := plan(t, w.way, wanted())
	expect(t, p, []State{Same}, "missing ClusterRole cilium", "missing ClusterRole cilium-operator",
		"missing ClusterRoleBinding cilium", "missing ClusterRoleBinding cilium-operator")
	if p := plan(t, w.way, wanted(), Filter{"rbac", ""}); len(p.Items) != 6 {
		t.Errorf("rbac picks %d objects", len(p.Items))
	}
	if p := plan(t, w.way, wanted(), Filter{"ds", ""}, Filter{"sa", "cilium"}); len(p.Items) != 2 {
		t.Errorf("short names pick %d objects", len(p.Items))
	}
	if _, err := w.way.Plan(t.Context(), wanted(), []Filter{{"ingress", ""}}); err == nil || !strings.Contains(err.Error(), "has no ingress: it has ClusterRole, ") {
		t.Errorf("a kind that is not in the release: error %v", err)
	}

	apply(t, w.way, p)
	expect(t, p, []State{Same}, "created ClusterRole cilium", "created ClusterRole cilium-operator",
		"created ClusterRoleBinding cilium", "created ClusterRoleBinding cilium-operator")
	expect(t, plan(t, w.way, wanted()), []State{Same})
	role, err := w.Client.RbacV1().ClusterRoles().Get(t.Context(), "cilium", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(role.ManagedFields) != 1 || role.ManagedFields[0].Manager != FieldManager || role.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("managed by %v", role.ManagedFields)
	}
	// Helm takes what was restored for its own.
	w.helm.Run("upgrade", "cilium", helmtest.Chart(t, "cilium"), "-n", "kube-system")
	w.helm.Run("uninstall", "cilium", "-n", "kube-system")
	if left := w.Kubectl("get", "clusterrole,clusterrolebinding", "-l", byHelm, "-o", "name"); left != "" {
		t.Errorf("helm left behind: %s", left)
	}
	w.helm.Install("kube-system", "cilium", "cilium")
}

// testNamespace deletes the definition with its instances, and all of the
// namespace. There is no controller that would end a namespace, so its objects
// go one by one; another namespace is one that was never there.
func (w *world) testNamespace(t *testing.T) {
	wanted := w.release(t, "shop", "shop")
	w.Kubectl("delete", "crd", "prices.shop.example.com")
	w.Kubectl("delete", "deployment,service,secret,serviceaccount,role,rolebinding,job", "-n", "shop", "-l", byHelm)
	p := plan(t, connect(t, w.REST), wanted)
	expect(t, p, []State{Same},
		"missing Role shop/web", "missing RoleBinding shop/web", "missing ServiceAccount shop/web",
		"missing CustomResourceDefinition prices.shop.example.com", "missing Secret shop/database", "missing Service shop/web",
		"refused Job shop/migrate; a Job would run once more: if that is meant, use kubectl create",
		"missing Price shop/apple; so is the definition of its kind", "missing Deployment shop/web")
	alone := plan(t, connect(t, w.REST), wanted, Filter{"price", ""})
	apply(t, w.way, alone)
	expect(t, alone, nil, "failed Price shop/apple; its kind is not served: CustomResourceDefinition prices.shop.example.com was not made")
	apply(t, w.way, p)
	if p.Count(Created) != 8 || p.Count(Failed, Missing) != 0 {
		t.Errorf("states: %q", states(p))
	}
	expect(t, plan(t, w.way, w.release(t, "shop", "shop")), []State{Same}, "refused Job shop/migrate; a Job would run once more: if that is meant, use kubectl create")
	for what, want := range map[string]string{
		"service web -o jsonpath={.spec.clusterIP}":                                        "10.96.7.7",
		"secret database -o jsonpath={.data.password}":                                     "aHVudGVyMi1vZi10aGUtc2hvcA==",
		"prices.shop.example.com apple -o jsonpath={.spec.currency}":                       "EUR",
		"rolebinding web -o jsonpath={.subjects[0].namespace}":                             "shop",
		"deployment web -o jsonpath={.metadata.annotations.meta\\.helm\\.sh/release-name}": "shop",
	} {
		if have := w.Kubectl(append([]string{"get", "-n", "shop"}, strings.Fields(what)...)...); have != want {
			t.Errorf("%s: %s, want %s", what, have, want)
		}
	}

	p = plan(t, w.way, manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: new}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: new}}"))
	expect(t, p, nil, "missing Namespace new; others are to be in it", "missing ConfigMap new/a", "missing ConfigMap new/b")
	apply(t, w.way, p)
	expect(t, p, nil, "created Namespace new", "created ConfigMap new/a", "created ConfigMap new/b")

	// What was restored from a source that says more is no drift to one that says less.
	apply(t, w.way, plan(t, w.way, manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: new, labels: {by: helm}}, data: {a: b}}")))
	expect(t, plan(t, w.way, manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: new}}")), nil, "same ConfigMap new/c")
}

func (w *world) testDrift(t *testing.T) {
	w.Kubectl("patch", "clusterrole", "cilium-operator", "--type=json", "-p", `[{"op":"replace","path":"/rules/0/verbs","value":["get"]}]`)
	w.Kubectl("scale", "deployment", "web", "-n", "shop", "--replicas=5")
	w.Kubectl("patch", "secret", "database", "-n", "shop", "-p", `{"stringData":{"password":"another-of-the-shop"}}`)
	w.Kubectl("label", "deployment", "web", "-n", "shop", "team=a") // nobody says that it must not be there
	before := w.Kubectl("get", "clusterrole/cilium-operator", "-o", "jsonpath={.metadata.resourceVersion}")
	cilium := plan(t, w.way, w.release(t, "kube-system", "cilium"))
	expect(t, cilium, []State{Same}, `drifted ClusterRole cilium-operator /rules/0/verbs: ["get"] ["get","list","watch","delete"]`)
	shop := plan(t, w.way, w.release(t, "shop", "shop"), Filter{"secret", ""}, Filter{"deployment", "web"})
	expect(t, shop, nil,
		`drifted Secret shop/database /data/password: "(left out, up to 64 bytes)" "(left out, up to 64 bytes, changed in the release)"`,
		`drifted Deployment shop/web /spec/replicas: 5 2`)
	apply(t, w.way, cilium)
	apply(t, w.way, shop)
	if after := w.Kubectl("get", "clusterrole/cilium-operator", "-o", "jsonpath={.metadata.resourceVersion}"); after != before {
		t.Error("an object that differs was changed")
	}
	w.Kubectl("create", "configmap", "going", "-n", "shop")
	w.Kubectl("patch", "configmap", "going", "-n", "shop", "-p", `{"metadata":{"finalizers":["example.com/nobody"]}}`)
	w.Kubectl("delete", "configmap", "going", "-n", "shop", "--wait=false")
	going := manifest(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: going, namespace: shop}}")
	expect(t, plan(t, w.way, going), nil, "drifted ConfigMap shop/going; it is being deleted: run restore again once it is gone")
	for _, item := range shop.Items {
		if text, err := item.YAML(); err != nil || strings.Contains(text, "hunter2") {
			t.Errorf("%s shows its secret, or error %v:\n%s", item, err, text)
		}
	}
}

func (w *world) testTroubles(t *testing.T) {
	w.Apply(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.down.example.com}
spec: {group: down.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, service: {namespace: default, name: nobody}, insecureSkipTLSVerify: true}
`)
	way := connect(t, w.REST)
	down := plan(t, way, manifest(t, "{apiVersion: down.example.com/v1, kind: Thing, metadata: {name: thing}}"))
	if have := strings.Join(states(down), "\n"); !strings.HasPrefix(have, "unknown Thing thing; the API server cannot tell what down.example.com/v1 has: ") {
		t.Errorf("of a group that is down: %s", have)
	}
	w.Kubectl("delete", "apiservice", "v1.down.example.com")
	p := plan(t, w.way, manifest(t, `
apiVersion: v1
kind: ConfigMapList
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: web-}}
---
{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: old}}
---
{apiVersion: nowhere.example.com/v1, kind: Thing, metadata: {name: thing}}
---
{apiVersion: v1, kind: Secret, metadata: {name: wrong}, data: {password: "hunter2!"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: Wrong}, stringData: {password: hunter2}, type: hunter2}
---
{apiVersion: v1, kind: Secret, metadata: {name: number}, stringData: {password: 4711471147}}
---
{apiVersion: v1, kind: Secret, metadata: {name: text}, stringData: "hunter2\nhunter2"}
---
{apiVersion: v1, kind: Pod, metadata: {name: numbers}, spec: {containers: [{name: c, image: 4711471147, env: [{name: PASSWORD, value: 4711471147}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: taken}, spec: {clusterIP: 10.96.7.7, ports: [{port: 80}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: scopeless, namespace: shop}, rules: []}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: twice}, data: {a: first}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: twice}, data: {a: second}}
`))
	apply(t, w.way, p)
	have := strings.Join(states(p), "\n")
	for _, want := range []string{
		"created ClusterRole scopeless\n", "created ConfigMap default/listed\n", "created ConfigMap default/twice\n",
		"refused Pod default/; it has no name, only generateName web-",
		"unknown Deployment old; the API server does not serve Deployment of apps/v1beta1",
		"unknown Thing thing; the API server does not serve Thing of nowhere.example.com/v1",
		"failed Secret default/wrong; the API server refuses its fields: one that must be in base64 is not",
		"failed Secret default/number; the API server refuses its .stringData.password, which must be a string",
		"failed Secret default/text; the API server refuses its .stringData, which must be a map",
		"failed Pod default/numbers; the API server refuses its .spec.containers[name=\"c\"].env[name=\"PASSWORD\"].value, which must be a string, .spec.containers[name=\"c\"].image, which must be a string",
		"failed Secret default/Wrong; the API server refuses its ",
		"failed Service default/taken; ", "provided IP is already allocated",
	} {
		if !strings.Contains(have+"\n", want) {
			t.Errorf("%q is not in\n%s", want, have)
		}
	}
	if strings.Contains(have, "hunter2") || strings.Contains(have, "4711471147") {
		t.Errorf("a secret shows:\n%s", have)
	}
	if data := w.Kubectl("get", "configmap", "twice", "-o", "jsonpath={.data.a}"); data != "second" {
		t.Errorf("of two of a name, %s was made", data)
	}
}

// testRefusedTrials has the API server quote what it refuses, in several ways.
func (w *world) testRefusedTrials(t *testing.T) {
	const secret = "4711-hunter2"
	pod := func(name, value string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i, env: [{name: PASSWORD, value: %s}]}]}}\n---\n", name, value)
	}
	job := func(name, value string) string {
		return fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: %s}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, env: [{name: PASSWORD, value: %s}]}]}}}}\n---\n", name, value)
	}
	w.Apply(pod("fixed", secret+"-live") + job("fixed", secret+"-live"))
	p := plan(t, w.way, manifest(t, pod("fixed", secret+"-new")+job("fixed", secret+"-new")))
	have := strings.Join(states(p), "\n")
	for _, want := range []string{
		"the API server refuses its spec: Forbidden: pod updates may not change fields other than",
		"the API server refuses its spec.template: Invalid value: field is immutable",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("%q is not in\n%s", want, have)
		}
	}
	if strings.Contains(have, secret) {
		t.Errorf("a secret shows:\n%s", have)
	}
}

// testRestoredSecret compares a Secret, which was restored once, with a journal,
// which has neither its values nor its annotations.
func (w *world) testRestoredSecret(t *testing.T) {
	apply(t, w.way, plan(t, w.way, manifest(t, "{apiVersion: v1, kind: Secret, metadata: {name: again, annotations: {a: b}}, stringData: {password: hunter2}}")))
	live, err := w.way.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("default").Get(t.Context(), "again", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	redact.New().Object("", "secrets", "", live.Object, nil)
	content, err := live.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	wanted := &Wanted{Source: "the journal", By: byJournal}
	if err := wanted.addState(redact.New(), content); err != nil {
		t.Fatal(err)
	}
	expect(t, plan(t, w.way, wanted), nil, "same Secret default/again")
}

func (w *world) testOwners(t *testing.T) {
	uid := w.Kubectl("get", "deployment", "web", "-n", "shop", "-o", "jsonpath={.metadata.uid}")
	owned := func(name, owner, uid string, controller bool) string {
		return fmt.Sprintf("---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %s, uid: %q, controller: %t}]}}\n", name, owner, uid, controller)
	}
	p := plan(t, w.way, manifest(t, owned("alive", "web", uid, false)+owned("made", "web", "of-a-former-life", true)+
		owned("left", "gone", "of-a-former-life", true)+owned("renewed", "web", "of-a-former-life", false)))
	expect(t, p, nil,
		"missing ConfigMap shop/alive",
		"missing ConfigMap shop/left; its owner Deployment gone is gone, and is no owner of it any more",
		"left ConfigMap shop/made; Deployment web makes it",
		"missing ConfigMap shop/renewed; its owner Deployment web is gone, and is no owner of it any more")
	apply(t, w.way, p)
	if p.Count(Created) != 3 {
		t.Errorf("states: %q", states(p))
	}
	if owners := w.Kubectl("get", "configmap", "alive", "left", "renewed", "-n", "shop", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].uid}"); owners != uid {
		t.Errorf("owners: %s, want %s", owners, uid)
	}
}

// testRights asks as a user who may read all but Secrets, and make roles and
// ConfigMaps, but holds no permission of those roles.
func (w *world) testRights(t *testing.T) {
	w.Apply(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maker}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings, roles, rolebindings], verbs: [get, create, patch]}
- {apiGroups: [""], resources: [serviceaccounts, services], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch]}
- {apiGroups: [apps], resources: [daemonsets, deployments], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maker}
subjects: [{kind: User, name: limited, apiGroup: rbac.authorization.k8s.io}]
`)
	config, err := clientcmd.BuildConfigFromFlags("", w.LimitedKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	limited := connect(t, config)
	w.Kubectl("delete", "clusterrole", "cilium")
	w.Kubectl("delete", "serviceaccount,configmap", "-n", "kube-system", "-l", byHelm)
	p := plan(t, limited, w.release(t, "kube-system", "cilium"))
	for _, item := range p.Items {
		if item.Kind == "DaemonSet" && item.State != Same {
			t.Errorf("without a trial: %q", states(p))
		}
	}
	apply(t, limited, p)
	have := strings.Join(states(p, Same, Drifted), "\n")
	for _, want := range []string{
		"failed ClusterRole cilium; the API server lets nobody grant permissions that he does not hold himself: do it as a cluster administrator",
		`failed ServiceAccount kube-system/cilium; the API server forbids it: serviceaccounts "cilium" is forbidden: User "limited" cannot patch resource`,
		"created ConfigMap kube-system/cilium-config",
	} {
		if !strings.Contains(have, want) {
			t.Errorf("%q is not in\n%s", want, have)
		}
	}
	p = plan(t, limited, w.release(t, "shop", "shop"), Filter{"secret", ""})
	if have := strings.Join(states(p), "\n"); !strings.HasPrefix(have, `unknown Secret shop/database; the API server forbids it: secrets "database" is forbidden`) {
		t.Error(have)
	}
	apply(t, w.way, plan(t, w.way, w.release(t, "kube-system", "cilium")))
}

// TestChart renders a chart with the real helm, and says what to do without one.
func TestChart(t *testing.T) {
	cluster := kube.Start(t)
	program := helmtest.New(t, cluster, lab.Place{}).Program()
	chart := Chart{Folder: helmtest.Chart(t, "shop"), Release: "shop", Namespace: "eu", Helm: program}
	wanted, err := FromChart(t.Context(), chart)
	if err != nil {
		t.Fatal(err)
	}
	p := plan(t, connect(t, cluster.REST), wanted, Filter{"price", ""}, Filter{"crd", ""}, Filter{"rbac", ""})
	expect(t, p, nil, "missing Namespace eu; others are to be in it", "missing Role eu/web", "missing RoleBinding eu/web",
		"missing CustomResourceDefinition prices.shop.example.com", "missing Price eu/apple; so is the definition of its kind")
	if len(wanted.LeftOut) != 1 || !strings.HasPrefix(wanted.LeftOut[0], "ConfigMap announce: it is a hook") {
		t.Errorf("left out %q", wanted.LeftOut)
	}

	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("replicas: [1"), 0o600); err != nil {
		t.Fatal(err)
	}
	chart.Values = []string{values}
	if _, err := FromChart(t.Context(), chart); err == nil || !strings.Contains(err.Error(), "with "+program) {
		t.Errorf("broken values: error %v", err)
	}
	chart.Helm = filepath.Join(t.TempDir(), "helm")
	if _, err := FromChart(t.Context(), chart); err == nil || !strings.Contains(err.Error(), "or run `helm template shop "+chart.Folder+" --namespace eu --include-crds --values "+values+" > rendered.yaml`") {
		t.Errorf("no helm: error %v", err)
	}
}
