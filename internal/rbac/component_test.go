// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/deploy"
)

func component(t *testing.T, id string) Component {
	t.Helper()
	for _, c := range Components() {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no component %s", id)
	return Component{}
}

func TestComponents(t *testing.T) {
	ids := map[string]bool{}
	for _, c := range Components() {
		t.Run(c.ID+" says how it is known, what it needs, and whence that is known", func(t *testing.T) {
			if ids[c.ID] || c.Title == "" || c.Container == "" && c.User == "" || c.Sees == "" || c.Source == "" {
				t.Errorf("%+v", c)
			}
			if len(c.Needs) > 0 && (c.Role == "" || c.Binding == "" || c.Loses == "" || c.Container != "" && c.Repair == "") {
				t.Errorf("%+v", c)
			}
		})
		ids[c.ID] = true
	}
	t.Run("the data has a version", func(t *testing.T) {
		if DataVersion() < 2 {
			t.Error(DataVersion())
		}
	})
	t.Run("a component without a container is no pod, and is a user", func(t *testing.T) {
		c := component(t, "kube-scheduler")
		if c.Runs(nil, &corev1.PodSpec{Containers: []corev1.Container{{}}}) || c.AsUser().Name != "system:kube-scheduler" {
			t.Errorf("%+v", c)
		}
	})
}

func TestManifest(t *testing.T) {
	for _, c := range Components() {
		if len(c.Needs) == 0 {
			continue
		}
		t.Run("what is restored for "+c.ID+" is what it needs, for its account alone", func(t *testing.T) {
			var role rbacv1.ClusterRole
			var binding rbacv1.ClusterRoleBinding
			if err := yaml.UnmarshalStrict([]byte(RoleManifest(c.Role, c.Restoration())), &role); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(BindingManifest(c.Binding, c.Role, "kube-system", "acc")), &binding); err != nil {
				t.Fatal(err)
			}
			policy := New(nil, nil, []*rbacv1.ClusterRole{&role}, []*rbacv1.ClusterRoleBinding{&binding})
			if missing := lacking(policy, ServiceAccount("kube-system", "acc"), c.Requests()); len(missing) > 0 {
				t.Errorf("still lacking: %v", missing)
			}
			for _, never := range []Request{{Verb: "get", Resource: "secrets"}, {Verb: "escalate", Group: rbacv1.GroupName, Resource: "clusterroles"}, {Verb: "create", Resource: "pods"}} {
				if _, may := policy.May(ServiceAccount("kube-system", "acc"), never); may {
					t.Errorf("it may %s", never)
				}
			}
			if missing := lacking(policy, ServiceAccount("kube-system", "other"), c.Requests()); len(missing) != len(c.Requests()) {
				t.Error("another account gained something")
			}
		})
	}
	t.Run("Fairlead's own manifest gives what its agent needs", func(t *testing.T) {
		var roles []*rbacv1.ClusterRole
		var bindings []*rbacv1.ClusterRoleBinding
		for text := range strings.SplitSeq(deploy.RBAC, "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
				t.Fatal(err)
			}
			switch kind.Kind {
			case "ClusterRole":
				roles = append(roles, &rbacv1.ClusterRole{})
				if err := yaml.Unmarshal([]byte(text), roles[len(roles)-1]); err != nil {
					t.Fatal(err)
				}
			case "ClusterRoleBinding":
				bindings = append(bindings, &rbacv1.ClusterRoleBinding{})
				if err := yaml.Unmarshal([]byte(text), bindings[len(bindings)-1]); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := component(t, "fairlead")
		if missing := lacking(New(nil, nil, roles, bindings), ServiceAccount("kube-system", "fairlead"), c.Requests()); len(missing) > 0 {
			t.Errorf("lacking: %v", missing)
		}
	})
}

func TestRules(t *testing.T) {
	t.Run("rules made of requests allow them, and not another verb or resource", func(t *testing.T) {
		requests := []Request{{Verb: "list", Resource: "pods"}, {Verb: "watch", Resource: "pods"}, {Verb: "list", Group: "cilium.io", Resource: "ciliumnodes"}}
		rules := Rules(requests)
		if len(rules) != 2 {
			t.Errorf("%v", rules)
		}
		policy := New(nil, nil, []*rbacv1.ClusterRole{clusterRole("r", rules...)}, []*rbacv1.ClusterRoleBinding{clusterBinding("b", "r", account("a", "b"))})
		if missing := lacking(policy, ServiceAccount("a", "b"), requests); len(missing) > 0 {
			t.Errorf("lacking: %v", missing)
		}
		others := []Request{{Verb: "watch", Group: "cilium.io", Resource: "ciliumnodes"}, {Verb: "list", Resource: "ciliumnodes"}, {Verb: "get", Resource: "pods"}}
		if missing := lacking(policy, ServiceAccount("a", "b"), others); len(missing) != len(others) {
			t.Errorf("of %v only %v are refused", others, missing)
		}
	})
}

func TestRuns(t *testing.T) {
	spec := func(k corev1.Container) *corev1.PodSpec { return &corev1.PodSpec{Containers: []corev1.Container{k}} }
	calico := corev1.Container{Name: "calico-node", Env: []corev1.EnvVar{{Name: "DATASTORE_TYPE", Value: "kubernetes"}}}
	etcd := corev1.Container{Name: "calico-node", Env: []corev1.EnvVar{{Name: "DATASTORE_TYPE", Value: "etcdv3"}}}
	for name, tt := range map[string]struct {
		id     string
		labels map[string]string
		spec   *corev1.PodSpec
		want   bool
	}{
		"a container's name tells":                                      {"cilium-agent", nil, spec(corev1.Container{Name: "cilium-agent"}), true},
		"another container is none":                                     {"cilium-agent", nil, spec(corev1.Container{Name: "agent"}), false},
		"a CoreDNS that serves the cluster":                             {"coredns", map[string]string{"k8s-app": "kube-dns", "x": "y"}, spec(corev1.Container{Name: "coredns"}), true},
		"a CoreDNS of somebody's own needs nothing of the API":          {"coredns", map[string]string{"app": "dns"}, spec(corev1.Container{Name: "coredns"}), false},
		"Calico that keeps its state in the API":                        {"calico-node", nil, spec(calico), true},
		"Calico that keeps its state in etcd":                           {"calico-node", nil, spec(etcd), false},
		"Flannel that is given its ranges by the API":                   {"flannel", nil, spec(corev1.Container{Name: "kube-flannel", Args: []string{"--ip-masq", "--kube-subnet-mgr"}}), true},
		"Flannel that keeps its ranges in etcd, and never asks the API": {"flannel", nil, spec(corev1.Container{Name: "kube-flannel", Args: []string{"--ip-masq"}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := component(t, tt.id)
			if got := c.Runs(tt.labels, tt.spec); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestIsItsAccount(t *testing.T) {
	host := corev1.Volume{Name: "k", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes"}}}
	hostFile := corev1.Volume{Name: "k", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/kubeconfig"}}}
	mounted := []corev1.VolumeMount{{Name: "k", MountPath: "/etc/kubernetes"}}
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"an account of its own":                {corev1.PodSpec{ServiceAccountName: "proxy", Containers: []corev1.Container{{Name: "c"}}}, true},
		"no account":                           {corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}, false},
		"the account of who chose none":        {corev1.PodSpec{ServiceAccountName: "default"}, false},
		"a kubeconfig of the node's, by flag":  {corev1.PodSpec{ServiceAccountName: "proxy", Volumes: []corev1.Volume{host}, Containers: []corev1.Container{{VolumeMounts: mounted, Args: []string{"--kubeconfig=/etc/kubernetes/proxy.conf"}}}}, false},
		"a kubeconfig of the node's, by mount": {corev1.PodSpec{ServiceAccountName: "proxy", Volumes: []corev1.Volume{hostFile}, Containers: []corev1.Container{{VolumeMounts: mounted}}}, false},
		"a kubeconfig of a Secret":             {corev1.PodSpec{ServiceAccountName: "proxy", Volumes: []corev1.Volume{{Name: "k", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "proxy-kubeconfig"}}}}, Containers: []corev1.Container{{VolumeMounts: mounted}}}, false},
		"another Secret":                       {corev1.PodSpec{ServiceAccountName: "proxy", Volumes: []corev1.Volume{{Name: "k", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "clustermesh"}}}}, Containers: []corev1.Container{{VolumeMounts: mounted}}}, true},
		"some other folder of the node's":      {corev1.PodSpec{ServiceAccountName: "proxy", Volumes: []corev1.Volume{host}, Containers: []corev1.Container{{VolumeMounts: mounted}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsItsAccount(&tt.spec); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestUsesAccount(t *testing.T) {
	no := false
	token := corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"the account of who chose none":          {corev1.PodSpec{ServiceAccountName: "default"}, true},
		"a pod that is denied a token":           {corev1.PodSpec{ServiceAccountName: "till", AutomountServiceAccountToken: &no}, false},
		"a pod that takes a token by itself":     {corev1.PodSpec{ServiceAccountName: "till", AutomountServiceAccountToken: &no, Volumes: []corev1.Volume{token}}, true},
		"a pod that is given another kubeconfig": {corev1.PodSpec{ServiceAccountName: "till", Volumes: []corev1.Volume{{Name: "k", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubeconfig"}}}}, Containers: []corev1.Container{{VolumeMounts: []corev1.VolumeMount{{Name: "k"}}}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := UsesAccount(&tt.spec); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A role's name and a service account's come from objects, which a stranger may
// have written.
func TestAManifestIsOneDocumentWhateverItsNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom([]string{"a\nEOF\nid\n", "x: y", "null", "1e3", "a #b", "---", "'", "\u2028", ""}), rapid.String())
		role, account := name.Draw(t, "role"), name.Draw(t, "account")
		var binding rbacv1.ClusterRoleBinding
		text := BindingManifest("b", role, "kube-system", account)
		if err := yaml.UnmarshalStrict([]byte(text), &binding); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if strings.ToValidUTF8(role, "") == role && binding.RoleRef.Name != role || strings.ToValidUTF8(account, "") == account && binding.Subjects[0].Name != account {
			t.Fatalf("other names are read of\n%s", text)
		}
		if lines := strings.Count(text, "\n"); lines != strings.Count(BindingManifest("b", "r", "n", "a"), "\n") {
			t.Fatalf("%d lines in\n%s", lines, text)
		}
	})
}

// lacking are those requests that a user may not make.
func lacking(p *Policy, u User, requests []Request) []Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r Request) bool {
		_, may := p.May(u, r)
		return may
	})
}
