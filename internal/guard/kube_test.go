// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/test/kube"
)

// live is a guard that a real API server asks, with the rights of its manifests
// and no others.
type live struct {
	*kube.Cluster
	cluster *Cluster
	guard   atomic.Pointer[Guard]
	options ManifestOptions
	files   files
	stop    func()
	log     *journal
}

func startLive(t testing.TB) *live {
	t.Helper()
	l := &live{Cluster: kube.Start(t), log: &journal{}}
	l.files = files{filepath.Join(t.TempDir(), corev1.TLSCertKey), filepath.Join(t.TempDir(), corev1.TLSPrivateKeyKey)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.options = ManifestOptions{Namespace: "kube-system", Image: "fairlead:test", AllRBAC: true, URL: "https://" + listener.Addr().String() + "/validate"}
	l.apply(t)
	certificate, err := NewCertificate(l.files.cert, l.files.key, func(time.Time) {}, l.log.logger())
	if err != nil {
		t.Fatal(err)
	}
	if l.cluster, err = NewCluster(l.account(), false, l.log.logger()); err != nil {
		t.Fatal(err)
	}
	l.enforce(false)
	watching, stopWatching := context.WithCancel(context.Background())
	serving, stopServing := context.WithCancel(context.Background())
	watched, served := make(chan struct{}), make(chan error, 1)
	go func() { l.cluster.Run(watching); close(watched) }()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { l.guard.Load().Handler().ServeHTTP(w, r) })
	go func() { served <- Serve(serving, listener, certificate, handler, l.log.logger()) }()
	l.stop = func() {
		stopServing()
		if err := <-served; err != nil {
			t.Error(err)
		}
		served <- nil
	}
	t.Cleanup(func() {
		l.stop()
		stopWatching()
		<-watched
	})
	eventually(t, "the guard judges", func() error { _, err := l.cluster.State(); return err })
	return l
}

// apply gives the manifests to kubectl, and writes what their Secret holds to
// files, as a kubelet does.
func (l *live) apply(t testing.TB) {
	t.Helper()
	var text bytes.Buffer
	if err := Manifests(&text, l.options, time.Now()); err != nil {
		t.Fatal(err)
	}
	l.Apply(text.String())
	secret, err := l.Client.CoreV1().Secrets("kube-system").Get(t.Context(), "fairlead-guard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, l.files, pair{certificate: secret.Data[corev1.TLSCertKey], key: secret.Data[corev1.TLSPrivateKeyKey]})
}

// account is a way to the API with the token of the guard's ServiceAccount.
func (l *live) account() *rest.Config {
	token := strings.TrimSpace(l.Kubectl("create", "token", "fairlead-guard", "--namespace=kube-system"))
	return &rest.Config{Host: l.URL, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAFile: l.CAFile}}
}

// enforce puts a guard in the place of the one before, which remembers nothing.
func (l *live) enforce(yes bool) {
	l.guard.Store(New(l.cluster, yes, NewMetrics(func() bool { return true }), l.log.logger()))
}

// kubectl returns all that it printed, and whether it succeeded.
func (l *live) kubectl(t testing.TB, args ...string) (string, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, l.Program("kubectl"), append([]string{"--kubeconfig=" + l.Kubeconfig, "--cache-dir=" + t.TempDir()}, args...)...)
	out, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// knows waits for the guard to have an object, or not any more.
func (l *live) knows(t testing.TB, k impact.Key, want bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("the guard knows %s: %v", k.Name, want), func() error {
		s, err := l.cluster.State()
		if err != nil {
			return err
		}
		if _, there := s.Get(k); there != want {
			return fmt.Errorf("%v", there)
		}
		return nil
	})
}

func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not after a minute: %v", what, err)
}

