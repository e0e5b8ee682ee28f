// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
)

const intranet = "default/kubernetes-intranet"

// TestIncident1 goes through the first incident as it was recorded: the doctor
// warns of it while all is well, foretells it while every connection works, and
// names it when none does. The last moment is after what it says to do.
func TestIncident1(t *testing.T) {
	for moment, test := range []struct {
		name     string
		severity doctor.Severity
		// chain are the checks from the root down, each about the same Service.
		chain []string
	}{
		{"moment 1: both Services have their backend, and the defect waits", doctor.Warning, nil},
		{"moment 2: the agent has lost the backend, and the kernel still has it", doctor.Critical, []string{"backends-missing"}},
		{"moment 3: the Service was touched, and the kernel has lost it too", doctor.Critical, []string{"backends-missing"}},
		{"moment 4: the other Service is well again, and this one is not", doctor.Critical, []string{"backends-missing"}},
		{"moment 5: its EndpointSlice was annotated, as the remedy says, and all is back", doctor.Warning, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := examineMoment(t, "1.18.5", moment+1)
			if len(r.Causes) == 0 {
				t.Fatal("nothing is found")
			}
			root := r.Causes[0]
			if root.Check != "name-prefix" || root.Subject != intranet || root.Severity != test.severity {
				t.Errorf("the root is %s %s of %s, want %s name-prefix of %s\n%s", root.Severity, root.Check, root.Subject, test.severity, intranet, doctortest.Text(r))
			}
			if root.Certainty != doctor.Confirmed {
				t.Errorf("two samples show it, and it is %s", root.Certainty)
			}
			for _, check := range test.chain {
				if !has(root, check, intranet) {
					t.Errorf("%s is no consequence of it\n%s", check, doctortest.Text(r))
				}
			}
			if len(r.Causes) > 1 {
				t.Errorf("there are more causes than it\n%s", doctortest.Text(r))
			}
		})
		t.Run(fmt.Sprintf("moment %d: a version without the defect has nothing to fear", moment+1), func(t *testing.T) {
			r := examineMoment(t, "1.20.2", moment+1)
			silent(t, r)
		})
	}
}

func examineMoment(t *testing.T, version string, moment int) doctor.Report {
	t.Helper()
	c := recordedCase(t, fmt.Sprintf("testdata/incident-1/%s-moment-%d.txtar", version, moment))
	if len(c.Samples) != 2 {
		t.Fatalf("there are %d samples, want 2", len(c.Samples))
	}
	return doctor.Examine(c, checks.All())
}

// has says whether a finding of a check about a subject is below a node.
func has(n *doctor.Node, check, subject string) bool {
	return slices.ContainsFunc(n.Consequences, func(c *doctor.Node) bool {
		return c.Check == check && c.Subject == subject || has(c, check, subject)
	})
}

func worst(r doctor.Report) doctor.Severity {
	severity := doctor.Info
	var walk func([]*doctor.Node)
	walk = func(nodes []*doctor.Node) {
		for _, n := range nodes {
			severity = max(severity, n.Severity)
			walk(n.Consequences)
		}
	}
	walk(r.Causes)
	return severity
}
