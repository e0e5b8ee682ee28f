// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-io/fairlead/internal/journal"
)

const (
	second = time.Second
	minute = time.Minute
)

// Which record is that of which event.
func TestPairs(t *testing.T) {
	cases := []struct {
		name    string
		tell    func(*story)
		changes []string
		missing []string // names
		unseen  int
	}{
		{"a version decides, against time, verb and client", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "helm")
			s.record("a", line{after: 1 * second, verb: "patch", name: "web", version: "11", user: "bob"})
			s.record("a", line{after: 9 * second, verb: "create", name: "web", version: "10", user: "ann"})
			s.event(20*second, services, journal.Modified, "web", "11", "kubectl")
		}, []string{"web modified is create of ann", "web modified is patch of bob"}, nil, 0},
		{"a version is one of its resource", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{verb: "update", name: "web", version: "10", kind: slicesOf})
		}, nil, []string{"web"}, 1},
		{"a name that the server chose is not in the record", func(s *story) {
			s.event(0, services, journal.Added, "web-x7k2p", "10", "kubectl")
			s.record("a", line{verb: "create", version: "10"})
			s.event(second, services, journal.Added, "web-q2m4z", "11", "kubectl")
			s.record("a", line{after: second, verb: "create"})
		}, []string{"web-x7k2p added is create of ann", "web-q2m4z added fits create of ann"}, nil, 0},
		{"without versions the client decides", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "helm")
			s.record("a", line{verb: "update", name: "web", user: "bob", client: "kubectl/v1"})
			s.record("a", line{after: second, verb: "update", name: "web", user: "ann", client: "helm/v3"})
			s.event(1100*time.Millisecond, services, journal.Modified, "web", "11", "kubectl")
		}, []string{"web modified fits update of ann", "web modified fits update of bob"}, nil, 0},
		{"a client may name its field manager", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "deployer")
			s.record("a", line{verb: "patch", name: "web", query: "?fieldManager=deployer&force=true"})
		}, []string{"web modified fits patch of ann"}, nil, 0},
		{"another client's record is not the one", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "helm")
			s.record("a", line{verb: "patch", name: "web"})
		}, nil, []string{"web"}, 1},
		{"a manager of long ago says nothing", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "helm").ManagedAt = noon.Add(-time.Hour)
			s.record("a", line{verb: "patch", name: "web"})
		}, []string{"web modified fits patch of ann"}, nil, 0},
		{"whoever deletes is not the manager", func(s *story) {
			s.event(0, services, journal.Deleted, "web", "10", "helm")
			s.record("a", line{verb: "delete", name: "web"})
		}, []string{"web deleted fits delete of ann"}, nil, 0},
		{"a record is used once, by the event that it fits better", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{after: second, verb: "update", name: "web"})
			s.event(1010*time.Millisecond, services, journal.Modified, "web", "11", "kubectl")
		}, []string{"web modified fits update of ann"}, []string{"web"}, 0},
		{"a deleted collection is used often", func(s *story) {
			s.event(0, services, journal.Deleted, "a", "10", "")
			s.event(second, services, journal.Deleted, "b", "11", "")
			s.record("a", line{after: 2 * second, verb: "deletecollection", version: "9"})
		}, []string{"a deleted fits deletecollection of ann", "b deleted fits deletecollection of ann"}, nil, 0},
		{"one that is deleted may only be marked at first, and go with its last finalizer", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl").ManagedAt = noon.Add(-time.Hour)
			s.record("a", line{verb: "delete", name: "web", version: "10"})
			s.record("a", line{after: 7 * second, verb: "patch", name: "web", user: "controller"})
			s.event(7*second, services, journal.Deleted, "web", "11", "")
		}, []string{"web modified is delete of ann", "web deleted fits patch of controller"}, nil, 0},
		{"a request that failed made nothing", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{verb: "update", name: "web", code: 409})
		}, nil, []string{"web"}, 0},
		{"one that took too long may have", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{verb: "update", name: "web", code: 504})
		}, []string{"web modified fits update of ann"}, nil, 0},
		{"of a request without an end its beginning counts", func(s *story) {
			s.record("a", line{verb: "update", name: "web", stage: "RequestReceived"})
			s.event(second, services, journal.Modified, "web", "10", "kubectl")
		}, []string{"web modified fits update of ann"}, nil, 0},
		{"of one with an end it does not", func(s *story) {
			s.record("a", line{verb: "update", name: "web", stage: "RequestReceived", id: "x"})
			s.record("a", line{after: second, verb: "update", name: "web", version: "10", id: "x"})
			s.event(second, services, journal.Modified, "web", "10", "kubectl")
		}, []string{"web modified is update of ann"}, nil, 0},
		{"the beginning of a request that failed is nobody's", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{verb: "update", name: "web", stage: "RequestReceived", id: "x"})
			s.record("a", line{after: second, verb: "update", name: "web", code: 409, id: "x"})
		}, nil, []string{"web"}, 0},
		{"the beginning of one that failed does not take the event of one that did not", func(s *story) {
			s.record("a", line{verb: "update", name: "web", stage: "RequestReceived", id: "x", user: "bob"})
			s.record("a", line{after: second, verb: "update", name: "web", code: 403, id: "x", user: "bob"})
			s.record("a", line{after: 4 * second, verb: "update", name: "web"})
			s.event(second, services, journal.Modified, "web", "10", "kubectl")
		}, []string{"web modified fits update of ann"}, nil, 0},
		{"writes of one object within a second keep their order, if the clocks are apart", func(s *story) {
			for i, user := range []string{"ann", "bob", "eve"} {
				after := time.Duration(i) * 400 * time.Millisecond
				s.record("a", line{after: after, verb: "patch", name: "web", user: user})
				s.event(after+950*time.Millisecond, services, journal.Modified, "web", fmt.Sprint(10+i), "kubectl")
			}
		}, []string{"web modified fits patch of ann", "web modified fits patch of bob", "web modified fits patch of eve"}, nil, 0},
		{"so they do if one of them changed nothing", func(s *story) {
			s.record("a", line{after: -3 * second, verb: "patch", name: "web", user: "zoe"})
			for i, user := range []string{"ann", "bob"} {
				after := time.Duration(i) * 400 * time.Millisecond
				s.record("a", line{after: after, verb: "patch", name: "web", user: user})
				s.event(after+950*time.Millisecond, services, journal.Modified, "web", fmt.Sprint(10+i), "kubectl")
			}
		}, []string{"web modified fits patch of ann", "web modified fits patch of bob"}, nil, 1},
		{"what is deleted and made again under its name has each its request", func(s *story) {
			for i := range 3 {
				after := time.Duration(i) * 600 * time.Millisecond
				s.record("a", line{after: after, verb: "delete", name: "web", user: fmt.Sprint("d", i)})
				s.record("a", line{after: after + 300*time.Millisecond, verb: "create", name: "web", user: fmt.Sprint("c", i)})
				s.event(after+900*time.Millisecond, services, journal.Deleted, "web", fmt.Sprint(10+2*i), "kubectl")
				s.event(after+1200*time.Millisecond, services, journal.Added, "web", fmt.Sprint(11+2*i), "kubectl")
			}
		}, []string{"web deleted fits delete of d0", "web added fits create of c0", "web deleted fits delete of d1", "web added fits create of c1",
			"web deleted fits delete of d2", "web added fits create of c2"}, nil, 0},
		{"a write of the status is not one of the rest", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl").Subresource = "status"
			s.event(300*time.Millisecond, services, journal.Modified, "web", "11", "kubectl")
			s.record("a", line{after: 10 * time.Millisecond, verb: "patch", name: "web", user: "bob"})
			s.record("a", line{after: 310 * time.Millisecond, verb: "patch", name: "web", user: "ann", subresource: "status"})
		}, []string{"web modified fits patch of ann", "web modified fits patch of bob"}, nil, 0},
		{"whoever marks an object as deleted is not its manager, however lately that wrote", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "controller")
			s.record("a", line{verb: "delete", name: "web"})
		}, []string{"web modified fits delete of ann"}, nil, 0},
		{"a record that is far away is not the one", func(s *story) {
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{after: 20 * second, verb: "update", name: "web"})
			s.event(minute, services, journal.Listed, "web", "10", "kubectl")
		}, nil, []string{"web"}, 1},
		{"a watch that was late by minutes is no matter if the version is known", func(s *story) {
			s.record("a", line{verb: "update", name: "web", version: "10"})
			s.alive("a", 10*second, 10*minute)
			s.event(5*minute, services, journal.Modified, "web", "10", "kubectl")
		}, []string{"web modified is update of ann"}, nil, 0},
		{"what was there when watching began is no change, and its record no riddle", func(s *story) {
			s.record("a", line{verb: "update", name: "web", version: "10"})
			s.event(second, services, journal.Listed, "web", "10", "kubectl")
		}, nil, nil, 0},
		{"what a list found gone is one if somebody deleted it", func(s *story) {
			s.record("a", line{verb: "delete", name: "web"})
			s.event(second, services, journal.Absent, "web", "10", "kubectl")
			s.event(second, services, journal.Absent, "other", "11", "kubectl")
		}, []string{"web absent fits delete of ann"}, nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{}
			s.listed(services, slicesOf)
			c.tell(s)
			a := s.mustRun(t, "")
			if diff := cmp.Diff(c.changes, a.changes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			var missing []string
			for _, m := range a.Missing {
				missing = append(missing, m.Event.Name)
			}
			if !slices.Equal(missing, c.missing) {
				t.Errorf("without a record: %v, want %v", missing, c.missing)
			}
			if len(a.Unseen) != c.unseen {
				t.Errorf("without an event: %+v, want %d", a.Unseen, c.unseen)
			}
			if a.Changes != a.Explained+len(a.Missing) || a.Explained != len(a.changes) {
				t.Errorf("%d changes, %d explained, %d missing, %d passed on", a.Changes, a.Explained, len(a.Missing), len(a.changes))
			}
		})
	}
}

