// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// entry is one of managedFields.
func entry(name, operation, subresource, second string, owned ...string) fields {
	e := fields{"manager": name, "operation": operation, "time": "2026-11-20T10:00:" + second + "Z", "fieldsV1": fields{}}
	if subresource != "" {
		e["subresource"] = subresource
	}
	for _, field := range owned {
		e["fieldsV1"].(fields)["f:"+field] = fields{}
	}
	return e
}

func TestWhoWroteIsWhoseEntryChangedAndOwnsTheFieldOrIsNewest(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []any
		changed       string
		want          string
	}{
		"the newest, where nothing is known of before": {
			nil, []any{entry("old", "Update", "", "01", "spec"), entry("new", "Update", "", "02", "spec")}, "/spec", "new"},
		"whose entry changed, though another one is as new": {
			[]any{entry("a", "Update", "", "05", "spec"), entry("b", "Update", "", "04", "status")},
			[]any{entry("a", "Update", "", "05", "spec"), entry("b", "Update", "", "05", "status")}, "/spec", "b"},
		"who took fields, and not who lost them": {
			[]any{entry("loser", "Apply", "", "01", "spec", "data")},
			[]any{entry("loser", "Apply", "", "01", "data"), entry("taker", "Update", "", "09", "spec")}, "/spec", "taker"},
		"who scales, of which API servers note no time": {
			[]any{entry("kubectl-create", "Update", "", "05", "spec", "replicas")},
			[]any{entry("kubectl", "Update", "scale", "", "replicas"), entry("kubectl-create", "Update", "", "05", "spec")}, "/replicas", "kubectl scale"},
		"who removed a field, which nobody owns any more": {
			[]any{entry("kube-apiserver", "Update", "", "01", "addressType", "endpoints"), entry("other", "Update", "", "01", "metadata")},
			[]any{entry("kube-apiserver", "Update", "", "07", "addressType"), entry("other", "Update", "", "01", "metadata")}, "/endpoints", "kube-apiserver"},
		"the field's owner, where one wrote twice within a second": {
			[]any{entry("a", "Update", "", "05", "spec"), entry("b", "Update", "", "06", "status")},
			[]any{entry("a", "Update", "", "05", "spec"), entry("b", "Update", "", "06", "status")}, "/spec", "a"},
		"the status' owner, of one manager with two entries": {
			[]any{entry("kubelet", "Update", "", "05", "spec"), entry("kubelet", "Update", "status", "05", "status")},
			[]any{entry("kubelet", "Update", "", "05", "spec"), entry("kubelet", "Update", "status", "05", "status")}, "/status", "kubelet status"},
		"an element's owner is its list's": {
			nil, []any{entry("a", "Update", "", "05", "ports"), entry("b", "Update", "", "05", "rules")}, "/rules/3/verbs", "b"},
		"nobody, where there is no entry":   {nil, nil, "/spec", ""},
		"nobody, where entries are no such": {nil, []any{"x", 1}, "/spec", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStates(servicesKind, nil, &room{})
			var marks []uint64
			if c.before != nil {
				marks = marksOf(s.managersOf(c.before))
			}
			got := writerOf(s.managersOf(c.after), marks, []journal.Change{{Path: c.changed, Op: "replace"}})
			text := got.name
			if got.subresource != "" {
				text += " " + got.subresource
			}
			if text != c.want {
				t.Errorf("%s, want %s", fmt.Sprintf("%+v", got), c.want)
			}
		})
	}
}
