// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// other is a kind of fault outside of the tables, or of the evidence itself.
type other struct {
	name   string
	planes []facts.DataPlane
	make   func(r *rand.Rand, w *world) (*evidence.Bundle, error)
	// One of checks is the cause that is to be found, subject what it is about; none if
	// nothing is to be found.
	checks  []string
	subject func(w *world) string
}

func others() []other {
	return []other{
		{name: "permissions: all are there (nothing may be found)", planes: allPlanes, make: allowed},
		{name: "permissions: the ClusterRole is deleted", planes: allPlanes, make: withoutRole, checks: []string{"rbac-missing"}, subject: account},
		{name: "permissions: the ClusterRoleBinding is deleted", planes: allPlanes, make: withoutBinding, checks: []string{"rbac-missing"}, subject: account},
		{name: "permissions: a verb is missing", planes: allPlanes, make: withoutVerb, checks: []string{"rbac-missing"}, subject: account},
		{name: "permissions: the agent's log says that it is refused", planes: allPlanes, make: refused, checks: []string{"component-forbidden", "rbac-missing"}, subject: account},
		{name: "identities: pods are reserved:init", planes: onlyCilium, make: initPods, checks: []string{"identity-init"}, subject: func(*world) string { return "identities of Cilium" }},
		{name: "API: default/kubernetes is emptied", planes: []facts.DataPlane{facts.PlaneCilium, facts.PlaneKubeProxy}, make: emptied, checks: []string{"apiserver-empty"}, subject: func(*world) string { return "default/kubernetes" }},
		{name: "evidence: a table is cut off (nothing may be found)", planes: allPlanes, make: cut},
		{name: "evidence: a collector says that a table is cut off (nothing may be found)", planes: allPlanes, make: cutByCollector},
		{name: "evidence: the command was not found (nothing may be found)", planes: allPlanes, make: notFound},
	}
}

func (k *other) try(t *testing.T, all []world, seed uint64) (miss string) {
	r := rand.New(rand.NewPCG(seed, uint64(len(k.name))))
	for range 200 {
		w := &all[r.IntN(len(all))]
		b, err := k.make(r, w)
		if errors.Is(err, errUnchanged) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		where := fmt.Sprintf("%s, seed %d, %s", k.name, seed, w.name)
		report := examine(b)
		if len(k.checks) == 0 {
			for _, n := range report.Causes {
				if w.known[n.Title] {
					continue
				}
				return fmt.Sprintf("%s: blamed: %s %s %s", where, n.Check, n.Subject, n.Title)
			}
			return ""
		}
		// What nobody is hurt by yet is a note.
		report.Causes = append(report.Causes, report.Notes...)
		subject := k.subject(w)
		return judge(where, w, report, func(n *doctor.Node) bool { return slices.Contains(k.checks, n.Check) && n.Subject == subject }, subject)
	}
	t.Fatalf("no bundle fits %q", k.name)
	return ""
}

// cut ends a table of both samples within a line, somewhere.
func cut(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	b := clone(w.bundle)
	part := r.Float64()
	return b, edit(b, func(record *evidence.Record) ([]byte, error) {
		if tableOf(record).edit == nil {
			return nil, nil
		}
		at := int(part * float64(len(record.Content)))
		for at > 0 && (record.Content[at-1] == '\n' || record.Content[at] == '\n') {
			at--
		}
		return record.Content[:at], nil
	})
}

// cutByCollector ends a table at the end of a line: only who cut it knows.
func cutByCollector(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	b := clone(w.bundle)
	part := r.Float64()
	return b, edit(b, func(record *evidence.Record) ([]byte, error) {
		if tableOf(record).edit == nil {
			return nil, nil
		}
		at := int(part * float64(len(record.Content)))
		for at > 0 && record.Content[at-1] != '\n' {
			at--
		}
		record.Cut = true
		return record.Content[:at], nil
	})
}

// notFound has a shell's complaint in place of a table.
func notFound(r *rand.Rand, w *world) (*evidence.Bundle, error) {
	b := clone(w.bundle)
	complaint := []string{"sh: 1: %s: not found\n", "bash: %s: command not found\n", "Error: unable to exec: %s\n", ""}[r.IntN(4)]
	return b, edit(b, func(record *evidence.Record) ([]byte, error) {
		if tableOf(record).edit == nil {
			return nil, nil
		}
		if complaint == "" {
			return []byte{}, nil
		}
		return fmt.Appendf(nil, complaint, record.Command), nil
	})
}
