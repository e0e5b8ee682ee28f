// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// recordedFor is how much of a journal is taken, from its end: what led to an
// incident, and no more than an archive can hold.
const recordedFor = 6 * time.Hour

// recorded reads a journal: its last events, and, for samples in which no API
// server answered, the objects that there were in the end.
func (c *collector) recorded(ctx context.Context, read []evidence.Record) ([]evidence.Record, error) {
	j, err := journal.Open(c.cfg.Journal)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	_, end, found, err := j.Extent(ctx)
	if err != nil || !found {
		return nil, err
	}
	kinds, err := j.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	since := end.Add(-recordedFor)
	records := c.read(ctx, 0, []group{{{
		record: evidence.Record{
			Path: "events.json", Kind: evidence.Events,
			Command: printable.Command("fairlead", "events", c.cfg.Journal, "--since", since.Format(time.RFC3339), "-o", "json"),
		},
		read: func(ctx context.Context) (output, error) { return events(ctx, j, since) },
	}}})
	for n := 1; n <= c.cfg.Samples; n++ {
		if !hasObjects(read, n) {
			records = append(records, c.read(ctx, n, []group{c.states(j, kinds)})...)
		}
	}
	return records, nil
}

// hasObjects says whether an API server gave objects in a sample.
func hasObjects(records []evidence.Record, sample int) bool {
	return slices.ContainsFunc(records, func(r evidence.Record) bool {
		return r.Sample == sample && r.Kind == evidence.Objects && len(r.Content) > 0
	})
}

// events are those since a moment, oldest first. What can be read of a torn
// journal counts.
func events(ctx context.Context, j *journal.Journal, since time.Time) (output, error) {
	var out bounded
	for e, err := range j.Events(ctx, journal.Filter{Since: since, NoDiff: true}) {
		if err != nil {
			return out.output(), err
		}
		line, err := json.Marshal(e)
		if err != nil {
			return out.output(), fmt.Errorf("write event %d: %w", e.ID, err)
		}
		_, _ = out.Write(append(line, '\n')) // it never fails
	}
	return out.output(), nil
}

// states are the objects of each kind at the journal's end. They may be those of
// some namespaces only, and the journal may have ended long ago: they do not say
// what there is not.
func (c *collector) states(j *journal.Journal, kinds []journal.Kind) (all group) {
	seen := map[string]bool{}
	for _, kind := range kinds {
		name := schema.GroupResource{Group: kind.Group, Resource: kind.Resource}.String()
		if seen[name] {
			continue
		}
		seen[name] = true
		all = append(all, source{
			record: evidence.Record{
				Path: "objects/_" + name + "-recorded.json", Kind: evidence.Objects,
				Command: printable.Command("fairlead", "events", c.cfg.Journal, "--kind", name, "-o", "json"),
			},
			read: func(ctx context.Context) (output, error) { return lastStates(ctx, j, kind) },
		})
	}
	return all
}

func lastStates(ctx context.Context, j *journal.Journal, kind journal.Kind) (output, error) {
	w := &listWriter{}
	for e, err := range j.States(ctx, kind) {
		if err != nil {
			return w.close(""), err
		}
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(e.Content, &object.Object); err != nil {
			return w.close(""), fmt.Errorf("read %s %s/%s: %w", kind.Kind, e.Namespace, e.Name, err)
		}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: e.Kind.Group, Version: e.Kind.Version, Kind: e.Kind.Kind})
		if err := w.add(object); err != nil {
			return w.close(""), fmt.Errorf("write %s %s/%s: %w", kind.Kind, e.Namespace, e.Name, err)
		}
	}
	if w.text.Len() == 0 {
		return output{}, errNothing
	}
	return w.close(""), nil
}
