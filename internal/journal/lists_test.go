// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func begin(t testing.TB, j *Journal, l *List) (err error) {
	t.Helper()
	l.ID, err = j.BeginList(t.Context(), *l)
	return err
}

func end(t testing.TB, j *Journal, l *List, after time.Duration, objects int) error {
	t.Helper()
	l.Ended, l.Objects, l.ResourceVersion = l.Began.Add(after), objects, "20"
	return j.EndList(t.Context(), *l)
}

func TestAListHasItsEventsAndIsCompleteAtAnEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	events := story()
	appendAll(t, j, events[0])
	first := List{Kind: services, Began: start.UTC(), Reason: ListStart}
	broken := List{Kind: slicesOf, Namespace: "web", Began: start.UTC(), Reason: "410 Gone"}
	for _, l := range []*List{&first, &broken} {
		if err := begin(t, j, l); err != nil {
			t.Fatal(err)
		}
	}
	events[1].List, events[2].List = broken.ID, first.ID
	appendAll(t, j, events[1:3]...)
	if err := end(t, j, &first, time.Second, 5); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, events[3])
	if diff := cmp.Diff(events, collect(t, j, Filter{})); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	first.LastEvent = 3
	got, err := j.Lists(t.Context())
	if diff := cmp.Diff([]List{first, broken}, got); diff != "" || err != nil {
		t.Errorf("lists: %v (-want +got)\n%s", err, diff)
	}
	if from, err := j.ListsFrom(t.Context()); from != 2 || err != nil {
		t.Errorf("lists are told from event %d on, %v", from, err)
	}
	if got := rows(t, j, "SELECT kind, namespace, seconds, objects, events, reason FROM relists"); got != "EndpointSlice web <nil> <nil> 1 410 Gone\n" {
		t.Errorf("relists %q", got)
	}
}

func TestAnEventOfAListThatIsNotThereIsRefused(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	events := story()
	events[0].List = 7
	if err := j.Append(t.Context(), events); err == nil || len(collect(t, j, Filter{})) != 0 {
		t.Errorf("%v", err)
	}
}

func TestAKindWithoutObjectsWasWatchedIfItWasListed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	l := List{Kind: services, Began: start, Reason: ListStart}
	for _, err := range []error{begin(t, j, &l), end(t, j, &l, time.Second, 0), j.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, version, found, err := create(t, path, Options{}).Watched(t.Context(), services)
	if version != "" || !found || err != nil {
		t.Errorf("at %q, found %v: %v", version, found, err)
	}
}

// A list goes with its last event, unless it is the last of its kind, for that
// may have found nothing; one that is not complete may yet get events.
func TestListsGoWithTheirEventsButForTheLastOfAKind(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{MaxAge: time.Hour})
	add := func(namespace string, complete bool, objects ...int) (id int64) {
		l := List{Kind: services, Namespace: namespace, Began: start, Reason: ListStart}
		if err := begin(t, j, &l); err != nil {
			t.Fatal(err)
		}
		for _, n := range objects {
			e := load(n, 1, 10, 10)[0]
			e.List = l.ID
			appendAll(t, j, e)
		}
		if complete {
			if err := end(t, j, &l, 0, len(objects)); err != nil {
				t.Fatal(err)
			}
		}
		return l.ID
	}
	add("", true, 0, 1)
	quiet := add("", true, 2)
	add("", true)
	open, last, other := add("", false), add("", true, 1), add("a", true)
	appendAll(t, j, load(0, 2, 10, 10)...)
	now := load(5, 1, 10, 10)[0]
	now.Time = time.Now()
	appendAll(t, j, now)
	if err := j.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	lists, err := j.Lists(t.Context())
	var ids []int64
	for _, l := range lists {
		ids = append(ids, l.ID)
	}
	if want := []int64{quiet, open, last, other}; !slices.Equal(ids, want) || err != nil {
		t.Errorf("lists %v stay, want %v: %v", ids, want, err)
	}
}
