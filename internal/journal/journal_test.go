// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	services = Kind{"", "v1", "services", "Service"}
	slicesOf = Kind{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"}
	start    = time.Unix(1_700_000_000, 123)
)

// create makes a journal that ends with the test.
func create(t testing.TB, path string, o Options) *Journal {
	t.Helper()
	j, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func appendAll(t testing.TB, j *Journal, events ...Event) {
	t.Helper()
	if err := j.Append(t.Context(), events); err != nil {
		t.Fatal(err)
	}
}

func collect(t testing.TB, j *Journal, f Filter) []Event {
	t.Helper()
	var events []Event
	for e, err := range j.Events(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// story is a Service and its EndpointSlice that somebody empties.
func story() []Event {
	full, empty := json.RawMessage(`{"endpoints":[{"addresses":["10.0.0.1"]}]}`), json.RawMessage(`{"endpoints":null}`)
	return []Event{
		{ID: 1, Time: start, Kind: services, Namespace: "default", Name: "kubernetes", UID: "u1", ResourceVersion: "10", Type: Listed, Content: json.RawMessage(`{"spec":{}}`)},
		{ID: 2, Time: start.Add(time.Second), Kind: slicesOf, Namespace: "default", Name: "kubernetes", UID: "u2", ResourceVersion: "11", Type: Added, Manager: "kube-apiserver", Operation: "Update", ManagedAt: start.Add(-time.Second), Content: full},
		{ID: 3, Time: start.Add(2 * time.Second), Kind: slicesOf, Namespace: "default", Name: "kubernetes", UID: "u2", ResourceVersion: "12", Type: Modified, Manager: "kube-apiserver", Operation: "Update", Subresource: "status",
			Diff: []Change{{Path: "/endpoints", Op: "replace", Old: json.RawMessage(`[{"addresses":["10.0.0.1"]}]`), New: json.RawMessage(`null`)}}, Content: empty},
		{ID: 4, Time: start.Add(3 * time.Second), Kind: services, Namespace: "web", Name: "shop", UID: "u3", ResourceVersion: "13", Type: Deleted, Content: json.RawMessage(`{}`)},
	}
}

func TestWhatIsAppendedIsReadBackInItsOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a ?#%journal.db")
	j := create(t, path, Options{Server: "https://api", Recorder: "test"})
	appendAll(t, j, story()...)
	reader, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, from := range []*Journal{j, reader} {
		if diff := cmp.Diff(story(), collect(t, from, Filter{})); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	if err := reader.Append(t.Context(), story()); err == nil {
		t.Error("who opened it to read may write")
	}
}

func TestAFilterPicksEventsByEachOfItsFields(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	appendAll(t, j, story()...)
	for name, c := range map[string]struct {
		filter Filter
		want   []int64
	}{
		"all":                           {Filter{}, []int64{1, 2, 3, 4}},
		"a kind":                        {Filter{Kinds: []string{"service"}}, []int64{1, 4}},
		"a resource":                    {Filter{Kinds: []string{"endpointSlices"}}, []int64{2, 3}},
		"a resource with its group":     {Filter{Kinds: []string{"endpointslices.discovery.k8s.io", "nodes"}}, []int64{2, 3}},
		"a namespace":                   {Filter{Namespaces: []string{"web"}}, []int64{4}},
		"names of a kind":               {Filter{Kinds: []string{"Service"}, Names: []string{"kubernetes", "shop"}}, []int64{1, 4}},
		"types":                         {Filter{Types: []Type{Listed, Deleted}}, []int64{1, 4}},
		"a manager":                     {Filter{Managers: []string{"kube-apiserver"}}, []int64{2, 3}},
		"a field":                       {Filter{Field: "/endpoints"}, []int64{3}},
		"a field in what was replaced":  {Filter{Field: "/endpoints/0/addresses"}, []int64{3}},
		"no field of a similar name":    {Filter{Field: "/endpoint"}, nil},
		"since is the first moment":     {Filter{Since: start.Add(2 * time.Second)}, []int64{3, 4}},
		"until is the first one beyond": {Filter{Until: start.Add(2 * time.Second)}, []int64{1, 2}},
		"versions":                      {Filter{FromVersion: 11, ToVersion: 12}, []int64{2, 3}},
		"after a known event":           {Filter{After: 3}, []int64{4}},
		"a name with a quote":           {Filter{Names: []string{"' OR 1 --"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int64
			for _, e := range collect(t, j, c.filter) {
				got = append(got, e.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestLastIsTheStateAtAMoment(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	appendAll(t, j, story()...)
	for at, want := range map[time.Duration]int64{0: 0, time.Second: 2, 2*time.Second - 1: 2, 2 * time.Second: 3, time.Hour: 3} {
		e, found, err := j.Last(t.Context(), "EndpointSlice", "default", "kubernetes", start.Add(at))
		if err != nil || found != (want > 0) || e.ID != want {
			t.Errorf("after %s: event %d, %v, %v, want event %d", at, e.ID, found, err, want)
		}
	}
}

func TestGapsAreThoseThatTouchTheTime(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	gap := Gap{Kind: services, Began: start, Ended: start.Add(time.Minute), Reason: "410 Gone", FromVersion: "5", ToVersion: "9"}
	if err := j.AppendGap(t.Context(), gap); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter Filter
		want   []Gap
	}{
		"all":                   {Filter{}, []Gap{gap}},
		"its end":               {Filter{Since: start.Add(time.Minute), Kinds: []string{"Service"}}, []Gap{gap}},
		"another kind":          {Filter{Kinds: []string{"Node"}}, nil},
		"before it":             {Filter{Until: start}, nil},
		"after it":              {Filter{Since: start.Add(time.Hour)}, nil},
		"what only events have": {Filter{Names: []string{"x"}, After: 7}, []Gap{gap}},
	} {
		got, err := j.Gaps(t.Context(), c.filter)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

func TestFollowGoesOnWithWhatIsAppendedLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	appendAll(t, j, story()[:2]...)
	reader, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []int64
	for e, err := range reader.Follow(ctx, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
		if e.ID == 2 {
			appendAll(t, j, story()[2:]...)
		}
		if e.ID == 4 {
			cancel()
		}
	}
	if !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("it yielded %v", got)
	}
}

func TestAFailedAppendAddsNothing(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	events := story()
	events[3].Diff = []Change{{Path: "/x", Op: "add", New: json.RawMessage(`{`)}}
	if err := j.Append(t.Context(), events); err == nil {
		t.Fatal("a diff that is no JSON was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Append(ctx, story()); err == nil {
		t.Fatal("it went on after its context ended")
	}
	if got := collect(t, j, Filter{}); got != nil {
		t.Errorf("it left %v", got)
	}
	appendAll(t, j, story()...)
	if got := collect(t, j, Filter{}); len(got) != 4 {
		t.Errorf("later %d events were added, want 4", len(got))
	}
}

// load is n events of some objects whose content has a size.
func load(first, n, objects, size int) []Event {
	events := make([]Event, n)
	for i := range events {
		number := first + i
		content, _ := json.Marshal(map[string]any{"n": number, "pad": fmt.Sprintf("%*d", size, number)})
		events[i] = Event{Time: start.Add(time.Duration(number) * time.Millisecond), Kind: services, Namespace: "default",
			Name: fmt.Sprintf("s%d", number%objects), UID: fmt.Sprint("u", number%objects), ResourceVersion: fmt.Sprint(number + 1),
			Type: Modified, Manager: "kubectl", Operation: "Update", Content: content,
			Diff: []Change{{Path: "/n", Op: "replace", Old: json.RawMessage(fmt.Sprint(number - objects)), New: json.RawMessage(fmt.Sprint(number))}}}
	}
	return events
}
