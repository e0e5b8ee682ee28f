// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// TestExamplesOfIncidents goes down from the first cause, each time to the first
// consequence: that is the story that a person reads.
func TestExamplesOfIncidents(t *testing.T) {
	for _, test := range []struct {
		bundle string
		story  []string
	}{
		{"incident-1", []string{
			"name-prefix " + intranet, "backends-missing " + intranet, "cut-off kube-system/cilium", "component-crashing DaemonSet kube-system/cilium",
		}},
		{"incident-2", []string{
			"rbac-missing ServiceAccount kube-system/cilium", "component-forbidden ServiceAccount kube-system/cilium", "identity-init identities of Cilium",
			"pod-network the pod network", "dns-chain DNS of the cluster",
		}},
	} {
		t.Run(test.bundle+": the root stands first, and under it what spread", func(t *testing.T) {
			b, err := evidence.Open("../../examples/incidents/" + test.bundle)
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Warnings) > 0 {
				t.Errorf("a part of it is not looked at: %q", b.Warnings)
			}
			c := facts.Read(b)
			for _, u := range c.Unread {
				t.Errorf("%s is not read: %s", u.Record.Path, u.Why)
			}
			r := doctor.Examine(c, checks.All())
			var story []string
			for nodes := r.Causes; len(nodes) > 0; nodes = nodes[0].Consequences {
				n := nodes[0]
				if n.Severity != doctor.Critical || n.Certainty != doctor.Confirmed {
					t.Errorf("%s %s is %s and %s", n.Check, n.Subject, n.Severity, n.Certainty)
				}
				story = append(story, n.Check+" "+n.Subject)
			}
			if diff := cmp.Diff(test.story, story); diff != "" {
				t.Errorf("%s\n%s", diff, doctortest.Text(r))
			}
		})
	}
}
