// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Change is one step from an object's old state to its new one.
type Change struct {
	// Path is a JSON pointer (RFC 6901), in the state that the steps before left.
	Path string `json:"path"`
	// Op is add, remove or replace, as in RFC 6902.
	Op  string          `json:"op"`
	Old json.RawMessage `json:"old,omitempty"` // of remove and replace
	New json.RawMessage `json:"new,omitempty"` // of add and replace
}

// Diff returns the steps from an old JSON text to a new one. An empty text is
// an object that is not there. Elements of lists are told apart by what names
// them, where something does.
func Diff(old, new json.RawMessage) ([]Change, error) {
	before, err := decode(old)
	if err != nil {
		return nil, fmt.Errorf("compare the old state: %w", err)
	}
	after, err := decode(new)
	if err != nil {
		return nil, fmt.Errorf("compare the new state: %w", err)
	}
	var d differ
	switch {
	case len(old) == 0 && len(new) == 0:
	case len(old) == 0:
		d.step("", "add", nil, Encode(after))
	case len(new) == 0:
		d.step("", "remove", Encode(before), nil)
	default:
		return DiffValues(before, after), nil
	}
	return d.changes, nil
}

// DiffValues is Diff of two texts that were decoded, with numbers as
// json.Number.
func DiffValues(old, new any) []Change {
	var d differ
	d.values("", old, new)
	return d.changes
}

// decode keeps numbers as they are written.
func decode(text json.RawMessage) (value any, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is something behind the JSON value")
	}
	return value, nil
}

type differ struct{ changes []Change }

func (d *differ) step(path, op string, old, new json.RawMessage) {
	d.changes = append(d.changes, Change{Path: path, Op: op, Old: old, New: new})
}

func (d *differ) values(path string, old, new any) {
	oldMap, isMap := old.(map[string]any)
	newMap, both := new.(map[string]any)
	if isMap && both {
		d.maps(path, oldMap, newMap)
		return
	}
	oldList, isList := old.([]any)
	newList, both := new.([]any)
	if isList && both {
		d.lists(path, oldList, newList)
		return
	}
	if isMap || isList || old != new {
		d.step(path, "replace", Encode(old), Encode(new))
	}
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) maps(path string, old, new map[string]any) {
	for _, key := range sortedKeys(old) {
		at := path + "/" + escape.Replace(key)
		if value, ok := new[key]; ok {
			d.values(at, old[key], value)
			continue
		}
		d.step(at, "remove", Encode(old[key]), nil)
	}
	for _, key := range sortedKeys(new) {
		if _, ok := old[key]; !ok {
			d.step(path+"/"+escape.Replace(key), "add", nil, Encode(new[key]))
		}
	}
}

// lists removes what went from the back, adds what came from the front, and
// compares the rest, so that every step finds what it names at its index.
func (d *differ) lists(path string, old, new []any) {
	if len(old) == 0 && len(new) == 0 {
		return
	}
	oldNames, newNames, named := names(old, new)
	if !named && len(old) == len(new) {
		for i := range old {
			d.values(path+"/"+strconv.Itoa(i), old[i], new[i])
		}
		return
	}
	stay, kept := among(oldNames, newNames), among(newNames, oldNames)
	if !named || !slices.Equal(stay, kept) {
		d.step(path, "replace", Encode(old), Encode(new))
		return
	}
	stays := make(map[string]bool, len(stay))
	for _, name := range stay {
		stays[name] = true
	}
	place := make(map[string]int, len(oldNames))
	for i, name := range slices.Backward(oldNames) {
		place[name] = i
		if !stays[name] {
			d.step(path+"/"+strconv.Itoa(i), "remove", Encode(old[i]), nil)
		}
	}
	for i, name := range newNames {
		if _, ok := place[name]; !ok {
			d.step(path+"/"+strconv.Itoa(i), "add", nil, Encode(new[i]))
		}
	}
	for i, name := range newNames {
		if at, ok := place[name]; ok {
			d.values(path+"/"+strconv.Itoa(i), old[at], new[i])
		}
	}
}

// among returns those names that others have as well, in their order.
func among(names, others []string) []string {
	there := make(map[string]bool, len(others))
	for _, name := range others {
		there[name] = true
	}
	var both []string
	for _, name := range names {
		if there[name] {
			both = append(both, name)
		}
	}
	return both
}

// identities are the fields that name an element of a list in the API, best
// first.
var identities = [][]string{{"name"}, {"key"}, {"uid"}, {"type"}, {"port", "protocol"}, {"addresses"}, {"ip"}}

// names tells the elements of two lists apart: by their value if all are plain,
// else by the first identity that all elements have and no two share.
func names(old, new []any) (oldNames, newNames []string, ok bool) {
	for _, identity := range append([][]string{nil}, identities...) {
		oldNames, ok = namesBy(identity, old)
		if !ok {
			continue
		}
		if newNames, ok = namesBy(identity, new); ok {
			return oldNames, newNames, true
		}
	}
	return nil, nil, false
}

func namesBy(identity []string, list []any) ([]string, bool) {
	seen := make(map[string]bool, len(list))
	out := make([]string, 0, len(list))
	for _, element := range list {
		name, ok := nameBy(identity, element)
		if !ok || seen[name] {
			return nil, false
		}
		seen[name] = true
		out = append(out, name)
	}
	return out, true
}

func nameBy(identity []string, element any) (string, bool) {
	fields, isMap := element.(map[string]any)
	if _, isList := element.([]any); identity == nil && (isMap || isList) {
		return "", false
	}
	if identity == nil {
		return string(Encode(element)), true
	}
	name := ""
	for _, field := range identity {
		value, ok := fields[field]
		if !ok {
			return "", false
		}
		name += string(Encode(value)) + " "
	}
	return name, true
}