// populate has the cluster hold what the guard's other tests judge, as kubelets
// and users would write it.
func (l *live) populate(t testing.TB) {
	t.Helper()
	l.Apply(strings.ReplaceAll(clusterYAML, "name: cilium-agent}", "name: cilium-agent, image: example.com/cilium}"))
	pods := l.Client.CoreV1().Pods("kube-system")
	pod, err := pods.Get(t.Context(), "cilium-x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard knows the pod", func() error {
		s, err := l.cluster.State()
		if err != nil {
			return err
		}
		for _, p := range s.PodsIn("kube-system") {
			if p.Pod.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return fmt.Errorf("%d pods, none of them running", len(s.PodsIn("kube-system")))
	})
}

// TestOnAnAPIServer has a real API server ask about kubectl's deletes.
func TestOnAnAPIServer(t *testing.T) {
	l := startLive(t)
	t.Run("the rights of the manifests are enough, and Secrets are not among them", func(t *testing.T) {
		s, err := l.cluster.State()
		if err != nil {
			t.Fatal(err)
		}
		if have := s.Unknowns(); !slices.Equal(have, []schema.GroupResource{impact.ConfigMaps, impact.Secrets}) {
			t.Errorf("not known: %v", have)
		}
	})
	l.populate(t)
	t.Run("kubectl prints what a delete would break", func(t *testing.T) {
		out, ok := l.kubectl(t, "delete", "clusterrole", "cilium", "--dry-run=server")
		if !ok || !strings.Contains(out, "Warning: fairlead guard: Outage: ") {
			t.Errorf("%v: %s", ok, out)
		}
	})
	t.Run("a dry run takes nothing away", func(t *testing.T) {
		out, ok := l.kubectl(t, "delete", "clusterrolebinding", "cilium", "--dry-run=server")
		if !ok || !strings.Contains(out, "ClusterRoleBinding cilium-too is then the last that gives ClusterRole cilium to ServiceAccount kube-system/cilium") {
			t.Errorf("%v: %s", ok, out)
		}
		out, _ = l.kubectl(t, "delete", "clusterrolebinding", "cilium-too", "--dry-run=server")
		if strings.Contains(out, "Outage: ") || !strings.Contains(out, "ClusterRoleBinding cilium is then the last") {
			t.Error(out)
		}
	})
	t.Run("what is not guarded is warned of", func(t *testing.T) {
		out, ok := l.kubectl(t, "delete", "clusterrole", "free", "--dry-run=server")
		if !ok || !strings.Contains(out, "Warning: fairlead guard: ") {
			t.Errorf("%v: %s", ok, out)
		}
	})
	t.Run("what nobody uses goes without the webhook's word", func(t *testing.T) {
		if out, ok := l.kubectl(t, "delete", "clusterrole", "unused", "--dry-run=server"); !ok || strings.Contains(out, "fairlead guard:") {
			t.Errorf("%v: %s", ok, out)
		}
	})

	l.enforce(true)
	t.Run("a guard that enforces refuses, in one line", func(t *testing.T) {
		out, ok := l.kubectl(t, "delete", "service", "-n", "shop", "web")
		if ok || strings.Count(out, "\n") != 1 || !strings.Contains(out, `admission webhook "namespace.guard.fairlead.io" denied the request: `) ||
			!strings.Contains(out, "kubectl annotate service web -n shop fairlead.io/delete-anyway=REASON") {
			t.Errorf("%v: %s", ok, out)
		}
	})
	t.Run("the second of two bindings is refused before any watch tells of the first", func(t *testing.T) {
		l.Kubectl("label", "clusterrolebinding", "cilium", "cilium-too", "network=yes")
		out, ok := l.kubectl(t, "delete", "clusterrolebinding", "-l", "network=yes")
		if ok || !strings.Contains(out, `"cilium" deleted`) || !strings.Contains(out, "denied the request: Outage: ") || strings.Contains(out, `"cilium-too" deleted`) {
			t.Errorf("%v: %s", ok, out)
		}
	})
	t.Run("the annotation lets it go, and leaves a trace", func(t *testing.T) {
		l.Kubectl("annotate", "service", "-n", "shop", "web", Override+"=moved to another cluster")
		out, ok := l.kubectl(t, "delete", "service", "-n", "shop", "web")
		if !ok || !strings.Contains(out, "Service shop/web goes anyway, as its annotation says: moved to another cluster") {
			t.Errorf("%v: %s", ok, out)
		}
		l.audited(t, `"namespace.guard.fairlead.io/verdict":"overridden"`, `"namespace.guard.fairlead.io/reason":"moved to another cluster"`)
		if !strings.Contains(l.log.String(), `"reason":"moved to another cluster"`) {
			t.Errorf("log:\n%s", l.log)
		}
	})
	t.Run("what is only being created is judged by the request", func(t *testing.T) {
		l.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: young, labels: {fairlead.io/guard: "on"}}, rules: []}`)
		if out, ok := l.kubectl(t, "delete", "clusterrole", "young"); !ok {
			t.Errorf("%s", out)
		}
		l.knows(t, impact.Key{GroupResource: impact.ClusterRoles, Name: "young"}, false)
	})
	t.Run("a restart of the API server is waited for, and what happened meanwhile is known", func(t *testing.T) {
		l.StopAPIServer()
		l.StartAPIServer()
		l.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: late}, rules: []}`)
		l.knows(t, impact.Key{GroupResource: impact.ClusterRoles, Name: "late"}, true)
	})
	t.Run("the policy", func(t *testing.T) { l.policy(t) })
}

