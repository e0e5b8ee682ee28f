// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

func states(t *testing.T, j *Journal, kind Kind) (texts []string) {
	t.Helper()
	for e, err := range j.States(t.Context(), kind) {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, e.Namespace+"/"+e.Name+"@"+e.ResourceVersion)
	}
	return texts
}

func TestAJournalTellsWhereANewRunGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := create(t, path, Options{})
	appendAll(t, j, story()...)
	newer := services
	newer.Version = "v2"

	t.Run("the last states are those of objects that were still there", func(t *testing.T) {
		if got := fmt.Sprint(states(t, j, slicesOf)); got != "[default/kubernetes@12]" {
			t.Error(got)
		}
	})
	t.Run("another version of a kind is the same kind", func(t *testing.T) {
		if got := fmt.Sprint(states(t, j, newer)); got != "[default/kubernetes@10]" {
			t.Error(got)
		}
	})
	t.Run("a state is found by its object's UID", func(t *testing.T) {
		e, found, err := j.State(t.Context(), slicesOf, "default", "kubernetes", "u2")
		if err != nil || !found || e.ResourceVersion != "12" || string(e.Content) != `{"endpoints":null}` {
			t.Errorf("%+v, %v, %v", e, found, err)
		}
		if _, found, err := j.State(t.Context(), slicesOf, "default", "kubernetes", "u9"); found || err != nil {
			t.Errorf("of another object: %v, %v", found, err)
		}
	})
	t.Run("a run that was killed lasted until its last event", func(t *testing.T) {
		until, version, found, err := j.Watched(t.Context(), services)
		if want := story()[3].Time; err != nil || !found || version != "13" || until.Before(want) {
			t.Errorf("until %s at %s, found %v: %v", until, version, found, err)
		}
	})
	t.Run("a kind of which nothing is known was not watched", func(t *testing.T) {
		if _, _, found, err := j.Watched(t.Context(), Kind{Resource: "pods"}); found || err != nil {
			t.Error(found, err)
		}
	})
	t.Run("a run that knew of a kind only a gap has watched it until it ended", func(t *testing.T) {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		second := create(t, path, Options{})
		if err := second.AppendGap(t.Context(), Gap{Kind: services, Began: start, Ended: start.Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		until, version, found, err := create(t, path, Options{}).Watched(t.Context(), services)
		if err != nil || !found || until.Before(before) || version != "13" {
			t.Errorf("until %s at %s, found %v: %v", until, version, found, err)
		}
	})
}

func TestAGapGoesOnWhereItBegan(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	for minutes := range time.Duration(3) {
		for _, began := range []time.Time{start, start.Add(time.Second)} {
			if err := j.AppendGap(t.Context(), Gap{Kind: services, Began: began, Ended: start.Add((minutes + 1) * time.Minute), Reason: "forbidden"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	gaps, err := j.Gaps(t.Context(), Filter{})
	if err != nil || len(gaps) != 2 || !gaps[0].Ended.Equal(start.Add(3*time.Minute)) {
		t.Errorf("%+v, %v", gaps, err)
	}
}

// Budget: 100 µs, for what was evicted from the memory of a recorder with many
// objects is read back so.
func BenchmarkState(b *testing.B) {
	j := create(b, filepath.Join(b.TempDir(), "j"), Options{})
	for n := 0; n < 50_000; n += 1000 {
		appendAll(b, j, load(n, 1000, 1000, 1500)...)
	}
	last := load(0, 1, 1000, 1500)[0]
	b.ResetTimer()
	for range b.N {
		if _, found, err := j.State(b.Context(), last.Kind, last.Namespace, last.Name, last.UID); err != nil || !found {
			b.Fatal(found, err)
		}
	}
}

func TestEqualValuesGiveEqualTextThatIsTheStandardLibrarys(t *testing.T) {
	for _, text := range []string{`null`, `true`, `"a\"b\\c\n<&>\u2028é"`, `1.50`, `[]`, `{}`, `[1,"x",{"b":[],"a":null}]`, `{"z":1,"a":{"é":2}}`} {
		value, err := decode(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(Encode(value)), string(standard(value)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
