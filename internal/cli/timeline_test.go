// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/correlation"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/timeline"
)

func TestATimelineOfATornJournalShowsWhatCanBeReadAndSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "torn.db")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var events []journal.Event
	for i := range 2000 {
		content := fmt.Appendf(nil, `{"spec":{"holderIdentity":"%s"}}`, strings.Repeat("x", 300))
		events = append(events, journal.Event{
			Time: began.Add(time.Duration(i) * time.Second), Kind: journal.Kind{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease"},
			Namespace: "kube-system", Name: fmt.Sprintf("lease-%d", i), Type: journal.Added, Content: content,
		})
	}
	if err := j.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()*3/4); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "torn.html")
	status, out, complaints := fairlead(t, "", "timeline", path, "-o", page)
	if status != exitFindings || strings.Count(complaints, "\n") != 1 || !strings.Contains(complaints, "a part of it is lost") {
		t.Errorf("exit status %d: %s", status, complaints)
	}
	if strings.Contains(out, " 0 events") {
		t.Errorf("it shows nothing: %s", out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "A part of the journal is lost") {
		t.Error("whoever sees the page is not told")
	}
}

func TestASeriesBeginsWithWhatWasInForceAndWhatThereHadBeen(t *testing.T) {
	began := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	points := []timeline.Point{{Time: at(0), Backends: 2}, {Time: at(10), Backends: 3}, {Time: at(20)}, {Time: at(25), Retained: 3}, {Time: at(30), Backends: 1}, {Time: at(40), Gone: true}}
	for _, test := range []struct {
		name  string
		since time.Time
		want  []timeline.Point
	}{
		{"all of it, if no time is asked for", time.Time{}, points},
		{"all of it, if it begins later", at(-5), points},
		{"what was in force", at(15), points[1:]},
		{"at the very moment of a change, what it changed to", at(10), points[1:]},
		{"amid an outage, what was lost", at(27), points[1:]},
		{"once it is over, no more of it", at(35), points[4:]},
		{"of a Service that is gone, that it is", at(50), points[5:]},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, from(points, test.since)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestChangesWithoutARecordAreOneFindingPerKindWriterAndReason(t *testing.T) {
	missing := func(id int64, kind, manager string, code correlation.Code) correlation.Missing {
		return correlation.Missing{
			Event:  journal.Event{ID: id, Kind: journal.Kind{Kind: kind}, Namespace: "shop", Name: fmt.Sprint("o", id), Type: journal.Modified, Manager: manager},
			Reason: correlation.Reason{Code: code, Text: "it is " + string(code), Evidence: []string{"a", "b"}},
		}
	}
	g := &gathered{}
	g.findMissing([]correlation.Missing{
		missing(1, "Service", "helm", correlation.ReasonUnknown), missing(2, "Lease", "kubelet", correlation.ReasonPolicy), missing(3, "Service", "helm", correlation.ReasonUnknown),
		missing(4, "Service", "", correlation.ReasonUnknown), missing(5, "Lease", "kubelet", correlation.ReasonUnlogged), missing(6, "Service", "helm", correlation.ReasonStopping),
	})
	want := []timeline.Finding{
		{Event: 1, Text: "No audit log has a record of how Service shop/o1 was modified by helm, nor of 1 more change of such objects", Detail: "it is cannot-tell; a; b"},
		{Event: 4, Text: "No audit log has a record of how Service shop/o4 was modified", Detail: "it is cannot-tell; a; b"},
		{Event: 6, Text: "No audit log has a record of how Service shop/o6 was modified by helm", Detail: "it is server-stopping; a; b"},
	}
	for i := range want {
		want[i].Severity, want[i].Invariant = timeline.Warning, withoutRecord
	}
	if diff := cmp.Diff(want, g.data.Findings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"which note nothing of 2 changes"}, g.sources); diff != "" {
		t.Error(diff)
	}
}
