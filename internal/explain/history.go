// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Selection says how packets choose among the backends of a Service, whose
// sets agree on it.
func Selection(row *tables.Service) string {
	if len(row.Compiled.Sets) == 0 {
		return ""
	}
	return row.Compiled.Sets[0].Selection.String()
}

// Transitions are the last of a row, oldest first.
func Transitions(row *tables.Service) []api.Transition {
	transitions := make([]api.Transition, 0, len(row.History))
	for _, t := range row.History {
		causes := make([]api.ObjectRef, 0, len(t.Causes))
		for _, c := range t.Causes {
			causes = append(causes, causeRef(c))
		}
		transitions = append(transitions, api.Transition{Time: t.Time, Causes: causes, Changes: t.Changes})
	}
	return transitions
}

// causeRef has no kind where the cause is no object.
func causeRef(c tables.Cause) api.ObjectRef {
	if c.Other != "" {
		return api.ObjectRef{Name: c.Other}
	}
	ref := api.ObjectRef{Kind: c.Kind.String(), Name: c.Name.String(), ResourceVersion: c.ResourceVersion, Deleted: c.Deleted}
	if c.Kind == reflector.KindNode {
		ref.Name = c.Name.Name
	}
	return ref
}
