// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
	"github.com/fairlead-io/fairlead/test/kube"
)

const webYAML = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`

// diffText shows what an event changed.
func diffText(e journal.Event) string {
	var steps []string
	for _, c := range e.Diff {
		steps = append(steps, fmt.Sprintf("%s %s %s→%s", c.Op, c.Path, c.Old, c.New))
	}
	return strings.Join(steps, "; ")
}

// TestRecord records a real API server, and what becomes of its objects.
func TestRecord(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Apply(webYAML)
	servers := make(chan []netip.AddrPort, 100)
	r := record(t, cluster.APIServer, Config{Kinds: []string{"configmaps", "Secret", "deployments.apps"}, Servers: func(at []netip.AddrPort) { servers <- at }})
	r.listed(t, "services", "endpointslices.discovery.k8s.io", "nodes", "leases.coordination.k8s.io in kube-system",
		"clusterroles.rbac.authorization.k8s.io", "networkpolicies.networking.k8s.io", "configmaps", "secrets")
	web := func(after journal.Event) journal.Filter {
		return journal.Filter{Kinds: []string{"services"}, Names: []string{"web"}, After: after.ID}
	}

	t.Run("where the API servers say that they are is told", func(t *testing.T) {
		want := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), at(t, cluster.APIServer).Port())
		if told := <-servers; !slices.Contains(told, want) {
			t.Errorf("%v, want %s", told, want)
		}
	})
	first := r.await(t, web(journal.Event{}))
	t.Run("what is there when watching begins is listed, with who wrote it last", func(t *testing.T) {
		if first.Type != journal.Listed || first.Manager != "kubectl" || first.Operation != "Apply" || len(first.Diff) > 0 {
			t.Errorf("%+v", first)
		}
		if c := string(first.Content); !strings.Contains(c, `"kind":"Service"`) || strings.Contains(c, "managedFields") || strings.Contains(c, "resourceVersion") {
			t.Error(c)
		}
	})
	cluster.Kubectl("patch", "service", "web", "--type=merge", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	second := r.await(t, web(first))
	t.Run("a patch is a change by who patched", func(t *testing.T) {
		if second.Type != journal.Modified || second.Manager != "kubectl-patch" || second.Subresource != "" ||
			!strings.Contains(diffText(second), `replace /spec/externalTrafficPolicy "Cluster"→"Local"`) {
			t.Errorf("%+v", second)
		}
	})
	cluster.Kubectl("patch", "service", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}}`)
	third := r.await(t, web(second))
	t.Run("a status is written by way of its subresource", func(t *testing.T) {
		if third.Subresource != "status" || third.Manager != "kubectl-patch" || !strings.Contains(diffText(third), "/status/loadBalancer/ingress") {
			t.Errorf("%+v", third)
		}
	})
	t.Run("a scale is written by way of its subresource, without a time", func(t *testing.T) {
		cluster.Kubectl("create", "deployment", "app", "--image=app", "--replicas=3")
		e := r.await(t, journal.Filter{Kinds: []string{"deployments"}, Names: []string{"app"}})
		cluster.Kubectl("scale", "deployment", "app", "--replicas=1")
		e = r.await(t, journal.Filter{Kinds: []string{"deployments"}, Names: []string{"app"}, After: e.ID})
		if e.Subresource != "scale" || e.Manager != "kubectl" || !strings.Contains(diffText(e), "replace /spec/replicas 3→1") {
			t.Errorf("%+v", e)
		}
	})
	cluster.Kubectl("delete", "service", "web")
	t.Run("who deletes leaves no name in the object", func(t *testing.T) {
		for e := third; e.Type != journal.Deleted; {
			e = r.await(t, web(e))
			if e.Type == journal.Deleted && (e.Manager != "" || !strings.Contains(string(e.Content), "203.0.113.7")) {
				t.Errorf("%+v", e)
			}
		}
	})
	t.Run("the values of a Secret are left out, and that one changed is seen", func(t *testing.T) {
		cluster.Kubectl("create", "secret", "generic", "login", "--from-literal=password=correct-horse")
		e := r.await(t, journal.Filter{Kinds: []string{"secrets"}, Names: []string{"login"}})
		if !strings.Contains(string(e.Content), `"password":"(left out, up to 64 bytes)"`) {
			t.Error(string(e.Content))
		}
		cluster.Kubectl("patch", "secret", "login", "--type=merge", "-p", `{"stringData":{"password":"battery-staple"}}`)
		e = r.await(t, journal.Filter{Kinds: []string{"secrets"}, Names: []string{"login"}, After: e.ID})
		if want := fmt.Sprintf(`"(left out, up to 64 bytes, changed in %s)"`, e.ResourceVersion); !strings.Contains(diffText(e), want) {
			t.Errorf("%s, want %s", diffText(e), want)
		}
	})
	r.stop(t)
	t.Run("nothing was missed", func(t *testing.T) {
		if gaps := r.gaps(t, "services"); len(gaps) > 0 {
			t.Errorf("%+v", gaps)
		}
	})
	t.Run("each kind was listed once, also one without objects", func(t *testing.T) {
		for resource, objects := range map[string]int{"services": 2, "networkpolicies": 0} {
			lists := r.lists(t, resource)
			if len(lists) != 1 || lists[0].Objects != objects || lists[0].Reason != journal.ListStart || lists[0].Ended.IsZero() || lists[0].ResourceVersion == "" {
				t.Errorf("%s: %+v", resource, lists)
			}
			if got := len(r.listEvents(t, lists[0])); got != objects {
				t.Errorf("%s: %d events of the list", resource, got)
			}
		}
		if first.List == 0 || second.List != 0 {
			t.Errorf("the first event is of list %d, one of the watch of list %d", first.List, second.List)
		}
	})
	t.Run("a replay knows every kind, though there is no Node", func(t *testing.T) {
		engine, err := replay.New(replay.Options{Node: model.Node{Name: "n1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		s, err := engine.Run(t.Context(), r.journal, replay.Moment{})
		row, found := engine.Snapshot().Service(replay.APIServer)
		if err != nil || s.Cut || len(engine.Unheard()) > 0 || !found || replay.CountBackends(row).Own != 1 {
			t.Errorf("%+v, %v; unheard of %v; default/kubernetes is %+v", s, err, engine.Unheard(), row)
		}
	})
}

// TestAServerThatStops is the decisive event of the first incident.
func TestAServerThatStops(t *testing.T) {
	cluster := kube.Start(t)
	second := cluster.AddAPIServer()
	client, err := apiserver.New(apiserver.Config{Kubeconfig: cluster.Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	client.Learn(apiserver.File, []netip.AddrPort{at(t, cluster.APIServer), at(t, second)})
	run(t, client)
	r := record(t, cluster.APIServer, Config{REST: client.REST(), Found: client.Found})
	own := journal.Filter{Kinds: []string{"endpointslices"}, Namespaces: []string{"default"}, Names: []string{"kubernetes"}}
	listed := r.await(t, own)
	r.listed(t, "services", "endpointslices.discovery.k8s.io")

	cluster.TerminateAPIServer()
	own.After = listed.ID
	e := r.await(t, own)
	t.Run("that it emptied default/kubernetes is one event, by kube-apiserver", func(t *testing.T) {
		if e.Type != journal.Modified || e.Manager != "kube-apiserver" || len(e.Diff) != 1 && !strings.Contains(diffText(e), "/endpoints") {
			t.Errorf("%+v", e)
		}
		if !slices.ContainsFunc(e.Diff, func(c journal.Change) bool {
			return strings.HasPrefix(c.Path, "/endpoints") && strings.Contains(string(c.Old), "192.0.2.1")
		}) {
			t.Errorf("the diff is %s", diffText(e))
		}
	})
	<-cluster.Done()
	t.Run("a watch that goes on at another server has no gap", func(t *testing.T) {
		second.Apply(webYAML)
		r.await(t, journal.Filter{Kinds: []string{"services"}, Names: []string{"web"}, Types: []journal.Type{journal.Added}})
		if gaps := r.gaps(t, "services"); len(gaps) > 0 {
			t.Errorf("%+v", gaps)
		}
	})
	r.stop(t)
}

// TestAServerThatForgot asks a server that does not remember what another one
// did while it was away.
func TestAServerThatForgot(t *testing.T) {
	cluster := kube.Start(t)
	second := cluster.AddAPIServer()
	for _, name := range []string{"stays", "changes", "goes", "anew"} {
		cluster.Kubectl("create", "service", "clusterip", name, "--tcp=80")
	}
	r := record(t, cluster.APIServer, Config{Only: true, Kinds: []string{"services"}})
	r.await(t, journal.Filter{Names: []string{"anew"}})
	r.listed(t, "services")
	before := time.Now()
	cluster.StopAPIServer()
	second.Kubectl("label", "service", "changes", "with=it")
	second.Kubectl("delete", "service", "goes", "anew")
	second.Kubectl("create", "service", "clusterip", "anew", "--tcp=80")
	second.Kubectl("create", "service", "clusterip", "new", "--tcp=80")
	cluster.StartAPIServer()
	r.await(t, journal.Filter{Names: []string{"goes"}, Types: []journal.Type{journal.Absent}})

	t.Run("a list tells what changed, came and went, and nothing of what stayed", func(t *testing.T) {
		for name, want := range map[string]string{
			"stays": "[listed]", "changes": "[listed modified]", "goes": "[listed absent]", "anew": "[listed absent listed]", "new": "[listed]",
		} {
			var types []journal.Type
			for _, e := range r.events(t, journal.Filter{Names: []string{name}}) {
				types = append(types, e.Type)
			}
			if got := fmt.Sprint(types); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	})
	r.stop(t)
	t.Run("the time that nobody watched is a gap with its reason and its versions", func(t *testing.T) {
		gaps := r.gaps(t, "services")
		if len(gaps) != 1 || gaps[0].Began.After(before.Add(time.Second)) || gaps[0].Ended.Sub(gaps[0].Began) < time.Second {
			t.Fatalf("%+v", gaps)
		}
		if g := gaps[0]; !strings.Contains(g.Reason, "forgotten") || g.FromVersion == "" || g.ToVersion == "" || g.FromVersion == g.ToVersion {
			t.Errorf("%+v", g)
		}
	})
	t.Run("the list after it says why, how many objects there are, and what had changed", func(t *testing.T) {
		lists, gap := r.lists(t, "services"), r.gaps(t, "services")[0]
		if len(lists) != 2 {
			t.Fatalf("%+v", lists)
		}
		l := lists[1]
		if l.Reason != gap.Reason || !l.Ended.Equal(gap.Ended) || l.ResourceVersion != gap.ToVersion || l.Objects != 5 {
			t.Errorf("%+v, after the gap %+v", l, gap)
		}
		got := r.listEvents(t, l)
		slices.Sort(got)
		if want := "[absent anew absent goes listed anew listed new modified changes]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
}

// TestARecorderThatIsKilled runs this program again, and kills it.
func TestARecorderThatIsKilled(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Apply(webYAML)
	path := filepath.Join(t.TempDir(), "journal")
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), kubeconfigVariable+"="+cluster.Kubeconfig, journalVariable+"="+path)
	killed.Stderr = t.Output()
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	before := awaitIn(t, path, journal.Filter{Kinds: []string{"services"}, Names: []string{"web"}})
	awaitIn(t, path, journal.Filter{Kinds: []string{"endpointslices"}})
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	cluster.Kubectl("label", "service", "web", "while=away")

	r := record(t, cluster.APIServer, Config{Path: path})
	after := r.await(t, journal.Filter{Kinds: []string{"services"}, Names: []string{"web"}, After: before.ID})
	r.listed(t, "services", "endpointslices.discovery.k8s.io", "clusterroles.rbac.authorization.k8s.io")
	r.stop(t)
	t.Run("what changed meanwhile is a change, and what did not is not told again", func(t *testing.T) {
		if after.Type != journal.Modified || !strings.Contains(diffText(after), "/metadata/labels") || after.Manager != "kubectl-label" {
			t.Errorf("%+v", after)
		}
		seen := map[string]bool{}
		for _, e := range r.events(t, journal.Filter{}) {
			key := e.Kind.Resource + " " + e.Namespace + "/" + e.Name + " " + e.UID + " " + e.ResourceVersion + " " + string(e.Type)
			if seen[key] {
				t.Errorf("twice: %s", key)
			}
			seen[key] = true
		}
	})
	t.Run("from the last event to the new list is a gap of each kind", func(t *testing.T) {
		for _, kind := range []string{"services", "endpointslices"} {
			gaps := r.gaps(t, kind)
			if lists := r.lists(t, kind); len(lists) != 2 || lists[1].Reason != errNotRunning.Error() || lists[1].Ended.IsZero() {
				t.Errorf("%s: lists %+v", kind, lists)
			}
			if len(gaps) != 1 || gaps[0].Reason != errNotRunning.Error() || gaps[0].Began.Before(before.Time) || !gaps[0].Ended.After(gaps[0].Began) {
				t.Errorf("%s: %+v", kind, gaps)
			}
		}
	})
}

// awaitIn returns the first event of a journal that somebody else writes.
func awaitIn(t *testing.T, path string, f journal.Filter) (found journal.Event) {
	t.Helper()
	eventually(t, "an event of the other recorder", func() error {
		j, err := journal.Open(path)
		if err != nil {
			return err
		}
		defer j.Close()
		for e, err := range j.Events(t.Context(), f) {
			found = e
			return err
		}
		return fmt.Errorf("none matches %+v", f)
	})
	return found
}

func at(t *testing.T, server *kube.APIServer) netip.AddrPort {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(u.Host)
}

// run keeps a client's API server at hand until the test ends.
func run(t *testing.T, client *apiserver.Client) {
	t.Helper()
	if err := client.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = client.Run(t.Context()) }()
	t.Cleanup(func() { <-done })
}
