// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

var (
	noon      = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	services  = journal.Kind{Version: "v1", Resource: "services", Kind: "Service"}
	slicesOf  = journal.Kind{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"}
	leases    = journal.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"}
	apiEvents = journal.Kind{Version: "v1", Resource: "events", Kind: "Event"}
)

// story is a journal and the logs of servers, in the making.
type story struct {
	events []journal.Event
	gaps   []journal.Gap
	logs   map[string][]string // lines by file
	ids    int
}

// event adds what happened to an object some time after noon.
func (s *story) event(after time.Duration, kind journal.Kind, what journal.Type, name, version, manager string) *journal.Event {
	at := noon.Add(after)
	s.events = append(s.events, journal.Event{
		Time: at, Kind: kind, Namespace: "shop", Name: name, UID: "of " + name, ResourceVersion: version, Type: what,
		Manager: manager, Operation: "Update", ManagedAt: at.Truncate(time.Second),
	})
	return &s.events[len(s.events)-1]
}

// listed adds what there was when watching began.
func (s *story) listed(kinds ...journal.Kind) {
	for _, kind := range kinds {
		s.event(-time.Hour, kind, journal.Listed, "old", "1", "")
	}
}

// line is a record in the making.
type line struct {
	after                             time.Duration
	verb, name, version, user, client string
	kind                              journal.Kind
	more                              string // fields
	query, subresource, stage, id     string
	code                              int
}

// record adds a line to a log.
func (s *story) record(log string, l line) {
	if l.kind == (journal.Kind{}) {
		l.kind = services
	}
	if l.code == 0 {
		l.code = 200
	}
	if l.user == "" {
		l.user = "ann"
	}
	if l.client == "" {
		l.client = "kubectl/v1.35.4 (linux/amd64)"
	}
	if l.stage == "" {
		l.stage = "ResponseComplete"
	}
	if s.ids++; l.id == "" {
		l.id = fmt.Sprint(s.ids)
	}
	level, object := "Metadata", ""
	if l.version != "" {
		level, object = "RequestResponse", fmt.Sprintf(`"responseObject":{"metadata":{"resourceVersion":%q}},`, l.version)
	}
	ref, _ := json.Marshal(map[string]string{"resource": l.kind.Resource, "apiGroup": l.kind.Group, "apiVersion": l.kind.Version,
		"namespace": "shop", "name": l.name, "subresource": l.subresource})
	if s.logs == nil {
		s.logs = map[string][]string{}
	}
	s.logs[log] = append(s.logs[log], fmt.Sprintf(
		`{"level":%q,"auditID":%q,"stage":%q,"requestURI":"/x%s","verb":%q,"user":{"username":%q,"groups":["dev"]},%s"sourceIPs":["192.0.2.7"],"userAgent":%q,"objectRef":%s,"responseStatus":{"code":%d},%s"stageTimestamp":%q}`,
		level, l.id, l.stage, l.query, l.verb, l.user, l.more, l.client, ref, l.code, object, noon.Add(l.after).Format(time.RFC3339Nano)))
}

// alive has a log say something from some time to another, so that it covers
// it.
func (s *story) alive(log string, from, to time.Duration) {
	for at := from; at <= to; at += 10 * time.Second {
		s.record(log, line{after: at, verb: "get", name: "web"})
	}
}

func (s *story) write(t testing.TB) Options {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.db")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), s.events); err != nil {
		t.Fatal(err)
	}
	for _, g := range s.gaps {
		if err := j.AppendGap(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = j.Close() })
	o := Options{Journal: j, Silence: time.Minute}
	for name, lines := range s.logs {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Logs = append(o.Logs, path)
	}
	return o
}

// answer is a report with the changes as texts.
type answer struct {
	*Report
	changes []string
	whole   []Change
}

func (s *story) run(t testing.TB, policy string) (answer, error) {
	t.Helper()
	o := s.write(t)
	if policy != "" {
		p, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n" + policy))
		if err != nil {
			t.Fatal(err)
		}
		o.Policy = &p
	}
	return runAll(t, o)
}

func runAll(t testing.TB, o Options) (answer, error) {
	t.Helper()
	var a answer
	o.Change = func(c Change) error {
		how := "fits"
		if c.Exact {
			how = "is"
		}
		a.changes = append(a.changes, fmt.Sprintf("%s %s %s %s of %s", c.Event.Name, c.Event.Type, how, c.Request.Verb, c.Request.User))
		a.whole = append(a.whole, c)
		return nil
	}
	var err error
	a.Report, err = Run(t.Context(), o)
	return a, err
}

func (s *story) mustRun(t testing.TB, policy string) answer {
	t.Helper()
	a, err := s.run(t, policy)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
