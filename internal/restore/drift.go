// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/redact"
)

// Difference is a field in which a live object is not what is wanted. What is
// nil is not set.
type Difference struct {
	// Path is a JSON pointer (RFC 6901).
	Path   string `json:"path"`
	Live   any    `json:"live"`
	Wanted any    `json:"wanted"`
}

// Texts are both sides in JSON; of two lists of objects, what only one of them has,
// with … for what both have. So it is seen which rule a role lacks.
func (d Difference) Texts() (live, wanted string) {
	l, isList := d.Live.([]any)
	w, wantsList := d.Wanted.([]any)
	if isList && wantsList && allMaps(l) && allMaps(w) {
		ofLive, ofWanted := beyond(l, w), beyond(w, l)
		if len(ofLive) < len(l) && len(ofLive)+len(ofWanted) > 0 {
			return restText(ofLive), restText(ofWanted)
		}
	}
	return valueText(d.Live), valueText(d.Wanted)
}

// beyond are the elements of a list that another has less often.
func beyond(list, other []any) (rest []any) {
	left := slices.Clone(other)
	for _, element := range list {
		i := slices.IndexFunc(left, func(o any) bool { return reflect.DeepEqual(o, element) })
		if i < 0 {
			rest = append(rest, element)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	return rest
}

func restText(elements []any) string {
	texts := []string{"…"}
	for _, element := range elements {
		texts = append(texts, valueText(element))
	}
	return "[" + strings.Join(texts, ",") + "]"
}

func valueText(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error() // of what was read from JSON, none fails
	}
	return string(text)
}

// differences compares an object with what it would become. Values of secrets
// are replaced first, so that one can tell that they differ, but not how.
func differences(r *redact.Redactor, at schema.GroupVersionResource, live, applied *unstructured.Unstructured, by string) []Difference {
	live, applied = live.DeepCopy(), applied.DeepCopy()
	for _, u := range []*unstructured.Unstructured{live, applied} {
		strip(u)
	}
	left := r.Object(at.Group, at.Resource, "live", live.Object, nil)
	r.Object(at.Group, at.Resource, "the "+by, applied.Object, left)
	var d differ
	d.values("", live.Object, applied.Object)
	return d.found
}

type differ struct{ found []Difference }

func (d *differ) values(path string, live, wanted any) {
	if reflect.DeepEqual(live, wanted) {
		return
	}
	switch w := wanted.(type) {
	case map[string]any:
		if l, isMap := live.(map[string]any); isMap {
			d.maps(path, l, w)
			return
		}
	case []any:
		if l, isList := live.([]any); isList && len(l) == len(w) && allMaps(l) && allMaps(w) {
			for i := range w {
				d.values(path+"/"+strconv.Itoa(i), l[i], w[i])
			}
			return
		}
	}
	d.found = append(d.found, Difference{path, live, wanted})
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) maps(path string, live, wanted map[string]any) {
	keys := maps.Clone(live)
	maps.Copy(keys, wanted)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.values(path+"/"+escape.Replace(key), live[key], wanted[key])
	}
}

func allMaps(list []any) bool {
	return !slices.ContainsFunc(list, func(element any) bool {
		_, isMap := element.(map[string]any)
		return !isMap
	})
}

// overlay is a live object with the fields that a wanted one sets: what applying
// that would make of it, but for defaults and for how numbers are written.
func overlay(live, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	w := withoutOwners(wanted)
	if texts, found, _ := unstructured.NestedStringMap(w.Object, "stringData"); found && w.GetKind() == "Secret" {
		data, _, _ := unstructured.NestedMap(w.Object, "data")
		if data == nil {
			data = map[string]any{}
		}
		for key, text := range texts {
			data[key] = base64.StdEncoding.EncodeToString([]byte(text))
		}
		w.Object["data"] = data
		delete(w.Object, "stringData")
	}
	return &unstructured.Unstructured{Object: overlaid(live.DeepCopy().Object, w.Object).(map[string]any)}
}

func overlaid(live, wanted any) any {
	switch w := wanted.(type) {
	case map[string]any:
		if l, isMap := live.(map[string]any); isMap {
			for key, value := range w {
				l[key] = overlaid(l[key], value)
			}
			return l
		}
	case []any:
		if l, isList := live.([]any); isList && len(l) == len(w) {
			for i := range w {
				l[i] = overlaid(l[i], w[i])
			}
			return l
		}
	}
	return wanted
}