// policy is what holds while no guard is there.
func (l *live) policy(t *testing.T) {
	l.stop()
	l.options.Enforce = true
	l.apply(t)
	t.Run("refuses the delete of a guarded ClusterRole while the webhook is away", func(t *testing.T) {
		const message = "ClusterRole cilium is guarded (label fairlead.io/guard=on); to delete it anyway, say why: kubectl annotate clusterrole cilium fairlead.io/delete-anyway=REASON"
		eventually(t, "the policy is in force", func() error {
			if out, ok := l.kubectl(t, "delete", "clusterrole", "cilium", "--dry-run=server"); ok || !strings.Contains(out, message) {
				return fmt.Errorf("%v: %s", ok, out)
			}
			return nil
		})
	})
	t.Run("names the namespace of what is in one", func(t *testing.T) {
		l.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: default, labels: {fairlead.io/guard: "on"}}, rules: []}`)
		for _, args := range [][]string{{"role", "reader"}, {"--raw", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"}} {
			out, ok := l.kubectl(t, append([]string{"delete"}, args...)...)
			if ok || !strings.Contains(out, "kubectl annotate role reader -n default fairlead.io/delete-anyway=REASON") {
				t.Errorf("%v: %v: %s", args, ok, out)
			}
		}
	})
	t.Run("lets it go with the annotation, which stands in the audit log", func(t *testing.T) {
		l.Kubectl("annotate", "clusterrole", "cilium", Override+"=another network")
		if out, ok := l.kubectl(t, "delete", "clusterrole", "cilium"); !ok {
			t.Error(out)
		}
		l.audited(t, `"guard.fairlead.io/delete-anyway":"another network"`)
	})
	t.Run("leaves the namespace controller alone", func(t *testing.T) {
		namespaces := "system:serviceaccount:kube-system:namespace-controller"
		l.Kubectl("create", "clusterrolebinding", "namespaces", "--clusterrole=cluster-admin", "--user="+namespaces)
		if out, ok := l.kubectl(t, "delete", "role", "reader", "--as="+namespaces); !ok {
			t.Error(out)
		}
	})
	t.Run("is nothing to what is not labelled", func(t *testing.T) {
		if out, ok := l.kubectl(t, "delete", "clusterrole", "free"); !ok {
			t.Error(out)
		}
	})
}

// audited waits for a line of the API server's audit log that has all parts.
func (l *live) audited(t *testing.T, parts ...string) {
	t.Helper()
	eventually(t, "the audit log has "+strings.Join(parts, " and "), func() error {
		text, err := os.ReadFile(l.AuditLog)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return nil
			}
		}
		return fmt.Errorf("no such line among %d bytes", len(text))
	})
}