// Records that have no event for a good reason are counted, and the others
// listed.
func TestRecordsWithoutAnEvent(t *testing.T) {
	gap := journal.Gap{Kind: services, Began: noon.Add(3 * minute), Ended: noon.Add(4 * minute), Reason: "410"}
	cases := []struct {
		name     string
		line     line
		expected Code // "": it is listed
		text     string
	}{
		{"a patch that left the object as it was", line{after: minute, verb: "patch", name: "web", version: "10"}, ReasonUnchanged, ""},
		{"a patch that was answered with the version of an hour ago", line{after: minute, verb: "patch", name: "old", version: "1"}, ReasonUnchanged, ""},
		{"a dry run", line{after: minute, verb: "create", name: "new", query: "?dryRun=All"}, ReasonDryRun, ""},
		{"a token", line{after: minute, verb: "create", name: "web", subresource: "token"}, ReasonStoresNothing, ""},
		{"a time that nobody watched", line{after: 210 * second, verb: "update", name: "web", version: "12"}, ReasonGap, ""},
		{"a time after the recording", line{after: time.Hour, verb: "update", name: "web", version: "12"}, ReasonOutside, ""},
		{"a patch without the object", line{after: minute, verb: "patch", name: "web"}, "", "it may have changed nothing: a record without the object does not tell"},
		{"a deletion of what is about to go", line{after: minute, verb: "delete", name: "web", version: "10.5"}, "", "likely the object was about to go already"},
		{"a collection that was empty", line{after: minute, verb: "deletecollection"}, "", "likely there was nothing to delete"},
		{"an update that nobody saw", line{after: minute, verb: "update", name: "web", version: "12"}, "", "cannot tell: it succeeded, and the journal has no such event"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{gaps: []journal.Gap{gap}}
			s.listed(services)
			s.event(0, services, journal.Modified, "web", "10", "kubectl")
			s.record("a", line{verb: "update", name: "web", version: "10"})
			s.record("a", c.line)
			s.event(10*minute, services, journal.Modified, "web", "20", "kubectl")
			s.record("b", line{after: 10 * minute, verb: "update", name: "web", version: "20"})
			for i := range s.events {
				s.events[i].Time = s.events[i].Time.Add(time.Millisecond)
			}
			a := s.mustRun(t, "")
			if c.expected != "" && (a.Expected[c.expected] != 1 || len(a.Expected) != 1 || len(a.Unseen) != 0) {
				t.Errorf("expected %v, listed %+v; want one of %s", a.Expected, a.Unseen, c.expected)
			}
			if c.expected == "" && (len(a.Unseen) != 1 || a.Unseen[0].Reason.Text != c.text || len(a.Expected) != 0) {
				t.Errorf("listed %+v, expected %v; want one: %s", a.Unseen, a.Expected, c.text)
			}
		})
	}
	t.Run("a namespace that is not recorded", func(t *testing.T) {
		s := &story{}
		s.listed(services)
		s.event(0, services, journal.Modified, "web", "10", "kubectl")
		s.event(minute, services, journal.Modified, "web", "11", "kubectl")
		for i := range s.events {
			s.events[i].Namespace = "default"
		}
		s.record("a", line{verb: "update", name: "web", version: "9"})
		if a := s.mustRun(t, ""); len(a.Unseen) != 1 || a.Unseen[0].Reason.Code != ReasonOutside {
			t.Errorf("listed %+v; want one of %s", a.Unseen, ReasonOutside)
		}
	})
	t.Run("of a resource that the journal has not they are counted by resource", func(t *testing.T) {
		s := &story{}
		s.listed(services)
		s.record("a", line{verb: "update", name: "web", kind: slicesOf})
		s.record("a", line{verb: "update", name: "web", kind: slicesOf, code: 409})
		s.event(0, services, journal.Modified, "web", "10", "kubectl")
		if a := s.mustRun(t, ""); a.NotRecorded["endpointslices.discovery.k8s.io"] != 1 || len(a.NotRecorded) != 1 {
			t.Errorf("not recorded: %v", a.NotRecorded)
		}
	})
}

