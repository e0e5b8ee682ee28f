// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestNamesAreThoseOfOneKind(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	again := story()
	again[0].UID, again[0].Namespace = "u9", "other"
	appendAll(t, j, append(story(), again[0])...)
	for _, c := range []struct {
		name string
		kind Kind
		want []string
	}{
		{"each name once, in order", services, []string{"kubernetes", "shop"}},
		{"of a kind that is not there", Kind{Group: "serving.knative.dev", Version: "v1", Resource: "services", Kind: "Service"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := j.Names(t.Context(), c.kind); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestWhoNeedsNoDiffsGetsEventsWithoutThem(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	appendAll(t, j, story()...)
	want := story()
	want[2].Diff = nil
	got := collect(t, j, Filter{NoDiff: true})
	if len(got) != len(want) || len(got[2].Diff) != 0 || string(got[2].Content) != string(want[2].Content) {
		t.Errorf("%+v", got)
	}
	if got := collect(t, j, Filter{NoDiff: true, Field: "/endpoints"}); len(got) != 1 || got[0].ID != 3 {
		t.Errorf("a field is still looked for in the diff: %+v", got)
	}
}
