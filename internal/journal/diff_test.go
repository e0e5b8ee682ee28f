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
	"testing"

	"pgregory.net/rapid"
)

// canonical is a text as Encode writes it.
func canonical(text json.RawMessage) (json.RawMessage, error) {
	if len(text) == 0 {
		return nil, nil
	}
	value, err := decode(text)
	if err != nil {
		return nil, err
	}
	return Encode(value), nil
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

// apply takes the steps of a diff, and holds each against the state it finds.
func apply(state json.RawMessage, changes []Change) (json.RawMessage, error) {
	root, err := decode(state)
	if err != nil {
		return nil, err
	}
	absent := len(state) == 0
	for _, c := range changes {
		if c.Path == "" {
			if absent != (c.Op == "add") || !absent && string(Encode(root)) != string(c.Old) {
				return nil, fmt.Errorf("%v does not fit the whole", c)
			}
			absent = c.Op == "remove"
			if root, err = decode(c.New); err != nil {
				return nil, err
			}
			continue
		}
		if root, err = at(root, strings.Split(c.Path, "/")[1:], c); err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.Op, c.Path, err)
		}
	}
	if absent {
		return nil, nil
	}
	return Encode(root), nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

func at(node any, path []string, c Change) (any, error) {
	key := unescape.Replace(path[0])
	var have any
	there := false
	list, isList := node.([]any)
	fields, _ := node.(map[string]any)
	i := 0
	if isList {
		var err error
		if i, err = strconv.Atoi(key); err != nil || i > len(list) {
			return nil, fmt.Errorf("no index: %v", err)
		}
		if there = i < len(list); there {
			have = list[i]
		}
	} else {
		have, there = fields[key]
	}
	value, err := decode(c.New)
	if err != nil {
		return nil, err
	}
	switch {
	case len(path) > 1:
		if value, err = at(have, path[1:], c); err != nil {
			return nil, err
		}
	case c.Op != "add" && (!there || string(Encode(have)) != string(c.Old)):
		return nil, fmt.Errorf("finds %s instead of %s", Encode(have), c.Old)
	case isList && c.Op == "add":
		return slices.Insert(list, i, value), nil
	case isList && c.Op == "remove":
		return slices.Delete(list, i, i+1), nil
	case c.Op == "add" && there:
		return nil, fmt.Errorf("it is there")
	case c.Op == "remove":
		delete(fields, key)
		return fields, nil
	}
	if isList {
		list[i] = value
		return list, nil
	}
	fields[key] = value
	return fields, nil
}

func TestADiffSaysWhatChangedAndNoMore(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"nothing":                                   {`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":2}]}`, ``},
		"an object that comes":                      {``, `{"a":1}`, `add "" {"a":1}`},
		"an object that goes":                       {`{"a":1}`, ``, `remove "" {"a":1}`},
		"a field that goes":                         {`{"a":1,"b":2}`, `{"a":1}`, `remove "/b" 2`},
		"names are escaped":                         {`{"a/b~c":1}`, `{"a/b~c":2}`, `replace "/a~1b~0c" 1 2`},
		"null is a value":                           {`{"endpoints":[{"addresses":["10.0.0.1"]}]}`, `{"endpoints":null}`, `replace "/endpoints" [{"addresses":["10.0.0.1"]}] null`},
		"elements are compared by name":             {`[{"name":"a","v":1},{"name":"b","v":2}]`, `[{"name":"b","v":3}]`, "remove \"/0\" {\"name\":\"a\",\"v\":1}\nreplace \"/0/v\" 2 3"},
		"ports without a name by port and protocol": {`[{"port":53,"protocol":"UDP","n":1},{"port":53,"protocol":"TCP","n":1}]`, `[{"port":53,"protocol":"UDP","n":1},{"port":53,"protocol":"TCP","n":2}]`, `replace "/1/n" 1 2`},
		"endpoints by their addresses":              {`[{"addresses":["10.0.0.1"],"r":true},{"addresses":["10.0.0.2"],"r":true}]`, `[{"addresses":["10.0.0.2"],"r":true}]`, `remove "/0" {"addresses":["10.0.0.1"],"r":true}`},
		"plain elements by their value":             {`["a","b","c"]`, `["a","c"]`, `remove "/1" "b"`},
		"an order that changed is a new list":       {`["a","b"]`, `["b","a"]`, `replace "" ["a","b"] ["b","a"]`},
		"a name twice tells nothing apart":          {`[{"name":"a","v":1},{"name":"a","v":2}]`, `[{"name":"a","v":3}]`, `replace "" [{"name":"a","v":1},{"name":"a","v":2}] [{"name":"a","v":3}]`},
		"a name twice, but one of them stays":       {`[{"name":"a"},{"name":"a"}]`, `[{"name":"a"}]`, `remove "/1" {"name":"a"}`},
		"large numbers stay exact":                  {`9007199254740993`, `9007199254740992`, `replace "" 9007199254740993 9007199254740992`},
	} {
		t.Run(name, func(t *testing.T) {
			old, err := canonical(json.RawMessage(c.old))
			if err != nil {
				t.Fatal(err)
			}
			new, err := canonical(json.RawMessage(c.new))
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, c := range Diff(old, new) {
				values := strings.TrimSpace(string(c.Old) + " " + string(c.New))
				lines = append(lines, fmt.Sprintf("%s %q %s", c.Op, c.Path, values))
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// texts are JSON values in which lists with names, doubles and orders occur.
func texts() *rapid.Generator[any] {
	word := rapid.SampledFrom([]any{"a", "b/~", "c", json.Number("1"), json.Number("1.0"), nil, true})
	key := rapid.SampledFrom([]string{"name", "key", "port", "protocol", "addresses", "a/b", "~", ""})
	value := word
	for range 3 {
		below := value
		value = rapid.OneOf(word,
			rapid.Map(rapid.MapOfN(key, below, 0, 4), func(m map[string]any) any { return m }),
			rapid.Map(rapid.SliceOfN(below, 0, 4), func(l []any) any { return l }))
	}
	return value
}

func checkDiff(old, new json.RawMessage) error {
	changes := Diff(old, new)
	got, err := apply(old, changes)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, new) {
		return fmt.Errorf("%s and %v give %s, want %s", old, changes, got, new)
	}
	return nil
}

func TestApplyingADiffGivesTheNewState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if err := checkDiff(Encode(texts().Draw(t, "old")), Encode(texts().Draw(t, "new"))); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzDiff(f *testing.F) {
	f.Add(`{"a":[{"name":"x","v":1}]}`, `{"a":[{"name":"y"},{"name":"x"}]}`)
	f.Add(``, `null`)
	f.Add(`[1,1]`, `[1]`)
	f.Fuzz(func(t *testing.T, oldText, newText string) {
		old, errOld := canonical(json.RawMessage(oldText))
		new, errNew := canonical(json.RawMessage(newText))
		if errOld != nil || errNew != nil {
			return // Encode writes no such text
		}
		if err := checkDiff(old, new); err != nil {
			t.Fatalf("%q, %q: %v", old, new, err)
		}
	})
}
