// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/journal"
)

func TestJournal(t *testing.T) {
	services := journal.Kind{Version: "v1", Resource: "services", Kind: "Service"}
	event := func(name string, ago time.Duration, kind journal.Type) journal.Event {
		return journal.Event{
			Time: time.Now().Add(-ago), Kind: services, Namespace: "shop", Name: name, UID: name, ResourceVersion: "7", Type: kind,
			Content: []byte(`{"metadata":{"namespace":"shop","name":"` + name + `"},"spec":{"ports":[{"port":80}]}}`),
		}
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	j, err := journal.Create(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), []journal.Event{event("old", 30*time.Hour, journal.Listed), event("web", time.Hour, journal.Added), event("gone", time.Minute, journal.Deleted)}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	here := &Here{Node: "n1", Socket: "/nowhere", Pins: t.TempDir(), Kernel: noKernel, Proc: t.TempDir(), Logs: t.TempDir()}
	b, err := Collect(t.Context(), Config{Here: here, Samples: 2, Journal: path})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("the last hours of a journal are events, without those before", func(t *testing.T) {
		r := find(t, b.Records, "events.json")
		text := string(r.Content)
		if r.Kind != evidence.Events || strings.Count(text, "\n") != 2 || !strings.Contains(text, `"name":"web"`) || strings.Contains(text, `"name":"old"`) {
			t.Errorf("%+v\n%s", r, text)
		}
	})
	t.Run("where no API server answers its last objects stand in each sample, and say nothing of others", func(t *testing.T) {
		for _, path := range []string{"1/objects/_services-recorded.json", "2/objects/_services-recorded.json"} {
			r := find(t, b.Records, path)
			text := string(r.Content)
			if len(r.Resources) > 0 || !strings.Contains(text, `"kind":"Service","metadata":{"name":"web"`) || !strings.Contains(text, `"old"`) || strings.Contains(text, `"gone"`) {
				t.Errorf("%+v\n%s", r, text)
			}
		}
	})
	t.Run("a sample in which the API answered needs none of them", func(t *testing.T) {
		c := &collector{cfg: Config{Samples: 2, Journal: path}}
		records, err := c.recorded(t.Context(), []evidence.Record{{Kind: evidence.Objects, Sample: 1, Content: []byte("{}")}})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(records, func(r evidence.Record) bool { return r.Sample == 1 }) {
			t.Errorf("%+v", records)
		}
		find(t, records, "2/objects/_services-recorded.json")
	})
}
