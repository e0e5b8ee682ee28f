// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
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
