// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// For any history, however often objects are written, whatever the clocks of the
// servers, and whether records name versions: no record is used twice, every
// change is explained or missing, and where every record names its version each
// change has exactly its own.
func TestEveryChangeHasItsOwnRecord(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := &story{}
		s.listed(services)
		versions := rapid.Bool().Draw(r, "versions")
		lost := rapid.IntRange(0, 3).Draw(r, "lost") // of ten records
		clocks := []time.Duration{0, time.Duration(rapid.IntRange(-7200, 7200).Draw(r, "clock")) * second}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		at, kept, want := time.Duration(0), 0, map[int64]string{}
		for i := range rapid.IntRange(30, 80).Draw(r, "writes") {
			at += time.Duration(random.IntN(20_000)) * time.Millisecond
			name, version := fmt.Sprint("web", random.IntN(3)), fmt.Sprint(100+i)
			s.event(at+time.Duration(random.IntN(5))*time.Millisecond, services, journal.Modified, name, version, "kubectl")
			if random.IntN(10) < lost {
				continue
			}
			kept++
			server, id := random.IntN(2), fmt.Sprint("id", i)
			l := line{after: at + clocks[server], verb: "update", name: name, id: id}
			if versions {
				l.version = version
			}
			s.record(fmt.Sprintf("cp%d.log", server), l)
			want[int64(i+2)] = id // the first event is another
		}
		if kept == 0 {
			return
		}
		a, err := s.run(t, "")
		if err != nil && !versions {
			return // without versions nothing says that clocks are hours apart
		}
		if err != nil {
			r.Fatal(err)
		}
		used := map[string]bool{}
		for _, c := range a.whole {
			if used[c.Request.AuditID] {
				r.Errorf("record %s is used twice", c.Request.AuditID)
			}
			used[c.Request.AuditID] = true
			if versions && (!c.Exact || want[c.Event.ID] != c.Request.AuditID) {
				r.Errorf("event %d has record %s, want %s", c.Event.ID, c.Request.AuditID, want[c.Event.ID])
			}
		}
		if a.Changes != len(s.events)-1 || a.Changes != a.Explained+len(a.Missing) {
			r.Errorf("%d changes, %d explained, %d missing, of %d", a.Changes, a.Explained, len(a.Missing), len(s.events)-1)
		}
		if versions && (a.Explained != kept || len(a.Unseen) != 0) {
			r.Errorf("%d explained of %d, %d records without an event", a.Explained, kept, len(a.Unseen))
		}
	})
}

func FuzzManager(f *testing.F) {
	f.Add("kubectl/v1.35.4 (linux/amd64)", "/x?fieldManager=helm&force=true")
	f.Add("\x00\xff/", "/x?%zz")
	f.Fuzz(func(t *testing.T, agent, uri string) {
		r := audit.Record{UserAgent: agent, RequestURI: uri}
		asked := parameter(r, "fieldManager")
		name := manager(r)
		if asked != "" && name != asked {
			t.Errorf("manager %q, asked for as %q", name, asked)
		}
		if asked == "" && (len(name) > maxManager || !utf8.ValidString(name)) {
			t.Errorf("manager %q of %q", name, agent)
		}
	})
}
