// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
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

// Diff returns the steps from an old JSON text to a new one, both as Encode
// writes them. An empty text is an object that is not there. Elements of lists
// are told apart by what names them, where something does. The steps share the
// memory of the texts.
func Diff(old, new json.RawMessage) []Change {
	var d differ
	switch {
	case len(old) == 0 && len(new) == 0:
	case len(old) == 0:
		d.step("", "add", nil, new)
	case len(new) == 0:
		d.step("", "remove", old, nil)
	default:
		d.values("", old, new)
	}
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) step(path, op string, old, new json.RawMessage) {
	d.changes = append(d.changes, Change{Path: path, Op: op, Old: old, New: new})
}

func (d *differ) values(path string, old, new json.RawMessage) {
	switch {
	case bytes.Equal(old, new):
	case old[0] == '{' && new[0] == '{':
		d.maps(path, membersOf(old), membersOf(new))
	case old[0] == '[' && new[0] == '[':
		d.lists(path, old, new)
	default:
		d.step(path, "replace", old, new)
	}
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) maps(path string, old, new []member) {
	at := -1
	for _, m := range old {
		i := find(new, m.key, at+1)
		if i < 0 {
			d.step(pointer(path, m.key), "remove", m.value, nil)
			continue
		}
		if at = i; !bytes.Equal(m.value, new[i].value) {
			d.values(pointer(path, m.key), m.value, new[i].value)
		}
	}
	at = -1
	for _, m := range new {
		i := find(old, m.key, at+1)
		if i < 0 {
			d.step(pointer(path, m.key), "add", nil, m.value)
			continue
		}
		at = i
	}
}

// lists compares what two lists do not have in common at their ends. It removes
// what went from the back, adds what came from the front, and compares the
// rest, so that every step finds what it names at its index.
func (d *differ) lists(path string, oldList, newList json.RawMessage) {
	old, new, first := trim(elementsOf(oldList), elementsOf(newList))
	oldNames, newNames, named := names(old, new)
	if !named && len(old) == len(new) {
		for i := range old {
			d.element(path, first+i, old[i], new[i])
		}
		return
	}
	stay, kept := among(oldNames, newNames), among(newNames, oldNames)
	if !named || !slices.Equal(stay, kept) {
		d.step(path, "replace", oldList, newList)
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
			d.step(path+"/"+strconv.Itoa(first+i), "remove", old[i], nil)
		}
	}
	for i, name := range newNames {
		if _, ok := place[name]; !ok {
			d.step(path+"/"+strconv.Itoa(first+i), "add", nil, new[i])
		}
	}
	for i, name := range newNames {
		if at, ok := place[name]; ok {
			d.element(path, first+i, old[at], new[i])
		}
	}
}

// trim leaves out what two lists begin and end with alike, and returns at which
// index the rest begins.
func trim(old, new []json.RawMessage) (restOfOld, restOfNew []json.RawMessage, first int) {
	for len(old) > 0 && len(new) > 0 && bytes.Equal(old[0], new[0]) {
		old, new, first = old[1:], new[1:], first+1
	}
	for len(old) > 0 && len(new) > 0 && bytes.Equal(old[len(old)-1], new[len(new)-1]) {
		old, new = old[:len(old)-1], new[:len(new)-1]
	}
	return old, new, first
}

func (d *differ) element(path string, i int, old, new json.RawMessage) {
	if !bytes.Equal(old, new) {
		d.values(path+"/"+strconv.Itoa(i), old, new)
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
var identities = [][]json.RawMessage{
	{[]byte(`"name"`)}, {[]byte(`"key"`)}, {[]byte(`"uid"`)}, {[]byte(`"type"`)}, {[]byte(`"port"`), []byte(`"protocol"`)}, {[]byte(`"addresses"`)}, {[]byte(`"ip"`)},
}

// names tells the elements of two lists apart: by their value if all are plain,
// else by the first identity that all elements have and no two share.
func names(old, new []json.RawMessage) (oldNames, newNames []string, ok bool) {
	if oldNames, ok = plainNames(old); ok {
		if newNames, ok = plainNames(new); ok {
			return oldNames, newNames, true
		}
	}
	oldFields, ok := fieldsOf(old)
	if !ok {
		return nil, nil, false
	}
	newFields, ok := fieldsOf(new)
	if !ok {
		return nil, nil, false
	}
	for _, identity := range identities {
		oldNames, ok = namesBy(identity, oldFields)
		if !ok {
			continue
		}
		if newNames, ok = namesBy(identity, newFields); ok {
			return oldNames, newNames, true
		}
	}
	return nil, nil, false
}

// plainNames are the texts of elements that are neither objects nor lists.
func plainNames(list []json.RawMessage) ([]string, bool) {
	names := make([]string, 0, len(list))
	for _, element := range list {
		if element[0] == '{' || element[0] == '[' {
			return nil, false
		}
		names = append(names, string(element))
	}
	return names, distinct(names)
}

// fieldsOf takes every element apart, if all are objects.
func fieldsOf(list []json.RawMessage) ([][]member, bool) {
	fields := make([][]member, 0, len(list))
	for _, element := range list {
		if element[0] != '{' {
			return nil, false
		}
		fields = append(fields, membersOf(element))
	}
	return fields, true
}

func namesBy(identity []json.RawMessage, list [][]member) ([]string, bool) {
	names := make([]string, 0, len(list))
	for _, fields := range list {
		name := ""
		for _, field := range identity {
			i := find(fields, field, 0)
			if i < 0 {
				return nil, false
			}
			name += string(fields[i].value) + " "
		}
		names = append(names, name)
	}
	return names, distinct(names)
}

func distinct(names []string) bool {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		seen[name] = true
	}
	return len(seen) == len(names)
}
