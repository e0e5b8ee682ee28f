// SPDX-License-Identifier: Apache-2.0

package correlation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/correlation"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/recorder"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// servers is where both API servers are.
var servers = netip.MustParseAddrPort("100.64.128.7:60002")

// recording is a recorder at work.
type recording struct {
	path  string
	end   context.CancelFunc
	ended chan error
}

func record(t *testing.T, server *kube.APIServer) *recording {
	t.Helper()
	config := rest.CopyConfig(server.REST)
	config.ServerName = server.Name()
	r := &recording{path: filepath.Join(t.TempDir(), "journal.db"), ended: make(chan error, 1)}
	at, err := recorder.New(recorder.Config{REST: config, Path: r.path, Kinds: []string{"configmaps"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	r.end = end
	go func() { r.ended <- at.Run(ctx) }()
	r.wait(t, "everything is followed", func() bool {
		kinds := at.Status().Kinds
		return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k recorder.KindStatus) bool { return !k.Listed })
	})
	return r
}

func (r *recording) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

func (r *recording) stop(t *testing.T) {
	t.Helper()
	r.end()
	if err := <-r.ended; err != nil {
		t.Fatalf("the recorder ended with %v", err)
	}
}

// silentPolicy is that of the test's servers, but that it notes nothing of what
// servers write to EndpointSlices.
const silentPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: coordination.k8s.io}]}
- {level: None, users: ["system:apiserver"], resources: [{group: discovery.k8s.io, resources: [endpointslices]}]}
- {level: RequestResponse, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
`

// scene is two servers that share an address, of which one stopped while
// another recorded.
type scene struct {
	journal          string
	stopping, stayed string // audit logs
	named            string // a ConfigMap whose name a server chose
	emptied          time.Time
}

// play has one server stop. A policy of "" is the usual one.
func play(t *testing.T, policy string) scene {
	t.Helper()
	ns, outside := lab.NewNetNS(t, "control-plane"), lab.NewNetNS(t, "outside")
	lab.Veth(t,
		lab.End{NetNS: ns, Link: "eth0", Addrs: []string{servers.Addr().String() + "/24"}},
		lab.End{NetNS: outside, Link: "eth0", Addrs: []string{servers.Addr().Next().String() + "/24"}})
	c := kube.StartShared(t, ns, servers)
	if policy != "" {
		c.StopAPIServer()
		if err := os.WriteFile(filepath.Join(filepath.Dir(c.AuditLog), "audit-policy.yaml"), []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(c.AuditLog); err != nil {
			t.Fatal(err)
		}
		c.StartAPIServer()
	}
	stays := c.AddAPIServer()
	r := record(t, stays)
	s := scene{journal: r.path, stopping: c.AuditLog, stayed: stays.AuditLog}
	busy(t, c.APIServer, "before")
	busy(t, stays, "early")
	s.named = write(t, c.APIServer)

	c.TerminateAPIServer()
	slice := journal.Filter{Kinds: []string{"endpointslices"}, Namespaces: []string{"default"}, Names: []string{"kubernetes"}, Types: []journal.Type{journal.Modified}}
	s.emptied = r.written(t, slice, `"endpoints":null`)
	slice.Since = s.emptied
	r.written(t, slice, servers.Addr().String())
	c.StopAPIServer()
	busy(t, stays, "after")
	r.written(t, journal.Filter{Kinds: []string{"configmaps"}, Names: []string{"after"}}, "")
	r.stop(t)
	return s
}

// busy writes something by way of one server.
func busy(t *testing.T, server *kube.APIServer, name string) {
	t.Helper()
	ask(t, func() error {
		_, err := server.Own.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}

// ask goes on until a connection comes to the server that is asked.
func ask(t *testing.T, do func() error) {
	t.Helper()
	var err error
	for range 50 {
		if err = do(); err == nil {
			return
		}
		if !strings.Contains(err.Error(), "certificate") {
			break
		}
	}
	t.Fatal(err)
}

// write does once whatever leaves a record of its own kind.
func write(t *testing.T, server *kube.APIServer) (named string) {
	t.Helper()
	ctx, maps, services := t.Context(), server.Own.CoreV1().ConfigMaps("default"), server.Own.CoreV1().Services("default")
	patch := func() error {
		_, err := maps.Patch(ctx, named, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
		return err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, do := range []func() error{
		func() error {
			m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "named-"}}, metav1.CreateOptions{})
			if err == nil {
				named = m.Name
			}
			return err
		},
		patch, patch, // the second changes nothing
		func() error { return maps.Delete(ctx, named, metav1.DeleteOptions{}) },
		func() error {
			_, err := services.Create(ctx, service, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		func() error {
			_, err := services.Create(ctx, service, metav1.CreateOptions{})
			return err
		},
		func() error { return services.Delete(ctx, "web", metav1.DeleteOptions{}) },
		func() error {
			return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=before"})
		},
	} {
		ask(t, do)
	}
	return named
}

// written returns when something was written that a filter picks, with a text in it.
func (r *recording) written(t *testing.T, f journal.Filter, text string) (at time.Time) {
	t.Helper()
	j, err := journal.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	r.wait(t, fmt.Sprintf("%s in %+v", text, f), func() bool {
		for e, err := range j.Events(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(e.Content), text) {
				at = e.Time
				return true
			}
		}
		return false
	})
	return at
}

// outcome is a report with the changes that it does not keep.
type outcome struct {
	*correlation.Report
	changes []correlation.Change
}

func (s scene) join(t *testing.T, policy string, logs ...string) outcome {
	t.Helper()
	j, err := journal.Open(s.journal)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var out outcome
	o := correlation.Options{Journal: j, Logs: logs, Silence: time.Minute, Change: func(c correlation.Change) error {
		out.changes = append(out.changes, c)
		return nil
	}}
	if policy != "" {
		p, err := audit.ParsePolicy([]byte(policy))
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = &p
	}
	if out.Report, err = correlation.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return out
}

// slices are the writes to default/kubernetes's slice: who on which server.
func (o outcome) slices() string {
	var b strings.Builder
	for _, c := range o.changes {
		if c.Event.Kind.Resource == "endpointslices" && c.Event.Name == "kubernetes" {
			fmt.Fprintf(&b, "%s by %s on %s; ", c.Event.Type, c.Request.User, filepath.Base(c.Request.Server))
		}
	}
	return b.String()
}

// missing is the reason for the change of default/kubernetes's slice that has no
// record.
func (o outcome) missing(t *testing.T, s scene) correlation.Reason {
	t.Helper()
	for _, m := range o.Missing {
		if m.Event.Kind.Resource == "endpointslices" && m.Event.Time.Equal(s.emptied) {
			return m.Reason
		}
	}
	t.Fatalf("the emptied slice is not among %d changes without a record", len(o.Missing))
	return correlation.Reason{}
}

func cutOff(t *testing.T, log string, before time.Time) string {
	t.Helper()
	body, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(body)) {
		var r struct{ StageTimestamp time.Time }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.StageTimestamp.Before(before) {
			kept = append(kept, line)
		}
	}
	path := filepath.Join(t.TempDir(), filepath.Base(log))
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Two real servers share an address, and one of them stops.
func TestWhoEmptiedTheAPIServersService(t *testing.T) {
	s := play(t, "")

	t.Run("with both servers' logs: who wrote, on which server, and who repaired it on the other", func(t *testing.T) {
		o := s.join(t, "", s.stopping, s.stayed)
		want := "modified by system:apiserver on apiserver-1-audit.log; modified by system:apiserver on apiserver-2-audit.log; "
		if got := o.slices(); got != want {
			t.Errorf("the slice was written: %s\nwant: %s", got, want)
		}
		for _, m := range o.Missing {
			if m.Event.Kind.Resource != "leases" || m.Reason.Code != correlation.ReasonUnlogged {
				t.Errorf("%s %s/%s has no record: %+v", m.Event.Kind.Kind, m.Event.Namespace, m.Event.Name, m.Reason)
			}
		}
		if len(o.Missing) == 0 {
			t.Error("leases have records, want none: the servers' policy leaves them out")
		}
		s.ordinary(t, o)
		for _, c := range o.Clocks {
			if c.Behind().Abs() > time.Second || c.Pairs == 0 {
				t.Errorf("the clock of %s is %s behind by %d pairs; it is the same clock", c.Server, c.Behind(), c.Pairs)
			}
		}
	})
	lost := map[string][]string{
		"with the stopping server's log left out":          {s.stayed},
		"with that log cut off before the last second":     {s.stayed, cutOff(t, s.stopping, s.emptied.Add(-time.Second))},
		"with that log cut off just before the last write": {s.stayed, cutOff(t, s.stopping, s.emptied.Add(-50*time.Millisecond))},
	}
	for name, logs := range lost {
		t.Run(name+": the stopping server is named by its lease", func(t *testing.T) {
			reason := s.join(t, "", logs...).missing(t, s)
			all := reason.Text + "\n" + strings.Join(reason.Evidence, "\n")
			for _, want := range []string{"API server apiserver-", "on apiserver-1, which was stopping", "was deleted at", "default/kubernetes"} {
				if reason.Code != correlation.ReasonStopping || !strings.Contains(all, want) {
					t.Errorf("the reason is %s: %s\nwant %s with %q", reason.Code, all, correlation.ReasonStopping, want)
				}
			}
			if ends := strings.Contains(reason.Text, "apiserver-1-audit.log ends at"); ends != (len(logs) > 1) {
				t.Errorf("the reason is: %s; want where the log ends: %v", reason.Text, len(logs) > 1)
			}
		})
	}
}

// ordinary checks what the test itself wrote.
func (s scene) ordinary(t *testing.T, o outcome) {
	t.Helper()
	var got strings.Builder
	for _, c := range o.changes {
		switch c.Event.Name {
		case s.named, "web", "before":
			fmt.Fprintf(&got, "%s %s: %s by %s, exact %t\n", c.Event.Kind.Resource, c.Event.Type, c.Request.Verb, c.Request.User, c.Exact)
		}
	}
	want := `configmaps added: create by admin, exact true
configmaps added: create by admin, exact true
configmaps modified: patch by admin, exact true
configmaps deleted: delete by admin, exact false
services added: create by admin, exact true
services deleted: delete by admin, exact true
configmaps deleted: deletecollection by admin, exact false
`
	if got.String() != want {
		t.Errorf("changes:\n%swant:\n%s", got.String(), want)
	}
	if o.Expected[correlation.ReasonUnchanged] < 1 || o.Expected[correlation.ReasonDryRun] != 1 {
		t.Errorf("records without an event for a good reason: %v; want one that changed nothing, and one dry run", o.Expected)
	}
	for _, u := range o.Unseen {
		t.Errorf("no event of %s %s %s/%s: %+v", u.Request.Verb, u.Request.Resource, u.Request.Namespace, u.Request.Name, u.Reason)
	}
}

func TestAPolicyThatNotesNothingOfIt(t *testing.T) {
	s := play(t, silentPolicy)
	t.Run("the rule is named, by the user who is known to write so", func(t *testing.T) {
		reason := s.join(t, silentPolicy, s.stopping, s.stayed).missing(t, s)
		if reason.Code != correlation.ReasonPolicy || !strings.Contains(reason.Text, "rule 2 of the policy notes nothing") ||
			!strings.Contains(strings.Join(reason.Evidence, "\n"), "system:apiserver") {
			t.Errorf("the reason is %+v; want rule 2, for system:apiserver", reason)
		}
	})
	t.Run("without the policy it is not said for certain", func(t *testing.T) {
		reason := s.join(t, "", s.stopping, s.stayed).missing(t, s)
		if reason.Code != correlation.ReasonUnlogged || !strings.Contains(reason.Text, "likely") {
			t.Errorf("the reason is %+v; want that the logs hold no such write", reason)
		}
	})
}
