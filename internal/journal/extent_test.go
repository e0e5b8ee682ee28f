// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAJournalKnowsItsKindsAndWhatItCovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	if _, _, found, err := j.Extent(t.Context()); err != nil || found {
		t.Errorf("the extent of a journal without events: found %v, %v", found, err)
	}
	story := story()
	appendAll(t, j, story...)
	kinds, err := j.Kinds(t.Context())
	want := map[Kind]bool{}
	for _, e := range story {
		want[e.Kind] = true
	}
	got := map[Kind]bool{}
	for _, k := range kinds {
		got[k] = true
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(kinds) != len(want) {
		t.Errorf("kinds %v, %v (-want +got):\n%s", kinds, err, diff)
	}
	first, last, found, err := j.Extent(t.Context())
	if err != nil || !found || !first.Equal(story[0].Time) || !last.Equal(story[len(story)-1].Time) {
		t.Errorf("extent while the run lasts: %s to %s, %v, %v", first, last, found, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if _, last, _, err := j.Extent(t.Context()); err != nil || time.Since(last) > time.Minute {
		t.Errorf("a run that ended is covered until its end: %s, %v", last, err)
	}
}
