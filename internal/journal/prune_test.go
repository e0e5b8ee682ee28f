// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheOldestEventsGoFirstAndTheLastStateOfEveryObjectStays(t *testing.T) {
	const bound = 2 << 20
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{MaxBytes: bound})
	quiet, gone := story()[1], story()[3]
	appendAll(t, j, quiet, gone)
	for _, gap := range []Gap{
		{Kind: services, Began: start, Ended: start.Add(time.Second), Reason: "old"},
		{Kind: services, Began: start.Add(14 * time.Second), Ended: start.Add(15 * time.Second), Reason: "young"},
	} {
		if err := j.AppendGap(t.Context(), gap); err != nil {
			t.Fatal(err)
		}
	}
	const total = 15000
	for n := 0; n < total; n += 100 {
		appendAll(t, j, load(n, 100, 20, 400)...)
	}
	events := collect(t, j, Filter{})
	if events[0].Name != quiet.Name || events[1].ID < 10_000 {
		t.Errorf("it begins with %s and event %d, want the state of a quiet object and young events", events[0].Name, events[1].ID)
	}
	if last := events[len(events)-1]; last.ID != total+2 || int(last.ID-events[1].ID)+2 != len(events) {
		t.Errorf("%d events from %d to %d: not all of the young ones", len(events), events[1].ID, last.ID)
	}
	if got := collect(t, j, Filter{Names: []string{gone.Name}}); got != nil {
		t.Errorf("what was deleted long ago stays: %v", got)
	}
	if gaps, err := j.Gaps(t.Context(), Filter{}); err != nil || len(gaps) != 1 || gaps[0].Reason != "young" {
		t.Errorf("gaps %v, %v", gaps, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > bound+bound/8 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

func TestOneStateOfEachOfManyObjectsStaysBeyondTheBound(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{MaxBytes: 64 << 10})
	for n := 0; n < 2000; n += 100 {
		appendAll(t, j, load(n, 100, 1000, 400)...)
	}
	if got := collect(t, j, Filter{}); len(got) < 1000 || got[len(got)-1000].ID != 1001 {
		t.Errorf("%d events of 1000 objects", len(got))
	}
}

func TestEventsOfAnAgeGoButForLastStates(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{MaxAge: time.Hour})
	old := load(0, 10, 5, 10)
	young := load(0, 2, 1, 10)
	for i := range young {
		young[i].Time = time.Now()
	}
	appendAll(t, j, append(old, young...)...)
	if err := j.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The four objects that were not heard of again keep one event each.
	if got := collect(t, j, Filter{}); len(got) != 4+2 {
		t.Errorf("%d events stay: %v", len(got), got)
	}
}
