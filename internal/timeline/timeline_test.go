// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/journal"
)

func TestThePageHasEachPartOfItsScript(t *testing.T) {
	var want []string
	err := fs.WalkDir(page, "page", func(path string, _ fs.DirEntry, err error) error {
		if name, found := strings.CutSuffix(strings.TrimPrefix(path, "page/"), ".js"); found {
			want = append(want, name+".js")
		}
		return err
	})
	have := slices.Sorted(slices.Values(scripts[:]))
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestJSONHasNoNullListsAndComesBack(t *testing.T) {
	var empty bytes.Buffer
	if err := WriteJSON(&empty, Data{Title: "empty", Span: Span{From: at(0), To: at(1)}}); err != nil {
		t.Fatal(err)
	}
	want := `{
  "schemaVersion": 1,
  "title": "empty",
  "source": "",
  "span": {
    "from": "2026-11-20T10:00:00Z",
    "to": "2026-11-20T10:00:01Z"
  },
  "notes": [],
  "services": [],
  "events": [],
  "gaps": [],
  "marks": [],
  "findings": []
}
`
	if diff := cmp.Diff(want, empty.String()); diff != "" {
		t.Error(diff)
	}
	var full bytes.Buffer
	data := incidentData()
	if err := WriteJSON(&full, data); err != nil {
		t.Fatal(err)
	}
	var back Data
	if err := json.Unmarshal(full.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	data.SchemaVersion, data.Notes = 1, []string{}
	// The encoder indents values that are JSON themselves.
	raw := cmp.Transformer("compact", func(value json.RawMessage) string {
		var b bytes.Buffer
		_ = json.Compact(&b, value)
		return b.String()
	})
	if diff := cmp.Diff(data, back, raw); diff != "" {
		t.Error(diff)
	}
}

// unpack reads columns as the page does.
func unpack(p packed) (events []Event, marks []Mark) {
	at := func(micros int64) time.Time {
		return time.UnixMilli(p.Base).Add(time.Duration(micros) * time.Microsecond).UTC()
	}
	now := int64(0)
	for i, id := range p.Events.ID {
		now += p.Events.Time[i]
		object := p.Events.Object[i]
		events = append(events, Event{
			ID: id, Time: at(now), Kind: p.Texts[p.Objects.Kind[object]], Namespace: p.Texts[p.Objects.Namespace[object]], Name: p.Texts[p.Objects.Name[object]],
			Type: p.Texts[p.Events.Type[i]], Manager: p.Texts[p.Events.Manager[i]], ResourceVersion: p.Events.Version[i],
		})
	}
	now = 0
	for i, event := range p.Marks.Event {
		now += p.Marks.Time[i]
		marks = append(marks, Mark{
			Time: at(now), User: p.Texts[p.Marks.User[i]], Verb: p.Texts[p.Marks.Verb[i]], What: p.Texts[p.Marks.What[i]], Server: p.Texts[p.Marks.Server[i]], Event: event,
		})
	}
	return events, marks
}

func TestPackingLosesNothingAndCoversAllTimes(t *testing.T) {
	moment := rapid.Custom(func(t *rapid.T) time.Time {
		return began.Add(time.Duration(rapid.Int64Range(-1e9, 1e12).Draw(t, "micros")) * time.Microsecond)
	})
	name := rapid.SampledFrom([]string{"", "a", "b", "default", "kubernetes", "é<>&"})
	event := rapid.Custom(func(t *rapid.T) Event {
		return Event{
			ID: rapid.Int64().Draw(t, "id"), Time: moment.Draw(t, "time"), Kind: name.Draw(t, "kind"), Namespace: name.Draw(t, "namespace"), Name: name.Draw(t, "name"),
			Type: name.Draw(t, "type"), Manager: name.Draw(t, "manager"), ResourceVersion: name.Draw(t, "version"),
		}
	})
	mark := rapid.Custom(func(t *rapid.T) Mark {
		return Mark{Time: moment.Draw(t, "time"), User: name.Draw(t, "user"), Verb: name.Draw(t, "verb"), What: name.Draw(t, "what"), Server: name.Draw(t, "server"), Event: rapid.Int64().Draw(t, "event")}
	})
	rapid.Check(t, func(t *rapid.T) {
		d := Data{
			Span:   Span{From: moment.Draw(t, "from"), To: moment.Draw(t, "to")},
			Events: sorted(rapid.SliceOf(event).Draw(t, "events"), func(e Event) time.Time { return e.Time }),
			Marks:  sorted(rapid.SliceOf(mark).Draw(t, "marks"), func(m Mark) time.Time { return m.Time }),
		}
		p := pack(d)
		events, marks := unpack(p)
		if diff := cmp.Diff(d.Events, events); len(d.Events) > 0 && diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(d.Marks, marks); len(d.Marks) > 0 && diff != "" {
			t.Fatal(diff)
		}
		for _, e := range events {
			if micros := e.Time.Sub(time.UnixMilli(p.Base)).Microseconds(); micros < p.From || micros > p.To {
				t.Fatalf("%v is not between %d and %d", e.Time, p.From, p.To)
			}
		}
	})
}

func TestLargeDiffsAreLeftOutUnlessAFindingNamesThem(t *testing.T) {
	event := func(id int64, size int) Event {
		return Event{ID: id, Diff: []journal.Change{{Path: "/x", Op: "add", New: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}}}
	}
	events := []Event{event(1, 10), event(2, 5000), event(3, 20), event(4, 4000), {ID: 5}}
	for _, test := range []struct {
		name  string
		room  int
		named int64
		out   []int64 // IDs that are left out
	}{
		{"all fit", 10_000, 0, nil},
		{"the largest goes first", 5000, 0, []int64{2}},
		{"then the next", 1000, 0, []int64{2, 4}},
		{"what a finding names stays, and takes the room of others", 5200, 2, []int64{4}},
		{"even if there is none", 0, 2, []int64{1, 3, 4, 5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out []int64
			for i, line := range diffLines(events, []Finding{{Event: test.named}}, test.room) {
				if line[0] != '[' {
					out = append(out, events[i].ID)
				}
			}
			if diff := cmp.Diff(test.out, out); diff != "" {
				t.Error(diff)
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAPageThatCannotBeWrittenIsAnError(t *testing.T) {
	err := Write(full{}, incidentData())
	if err == nil || err.Error() != "write the timeline: no space left" {
		t.Error(err)
	}
}

// Whatever comes in, the page has the tags that it has without any data.
func FuzzWrite(f *testing.F) {
	for _, text := range []string{"", "kubernetes", "</script>", "<!--<script>", "{{data}}", "\xff", "\x00", `"`, "\u2028"} {
		f.Add(text, `{"a":1}`, int64(1), int64(0))
		f.Add(text, text, int64(-1), int64(1)<<62)
	}
	tags := func(d Data) (int, []byte, error) {
		var b bytes.Buffer
		err := Write(&b, d)
		return bytes.Count(b.Bytes(), []byte("<")), b.Bytes(), err
	}
	bare, _, err := tags(Data{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, raw string, id, nanos int64) {
		when := time.Unix(0, nanos)
		d := Data{
			Title: text, Source: text, Notes: []string{text}, Services: []Service{{Name: text, Series: []Point{{Time: when, Backends: int(id)}}}},
			Events: []Event{{ID: id, Time: when, Kind: text, Namespace: text, Name: text, Type: text, Manager: text, ResourceVersion: text,
				Diff: []journal.Change{{Path: text, Op: text, Old: json.RawMessage(raw), New: json.RawMessage(raw)}}}},
			Gaps:     []Gap{{Kind: text, From: when, To: when, Reason: text}},
			Marks:    []Mark{{Time: when, User: text, Verb: text, What: text, Server: text, Event: id}},
			Findings: []Finding{{Time: when, Cleared: when, Severity: Severity(text), Invariant: text, Text: text, Detail: text, Event: id, Service: text}},
		}
		have, written, err := tags(d)
		if err != nil {
			t.Fatal(err)
		}
		// The title stands in the head and in the body.
		if have != bare {
			t.Fatalf("%d tags, %d without data", have, bare)
		}
		if !utf8.Valid(written) {
			t.Fatal("it is no UTF-8")
		}
	})
}

// Budget: 1 s for 100 000 events.
func BenchmarkWrite(b *testing.B) {
	d := largeData(100_000)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(d.Events), func(i, k int) { d.Events[i], d.Events[k] = d.Events[k], d.Events[i] })
	for b.Loop() {
		var out bytes.Buffer
		if err := Write(&out, d); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.Len())/1e6, "MB")
	}
}
