// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// tape is a journal in the making, as a recorder makes it.
type tape struct {
	testing.TB
	*journal.Journal
}

func newTape(t testing.TB) tape {
	t.Helper()
	j, err := journal.Create(filepath.Join(t.TempDir(), "j"), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return tape{t, j}
}

// begin begins a list of a kind in a namespace, or in all.
func (t tape) begin(seconds float64, kind journal.Kind, namespace string) journal.List {
	t.Helper()
	l := journal.List{Kind: kind, Namespace: namespace, Began: at(seconds), Reason: journal.ListStart}
	var err error
	if l.ID, err = t.BeginList(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return l
}

// add appends what a list brought, or a watch.
func (t tape) add(of journal.List, events ...journal.Event) {
	t.Helper()
	for i := range events {
		events[i].List = of.ID
	}
	if err := t.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func (t tape) end(seconds float64, l journal.List) {
	t.Helper()
	l.Ended, l.ResourceVersion = at(seconds), fmt.Sprint(int(seconds*10))
	if err := t.EndList(t.Context(), l); err != nil {
		t.Fatal(err)
	}
}

// list is a whole list that began a second before it ended.
func (t tape) list(seconds float64, kind journal.Kind, events ...journal.Event) {
	t.Helper()
	l := t.begin(seconds-1, kind, "")
	t.add(l, events...)
	t.end(seconds, l)
}

// world lists the Service web with one endpoint, and the node, within a second.
func (t tape) world() {
	t.Helper()
	for _, e := range lists() {
		t.list(0.5, e.Kind, e)
	}
}

var watch journal.List

func TestLists(t *testing.T) {
	moved := []journal.Event{
		event(6, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
		event(8, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.1")),
	}
	for _, c := range []struct {
		name string
		play func(tape)
		to   Moment
		want []string // after the world
		cut  bool
	}{
		{"however long a list takes, an endpoint that moves in it is never absent (R4)", func(j tape) {
			l := j.begin(5, endpointSlices, "")
			j.add(l, moved[0])
			j.add(watch, event(7, journal.Added, services, "api", service("api", "10.96.0.2")))
			j.add(l, moved[1])
			j.end(9, l)
			j.add(watch, event(9.1, journal.Added, services, "late", service("late", "10.96.0.3")))
		}, Moment{}, []string{"7s api 0+0→0+0", "9s web 1+0→1+0", "9.1s late 0+0→0+0"}, false},
		{"what a watch brings right after a list is not of it", func(j tape) {
			j.list(6, endpointSlices, event(6, journal.Absent, endpointSlices, "web-1", ""))
			j.add(watch, event(6, journal.Added, endpointSlices, "web-1", slice("web-1", "web", "10.0.1.9")))
		}, Moment{}, []string{"6s web 1+0→0+0", "6s web 0+0→1+0"}, false},
		{"an object that a watch finds replaced goes before it comes", func(j tape) {
			j.add(watch, event(6, journal.Absent, services, "web", ""), event(6, journal.Added, services, "web", service("web", "10.96.0.7")))
		}, Moment{}, []string{"6s web 1+0→0+0", "6s web 0+0→1+0"}, false},
		{"two lists, one right after the other, are two", func(j tape) {
			j.list(6, endpointSlices, event(6, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")))
			j.list(6.1, endpointSlices, event(6.1, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.1")))
		}, Moment{}, []string{"6s web 1+0→0+0", "6.1s web 0+0→1+0"}, false},
		{"a list that finds nothing new changes nothing", func(j tape) { j.list(6, endpointSlices); j.list(7, services) }, Moment{}, nil, false},
		{"a list that its recorder did not live to complete has no effect", func(j tape) {
			j.add(j.begin(5, endpointSlices, ""), moved...)
		}, Moment{}, nil, true},
		{"the next one stands for it", func(j tape) {
			j.add(j.begin(5, endpointSlices, ""), moved[0])
			j.add(watch, event(7, journal.Added, services, "api", service("api", "10.96.0.2")))
			j.list(9, endpointSlices, moved[1])
		}, Moment{}, []string{"7s api 0+0→0+0", "9s web 1+0→1+0"}, false},
		{"so does one of the namespace alone, for what is in it", func(j tape) {
			far := event(6, journal.Listed, services, "far", strings.ReplaceAll(service("far", "10.96.0.5"), "default", "other"))
			far.Namespace = "other"
			j.add(j.begin(5, services, ""), event(6, journal.Listed, services, "api", service("api", "10.96.0.2")), far)
			j.end(9, j.begin(8, services, "default"))
		}, Moment{}, []string{"9s api 0+0→0+0"}, true},
		{"at a moment within a list, nothing of it counts", func(j tape) {
			j.list(9, endpointSlices, moved...)
			j.add(watch, event(8.5, journal.Added, services, "api", service("api", "10.96.0.2")))
		}, Moment{Time: at(8.5)}, []string{"8.5s api 0+0→0+0"}, true},
		{"from its last moment on, all of it does", func(j tape) {
			j.list(9, endpointSlices, moved...)
			j.add(watch, event(9.5, journal.Added, services, "api", service("api", "10.96.0.2")))
		}, Moment{Time: at(9)}, []string{"9s web 1+0→1+0"}, false},
		{"a clock that is turned back moves nothing from one list to another", func(j tape) {
			j.list(9, endpointSlices, event(8, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")))
			j.add(watch, event(2, journal.Added, services, "api", service("api", "10.96.0.2")))
			j.list(3, endpointSlices, event(3, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.1")))
		}, Moment{}, []string{"9s web 1+0→0+0", "9s api 0+0→0+0", "9s web 0+0→1+0"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newTape(t)
			j.world()
			c.play(j)
			w := newWatched(t, 0)
			s, err := w.Run(t.Context(), j.Journal, c.to)
			if err != nil {
				t.Fatal(err)
			}
			if len(w.told) == 0 || !strings.HasSuffix(w.told[0], " web 0+0→1+0") {
				t.Fatalf("the first lists gave %v", w.told)
			}
			if diff := cmp.Diff(append([]string{}, c.want...), w.told[1:]); diff != "" || s.Cut != c.cut {
				t.Errorf("cut %t (-want +got)\n%s", s.Cut, diff)
			}
		})
	}
}

func TestAKindIsKnownOnceItsFirstListsAreComplete(t *testing.T) {
	added := event(9, journal.Added, services, "api", service("api", "10.96.0.2"))
	for _, c := range []struct {
		name    string
		play    func(tape)
		rows    int
		unheard string
	}{
		{"a kind without objects is known (R33)", func(j tape) {
			j.list(1, endpointSlices)
			j.list(1, nodes, lists()[2])
			j.list(1, services)
			j.add(watch, added)
		}, 1, "[]"},
		{"lists that find nothing at all are something to replay", func(j tape) {
			j.list(1, endpointSlices)
			j.list(1, services)
			j.list(1, nodes, lists()[2])
		}, 0, "[]"},
		{"a list that is not complete makes nothing known (R33)", func(j tape) {
			j.list(1, nodes, lists()[2])
			j.list(1, services, lists()[0])
			j.add(j.begin(1, endpointSlices, ""), lists()[1])
		}, 0, "[EndpointSlice]"},
		{"a list of Nodes without this one does not tell of it", func(j tape) {
			j.list(1, endpointSlices)
			j.list(1, services, lists()[0])
			j.list(1, nodes, event(1, journal.Listed, nodes, "n2", node("n2", "a", "192.0.2.2")))
		}, 0, "[Node]"},
		{"of namespaces that are listed apart, all count (R33)", func(j tape) {
			j.list(1, nodes, lists()[2])
			j.list(1, endpointSlices)
			one, other := j.begin(2, services, "default"), j.begin(2, services, "other")
			j.add(one, lists()[0])
			j.end(3, one)
			j.add(watch, added)
			j.end(10, other)
		}, 2, "[]"},
		{"where the beginning of a journal is lost, its first event counts", func(j tape) {
			j.list(1, nodes, lists()[2])
			j.list(1, endpointSlices)
			j.add(watch, added)
			j.list(20, services)
		}, 1, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newTape(t)
			c.play(j)
			w := newWatched(t, 0)
			if _, err := w.Run(t.Context(), j.Journal, Moment{}); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(w.Unheard()); w.Snapshot().Len() != c.rows || got != c.unheard {
				t.Errorf("%d rows, unheard of %s; want %d, %s; it told %v", w.Snapshot().Len(), got, c.rows, c.unheard, w.told)
			}
		})
	}
}

func TestOfSeveralNamespacesNoneIsServedAlone(t *testing.T) {
	j := newTape(t)
	j.list(1, nodes, lists()[2])
	j.list(1, endpointSlices, lists()[1])
	one, other := j.begin(2, services, "default"), j.begin(2, services, "other")
	j.add(one, lists()[0])
	j.end(3, one)
	j.add(watch, event(9, journal.Added, services, "api", service("api", "10.96.0.2")))
	j.end(10, other)
	w := newWatched(t, 0)
	if _, err := w.Run(t.Context(), j.Journal, Moment{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10s api 0+0→0+0", "10s web 0+0→1+0"}, w.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWhereTheListsOfAJournalAreLostItIsGuessed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tape{t, j}.world()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var page, size int64
	err = db.QueryRow("SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'lists'").Scan(&page, &size)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(make([]byte, size), (page-1)*size)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(path); err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	w := newWatched(t, 0)
	if s, err := w.Run(t.Context(), j, Moment{}); !errors.Is(err, journal.ErrTorn) || s.Events != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if diff := cmp.Diff([]string{"200ms web 0+0→1+0"}, w.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// formatOne is a copy of a journal that a version with format 1 recorded.
func formatOne(t *testing.T) (path string) {
	t.Helper()
	text, err := os.ReadFile("../journal/testdata/format-1.db")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What it told is from the version that made the journal.
func TestAJournalOfFormat1IsReplayedAsEver(t *testing.T) {
	j, err := journal.Open(formatOne(t))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	w := newWatched(t, 0)
	s, err := w.Run(t.Context(), j, Moment{})
	if err != nil || s.Events != 12 || s.Cut {
		t.Errorf("%+v, %v", s, err)
	}
	want := []string{
		"200ms web 0+0→1+0", "1.5s web 1+0→2+0", "3s api 0+0→0+0", "20.5s api 0+0→0+0", "20.5s db 0+0→0+0", "20.5s web 2+0→2+0",
		"23s web 2+0→1+0", "30s web 1+0→0+0", "30s web 0+0→1+0",
	}
	if diff := cmp.Diff(want, w.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestAJournalThatWasMigratedIsReplayedByWhatItsPartsTell(t *testing.T) {
	old := newWatched(t, 0)
	j, err := journal.Create(formatOne(t), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := old.Run(t.Context(), j, Moment{}); err != nil {
		t.Fatal(err)
	}
	more := tape{t, j}
	more.list(40, endpointSlices,
		event(36, journal.Modified, endpointSlices, "web-1", slice("web-1", "web")),
		event(39, journal.Listed, endpointSlices, "web-2", slice("web-2", "web", "10.0.1.9")))
	w := newWatched(t, 0)
	if _, err := w.Run(t.Context(), j, Moment{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(old.told, "40s web 1+0→1+0"), w.told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func frontends(w *watched) (all []api.Frontend) {
	for _, c := range w.Candidates() {
		all = append(all, api.Frontends(c.Service, &c.Compiled)...)
	}
	return all
}

// However events are spread over lists and watches, what is there in the end is
// the same. After a list that is not complete comes another one, before a watch.
func TestListsChangeWhenAndNotWhat(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		events := history(r)
		j, broken := newTape(t), map[journal.Kind]bool{}
		for n := 0; n < len(events); {
			kind, size := events[n].Kind, 0
			for n+size < len(events) && events[n+size].Kind == kind && size < 4 {
				size++
			}
			size = rapid.IntRange(1, size).Draw(r, "size")
			of, when := watch, events[n+size-1].Time.Sub(began).Seconds()
			listed := broken[kind] || rapid.Bool().Draw(r, "listed")
			if listed {
				of = j.begin(when, kind, "")
			}
			j.add(of, events[n:n+size]...)
			if listed {
				broken[kind] = rapid.Bool().Draw(r, "broken")
			}
			if listed && !broken[kind] {
				j.end(when, of)
			}
			n += size
		}
		for _, kind := range kinds {
			j.list(1000, kind)
		}
		w, want := newWatched(t, 0), newWatched(t, 0)
		s, err := w.Run(t.Context(), j.Journal, Moment{})
		if err != nil || s.Cut || s.Events != len(events) {
			r.Fatalf("%+v, %v", s, err)
		}
		for _, e := range events {
			want.Apply(e)
			want.Flush()
		}
		if diff := cmp.Diff(frontends(want), frontends(w)); diff != "" {
			r.Fatalf("(-alone +listed)\n%s", diff)
		}
	})
}
