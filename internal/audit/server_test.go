// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/test/kube"
)

// serverPolicy has a rule for each way in which a rule can match, and notes
// everything else of the test's user without objects.
const serverPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:apiserver"]}
- {level: Request, verbs: [create, delete], resources: [{group: "", resources: [configmaps], resourceNames: [named]}]}
- {level: RequestResponse, namespaces: [default], verbs: [create], resources: [{group: "", resources: [configmaps]}]}
- {level: None, nonResourceURLs: ["/readyz*", "/version"]}
- {level: Metadata, resources: [{group: "", resources: ["*/status"]}]}
- {level: None, resources: [{group: "", resources: [services, "nodes/*"]}]}
- {level: Request, userGroups: ["system:masters"], resources: [{group: discovery.k8s.io}, {group: "", resources: ["*"]}], omitStages: [ResponseStarted]}
- {level: Metadata}
`

// A real server is given the policy, and requests; then what it noted is what
// the policy says.
func TestAServerNotesWhatThePolicySays(t *testing.T) {
	c := kube.Start(t)
	c.StopAPIServer()
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.AuditLog), "audit-policy.yaml"), []byte(serverPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(c.AuditLog); err != nil {
		t.Fatal(err)
	}
	c.StartAPIServer()
	policy, err := audit.ParsePolicy([]byte(serverPolicy))
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()
	maps, services, nodes := c.Client.CoreV1().ConfigMaps("default"), c.Client.CoreV1().Services("default"), c.Client.CoreV1().Nodes()
	get := func(path string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.Client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			return err
		}
	}
	steps := []struct {
		name string
		do   func(context.Context) error
		want audit.Record // what the server knows when it chooses the rule
	}{
		{"create named", func(ctx context.Context) error {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "named"}}, metav1.CreateOptions{})
			return err
		}, audit.Record{Verb: "create", Namespace: "default", Name: "named", Resource: audit.Resource{Version: "v1", Resource: "configmaps"}}},
		{"get named", func(ctx context.Context) error {
			_, err := maps.Get(ctx, "named", metav1.GetOptions{})
			return err
		}, audit.Record{Verb: "get", Namespace: "default", Name: "named", Resource: audit.Resource{Version: "v1", Resource: "configmaps"}}},
		{"delete named", func(ctx context.Context) error { return maps.Delete(ctx, "named", metav1.DeleteOptions{}) },
			audit.Record{Verb: "delete", Namespace: "default", Name: "named", Resource: audit.Resource{Version: "v1", Resource: "configmaps"}}},
		{"list services", func(ctx context.Context) error {
			_, err := services.List(ctx, metav1.ListOptions{})
			return err
		}, audit.Record{Verb: "list", Namespace: "default", Resource: audit.Resource{Version: "v1", Resource: "services"}}},
		{"create a node", func(ctx context.Context) error {
			_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{})
			return err
		}, audit.Record{Verb: "create", Name: "n1", Resource: audit.Resource{Version: "v1", Resource: "nodes"}}},
		{"patch the status of a node", func(ctx context.Context) error {
			_, err := nodes.Patch(ctx, "n1", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
			return err
		}, audit.Record{Verb: "patch", Name: "n1", Resource: audit.Resource{Version: "v1", Resource: "nodes", Subresource: "status"}}},
		{"list slices", func(ctx context.Context) error {
			_, err := c.Client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
			return err
		}, audit.Record{Verb: "list", Resource: audit.Resource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}}},
		{"list leases", func(ctx context.Context) error {
			_, err := c.Client.CoordinationV1().Leases("default").List(ctx, metav1.ListOptions{})
			return err
		}, audit.Record{Verb: "list", Namespace: "default", Resource: audit.Resource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}},
		{"ask for a path below one", get("/readyz/ping"), audit.Record{Verb: "get", RequestURI: "/readyz/ping"}},
		{"ask for a path", get("/livez"), audit.Record{Verb: "get", RequestURI: "/livez"}},
		{"ask for a path of a rule", get("/version"), audit.Record{Verb: "get", RequestURI: "/version"}},
	}
	for _, step := range steps {
		if err := step.do(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	c.StopAPIServer()

	log, err := audit.Open(t.Context(), c.AuditLog)
	if err != nil {
		t.Fatal(err)
	}
	noted := map[string]audit.Level{}
	for r, err := range log.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		level, rule := policy.Level(r)
		if level != r.Level || policy.Omits(rule, r.Stage) {
			t.Errorf("the server noted %s at %s in stage %s; by rule %d it is %s", key(r), r.Level, r.Stage, rule, level)
		}
		if r.User == "admin" {
			noted[key(r)] = r.Level
		}
		if r.Time.IsZero() || r.AuditID == "" || r.UserAgent == "" || len(r.SourceIPs) == 0 || r.Code == 0 && r.Done() {
			t.Errorf("%s:%d: the record lacks something: %+v", r.File, r.Line, r)
		}
	}
	for _, step := range steps {
		step.want.User, step.want.Groups = "admin", []string{"system:masters", "system:authenticated"}
		want, rule := policy.Level(step.want)
		got, ok := noted[key(step.want)]
		if want == audit.None && ok || want != audit.None && got != want {
			t.Errorf("%s: by rule %d it is noted at %s, the server noted it at %q", step.name, rule, want, got)
		}
	}
	if losses := log.Losses(); losses.Any() || losses.Other+losses.Duplicates > 0 {
		t.Errorf("losses of a server's own log = %+v", losses)
	}
}

func key(r audit.Record) string {
	if r.Resource.Resource == "" {
		return r.Verb + " " + r.RequestURI
	}
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}