// What is found is bounded, of each kind and writer, and the rest is counted.
func TestManyAreCounted(t *testing.T) {
	const more = 50
	s := &story{}
	s.listed(services)
	for i := range maxOfOne + more {
		after := time.Duration(i) * 100 * time.Millisecond
		s.event(after, services, journal.Added, fmt.Sprint("unexplained", i), fmt.Sprint(10+i), "kubectl")
		s.record("a", line{after: after, verb: "update", name: fmt.Sprint("unseen", i)})
	}
	a := s.mustRun(t, "")
	if len(a.Missing) != maxOfOne || a.MissingOmitted != more || a.Changes != maxOfOne+more || a.Explained != 0 {
		t.Errorf("%d changes, %d explained, %d without a record and %d omitted", a.Changes, a.Explained, len(a.Missing), a.MissingOmitted)
	}
	if len(a.Unseen)+a.UnseenOmitted != maxOfOne+more-a.Expected[ReasonOutside] || len(a.Unseen) != maxOfOne {
		t.Errorf("%d without an event and %d omitted, and %v", len(a.Unseen), a.UnseenOmitted, a.Expected)
	}
}

func TestClocksThatDiffer(t *testing.T) {
	for _, ahead := range []time.Duration{3 * time.Hour, -3 * time.Hour, 90 * second, -1500 * time.Millisecond} {
		t.Run(fmt.Sprintf("by %s: pairs of a version tell, and records without one follow", ahead), func(t *testing.T) {
			s := &story{}
			s.listed(services)
			for i := range 20 {
				after, name := time.Duration(i)*10*second, fmt.Sprint("web", i)
				s.event(after, services, journal.Added, name, fmt.Sprint(100+i), "kubectl")
				l := line{after: after + ahead, verb: "create", name: name, version: fmt.Sprint(100 + i)}
				if i%2 == 1 {
					l.version = ""
				}
				s.record("a", l)
				s.record("right", line{after: after, verb: "get", name: name})
			}
			a := s.mustRun(t, "")
			if len(a.Missing)+len(a.Unseen) > 0 || a.Explained != 20 {
				t.Errorf("%d explained; without a record %+v; without an event %+v", a.Explained, a.Missing, a.Unseen)
			}
			if got := a.Clocks[0].Behind(); (got+ahead).Abs() > 10*time.Millisecond || a.Clocks[0].Pairs != 10 {
				t.Errorf("the clock is %s behind by %d pairs, want %s by 10", got, a.Clocks[0].Pairs, -ahead)
			}
		})
	}
	t.Run("one object and version of the same name, years ago, are of another cluster", func(t *testing.T) {
		s := &story{}
		s.event(0, services, journal.Added, "web", "10", "kubectl")
		s.event(minute, services, journal.Added, "api", "11", "kubectl")
		s.record("a", line{after: -10_000 * time.Hour, verb: "create", name: "web", version: "10"})
		if _, err := s.run(t, ""); !errors.Is(err, ErrApart) {
			t.Errorf("err = %v, want %v", err, ErrApart)
		}
	})
	t.Run("of a clock that is 3 s ahead, and records without a version, each write has its own user", func(t *testing.T) {
		s := &story{}
		s.listed(services)
		for i := range 20 {
			after := time.Duration(i) * 1700 * time.Millisecond
			s.event(after+20*time.Millisecond, services, journal.Modified, "web", fmt.Sprint(100+i), "kubectl").ManagedAt = noon.Add(after + 3*second).Truncate(second)
			s.record("a", line{after: after + 3*second, verb: "patch", name: "web", user: fmt.Sprint("u", i)})
		}
		a := s.mustRun(t, "")
		for i, c := range a.whole {
			if want := fmt.Sprint("u", i); c.Request.User != want {
				t.Errorf("change %d is of %s, want %s", i, c.Request.User, want)
			}
		}
		if a.Explained != 20 {
			t.Errorf("%d explained, want 20; clocks %+v", a.Explained, a.Clocks)
		}
	})
	t.Run("without any version the times in managedFields tell", func(t *testing.T) {
		s := &story{}
		for i := range 20 {
			after, name := time.Duration(i)*10250*time.Millisecond, fmt.Sprint("web", i)
			s.event(after, services, journal.Added, name, fmt.Sprint(100+i), "kubectl").ManagedAt = noon.Add(after - time.Hour).Truncate(second)
			s.record("a", line{after: after - time.Hour, verb: "create", name: name})
		}
		a := s.mustRun(t, "")
		if a.Explained != 20 || (a.Clocks[0].Behind()-time.Hour).Abs() > second || a.Clocks[0].Pairs != 0 {
			t.Errorf("%d explained, clocks %+v", a.Explained, a.Clocks)
		}
	})
}

