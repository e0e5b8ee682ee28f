// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/redact"
)

// ofRunning are resources of which what runs makes the objects itself.
var ofRunning = []string{"events", "endpoints", "leases", "nodes"}

// byJournal is what wanted objects of a journal are called by.
const byJournal = "journal"

// FromJournal takes what was there at a moment, as a journal tells: of each
// object of a namespace, "" being all, the last state before. Of a torn journal
// it takes what can be read, and returns journal.ErrTorn with it.
func FromJournal(ctx context.Context, j *journal.Journal, at time.Time, namespace string) (*Wanted, error) {
	w := &Wanted{Source: "the journal at " + at.UTC().Format("2006-01-02 15:04:05Z"), By: byJournal}
	last, torn, err := lastStates(ctx, j, at, namespace)
	if err != nil {
		return nil, err
	}
	redactor, left := redact.New(), map[string]int{}
	for _, key := range slices.SortedFunc(maps.Keys(last), compareStates) {
		if slices.Contains(ofRunning, key.resource) {
			left[key.kind]++
			continue
		}
		if err := w.addState(redactor, last[key]); err != nil {
			return nil, fmt.Errorf("read %s of the journal: %w", reference(key.kind, key.namespace, key.name), err)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(left)) {
		w.LeftOut = append(w.LeftOut, fmt.Sprintf("%d objects of kind %s: what runs makes them itself", left[kind], kind))
	}
	return w, torn
}

// stateKey names an object whatever its UID and its kind's version.
type stateKey struct{ group, resource, kind, namespace, name string }

func compareStates(a, b stateKey) int {
	return slices.Compare([]string{a.group, a.kind, a.namespace, a.name}, []string{b.group, b.kind, b.namespace, b.name})
}

// lastStates are the contents of the objects that were there.
func lastStates(ctx context.Context, j *journal.Journal, at time.Time, namespace string) (last map[stateKey]json.RawMessage, torn, err error) {
	last = map[stateKey]json.RawMessage{}
	filter := journal.Filter{Until: at.Add(1), NoDiff: true}
	if namespace != "" {
		filter.Namespaces = []string{namespace}
	}
	for event, err := range j.Events(ctx, filter) {
		if errors.Is(err, journal.ErrTorn) {
			return last, err, nil
		}
		if err != nil {
			return nil, nil, err
		}
		key := stateKey{event.Kind.Group, event.Kind.Resource, event.Kind.Kind, event.Namespace, event.Name}
		if event.Type == journal.Deleted || event.Type == journal.Absent {
			delete(last, key)
			continue
		}
		last[key] = event.Content
	}
	return last, nil, nil
}

// addState takes an object of which secrets were left out as it was recorded:
// it can be compared, but not made.
func (w *Wanted) addState(redactor *redact.Redactor, content json.RawMessage) error {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(content); err != nil {
		return err
	}
	places := slices.Sorted(maps.Keys(redactor.LeftIn(u.Object)))
	w.add(u)
	if len(places) == 0 {
		return nil
	}
	o := &w.Objects[len(w.Objects)-1]
	where := make([]string, len(places))
	for i, place := range places {
		path := strings.Split(place, "\x00")
		where[i] = "/" + strings.Join(path, "/")
		o.Object = without(o.Object, path).(map[string]any)
	}
	o.Refused = fmt.Sprintf("it cannot be restored from a journal, which has no secrets: %s was left out; take it from a Helm release or a manifest", few(where))
	return nil
}

// few names some of many.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// without takes out of a value what stands at a place as the redactor names it.
// A text goes with the list that it is an element of; nil is what shall go.
func without(value any, path []string) any {
	if len(path) == 0 {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		if inner := without(v[path[0]], path[1:]); inner != nil {
			v[path[0]] = inner
		} else {
			delete(v, path[0])
		}
		return v
	case []any:
		i := slices.IndexFunc(v, func(element any) bool {
			fields, isMap := element.(map[string]any)
			return isMap && path[0] == "name="+fmt.Sprint(fields["name"])
		})
		if index, err := strconv.Atoi(path[0]); i < 0 && err == nil && index < len(v) {
			i = index
		}
		if i < 0 || without(v[i], path[1:]) == nil {
			return nil
		}
		return v
	}
	return nil
}
