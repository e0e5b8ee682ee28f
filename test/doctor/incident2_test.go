// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// TestIncident2WithLess takes away from the second incident what somebody may not
// have collected: the chain becomes shorter, and its first link that is known
// stands first.
func TestIncident2WithLess(t *testing.T) {
	for name, tt := range map[string]struct {
		without []string // parts of paths
		story   []string // from the root down, each time the first consequence
	}{
		"without the roles the agent's own log is enough": {
			[]string{"rbac.authorization.k8s.io", "access."},
			[]string{"rbac-missing", "component-forbidden", "identity-init", "pod-network", "dns-chain"},
		},
		"without any log the roles are enough": {
			[]string{"logs/"},
			[]string{"rbac-missing", "identity-init", "pod-network", "dns-chain"},
		},
		"without roles and the agent's log the identities stand first": {
			[]string{"rbac.authorization.k8s.io", "access.", "cilium-agent.log"},
			[]string{"identity-init", "pod-network", "dns-chain"},
		},
		"without anything of the agent the pod network stands first": {
			[]string{"rbac.authorization.k8s.io", "access.", "cilium-agent.log", "cilium-endpoints"},
			[]string{"pod-network", "dns-chain"},
		},
		"without the connections that were tried the root is the same": {
			[]string{"probes.json"},
			[]string{"rbac-missing", "component-forbidden", "identity-init", "dns-chain"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := examineWithout(t, tt.without)
			var story []string
			for nodes := r.Causes; len(nodes) > 0; nodes = nodes[0].Consequences {
				story = append(story, nodes[0].Check)
			}
			if diff := cmp.Diff(tt.story, story); diff != "" {
				t.Errorf("%s\n%s", diff, doctortest.Text(r))
			}
		})
	}
	t.Run("of what nobody collected nothing is said", func(t *testing.T) {
		r := examineWithout(t, []string{"rbac.authorization.k8s.io", "access.", "logs/", "cilium-endpoints", "probes.json"})
		if mentions(r, "rbac-missing") || mentions(r, "identity-init") || mentions(r, "pod-network") {
			t.Error(doctortest.Text(r))
		}
	})
}

func examineWithout(t *testing.T, parts []string) doctor.Report {
	t.Helper()
	b, err := evidence.Open("../../examples/incidents/incident-2")
	if err != nil {
		t.Fatal(err)
	}
	before := len(b.Records)
	b.Records = slices.DeleteFunc(b.Records, func(r evidence.Record) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(r.Path, part) })
	})
	if len(b.Records) == before {
		t.Fatalf("the bundle has nothing of %q", parts)
	}
	return doctor.Examine(facts.Read(b), checks.All())
}

// TestIncident2AsMet wants of what its finders had before them what they knew at
// the end.
func TestIncident2AsMet(t *testing.T) { doctortest.Run(t, checks.All(), "testdata/incident-2") }