func TestBadInput(t *testing.T) {
	whole := func() *story {
		s := &story{}
		for i := range 300 {
			s.event(time.Duration(i)*second, services, journal.Added, fmt.Sprint("web", i), fmt.Sprint(i+10), "kubectl").Content = []byte(`{"x":"` + strings.Repeat("y", 500) + `"}`)
			s.record("a", line{after: time.Duration(i) * second, verb: "create", name: fmt.Sprint("web", i), version: fmt.Sprint(i + 10)})
		}
		return s
	}
	t.Run("logs of another time are one clear error", func(t *testing.T) {
		s := &story{}
		s.event(0, services, journal.Added, "web", "10", "kubectl")
		s.record("a", line{after: -24 * time.Hour, verb: "create", name: "other"})
		_, err := s.run(t, "")
		want := "the audit logs and the journal have no time in common: the logs are of 2026-05-03T12:00:00.000Z to 2026-05-03T12:00:00.000Z, the journal of 2026-05-04T12:00:00.000Z to 2026-05-04T12:00:00.000Z"
		if !errors.Is(err, ErrApart) || err.Error() != want {
			t.Errorf("err = %v, want %s", err, want)
		}
	})
	t.Run("a journal without events", func(t *testing.T) {
		s := &story{}
		s.record("a", line{verb: "create", name: "web"})
		if _, err := s.run(t, ""); !errors.Is(err, ErrNoEvents) {
			t.Errorf("err = %v, want %v", err, ErrNoEvents)
		}
	})
	t.Run("logs without records say what was lost", func(t *testing.T) {
		s := &story{logs: map[string][]string{"a": {`{"level":`}}}
		s.event(0, services, journal.Added, "web", "10", "kubectl")
		a, err := s.run(t, "")
		if !errors.Is(err, ErrNoRecords) || a.Losses.Broken != 1 {
			t.Errorf("err = %v, want %v; report %+v", err, ErrNoRecords, a.Report)
		}
	})
	t.Run("a line of 5 MB, and a broken one in the middle", func(t *testing.T) {
		s := whole()
		s.logs["a"] = slices.Insert(s.logs["a"], 100, s.logs["a"][0][:77])
		s.record("a", line{after: 301 * second, verb: "create", name: "large", version: "999", more: `"requestObject":"` + strings.Repeat("z", 5<<20) + `",`})
		s.event(301*second, services, journal.Added, "large", "999", "kubectl")
		if a := s.mustRun(t, ""); a.Explained != 301 || a.Losses.Broken != 1 || a.Losses.TooLong != 0 {
			t.Errorf("%d explained, losses %+v", a.Explained, a.Losses)
		}
	})
	t.Run("of a torn journal the rest is joined", func(t *testing.T) {
		o := whole().write(t)
		if err := o.Journal.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(filepath.Dir(o.Logs[0]), "journal.db")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, info.Size()*3/4); err != nil {
			t.Fatal(err)
		}
		if o.Journal, err = journal.Open(path); err != nil {
			t.Fatal(err)
		}
		defer o.Journal.Close()
		a, err := runAll(t, o)
		if !errors.Is(err, journal.ErrTorn) || a.Explained < 100 || a.Explained >= 300 || len(a.Missing) > 0 {
			t.Errorf("err = %v; want %v, and a part of 300: %+v", err, journal.ErrTorn, a.Report)
		}
		for _, u := range a.Unseen {
			if u.Reason.Code != ReasonTorn {
				t.Errorf("the request %s has no event for the reason %s, want %s", u.Request.Name, u.Reason.Code, ReasonTorn)
			}
		}
		if len(a.Unseen) == 0 {
			t.Error("all requests have an event, want some whose event is lost")
		}
	})
	t.Run("a log that is not there", func(t *testing.T) {
		o := whole().write(t)
		o.Logs = append(o.Logs, filepath.Join(t.TempDir(), "none.log"))
		if _, err := Run(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("err = %v, want %v", err, os.ErrNotExist)
		}
	})
}

func TestScopePicksEventsAndTheirRecords(t *testing.T) {
	s := &story{}
	s.listed(services, slicesOf)
	for i := range 60 {
		for _, kind := range []journal.Kind{services, slicesOf} {
			after, version := time.Duration(i)*10*second, fmt.Sprint(100+i)
			name := fmt.Sprint("web", i%2)
			s.event(after, kind, journal.Modified, name, version, "kubectl")
			s.record("a", line{after: after, verb: "update", name: name, version: version, kind: kind})
		}
	}
	s.event(10*minute, services, journal.Added, "named-x7k2p", "200", "kubectl")
	s.record("a", line{after: 10 * minute, verb: "create", version: "200"})
	o := s.write(t)
	cases := []struct {
		name  string
		scope Scope
		want  int
	}{
		{"a kind", Scope{Kinds: []string{"EndpointSlice"}}, 60},
		{"a kind with its group", Scope{Kinds: []string{"endpointslices.discovery.k8s.io"}}, 60},
		{"a name", Scope{Names: []string{"web1"}}, 60},
		{"a namespace that is another", Scope{Namespaces: []string{"default"}}, 0},
		{"a time", Scope{Since: noon.Add(2 * minute), Until: noon.Add(4 * minute)}, 24},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o.Scope = c.scope
			a, err := runAll(t, o)
			if err != nil || a.Changes != c.want || a.Explained != c.want || len(a.Missing)+len(a.Unseen) > 0 {
				t.Errorf("%d changes, %d explained, missing %d, unseen %d, err %v; want %d", a.Changes, a.Explained, len(a.Missing), len(a.Unseen), err, c.want)
			}
		})
	}
}

func TestWritersAndStorms(t *testing.T) {
	s := &story{}
	s.listed(services)
	for i := range 12 {
		after, version := time.Duration(i)*100*time.Millisecond, fmt.Sprint(100+i/3)
		if i%3 == 0 {
			s.event(after, services, journal.Modified, "web", version, "kubectl")
		}
		s.record("a", line{after: after, verb: "patch", name: "web", version: version, more: `"impersonatedUser":{"username":"bob"},`})
	}
	s.event(minute, services, journal.Deleted, "web", "200", "kubectl")
	s.record("a", line{after: minute, verb: "delete", name: "web"})
	a := s.mustRun(t, "")
	want := []Writer{
		{Manager: "kubectl", User: "ann as bob", UserAgent: "kubectl/v1.35.4 (linux/amd64)", Verb: "patch", Resource: "services", Changes: 4, First: noon, Last: noon.Add(900 * time.Millisecond)},
		{User: "ann", UserAgent: "kubectl/v1.35.4 (linux/amd64)", Verb: "delete", Resource: "services", Changes: 1, First: noon.Add(minute), Last: noon.Add(minute)},
	}
	if diff := cmp.Diff(want, a.Writers); diff != "" {
		t.Errorf("writers (-want +got):\n%s", diff)
	}
	if len(a.Storms) != 1 || a.Storms[0].Writes != 12 || a.Storms[0].Events != 4 {
		t.Errorf("storms %+v; want one of 12 writes that made 4 changes", a.Storms)
	}
	if a.Expected[ReasonUnchanged] != 8 {
		t.Errorf("expected %v; want 8 that changed nothing", a.Expected)
	}
}
