// SPDX-License-Identifier: Apache-2.0

// Package adaptertest is what the tests of all adapters share: dumps as text,
// and what holds for a parser whatever it reads. Nothing but tests imports it.
package adaptertest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Parser is the one function that every format has.
type Parser func(io.Reader) adapter.Dump

// Golden compares what a parser makes of a file in testdata with the text in
// the file beside it, or writes that.
func Golden(t *testing.T, name string, parse Parser, update bool) {
	t.Helper()
	recorded, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	have := Text(parse(bytes.NewReader(recorded)))
	golden := filepath.Join("testdata", name+".golden")
	if update {
		if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", name, diff)
	}
}

// Text writes a dump a line per frontend, pool and problem.
func Text(d adapter.Dump) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v\n", d.Source, d.Families)
	if d.Silent != "" {
		fmt.Fprintf(&b, "silent: %s\n", d.Silent)
	}
	for _, fe := range d.Frontends {
		fmt.Fprintf(&b, "%d: %s/%s %s", fe.Line, fe.Address, protocol(fe.Protocol), fe.Scope)
		fmt.Fprintf(&b, " %s %s:%s", fe.Type, fe.Service, fe.PortName)
		if fe.Action != adapter.Forward {
			fmt.Fprintf(&b, " %s", fe.Action)
		}
		if len(fe.Flags) > 0 {
			fmt.Fprintf(&b, " %q", fe.Flags)
		}
		fmt.Fprintf(&b, " ->%s\n", backends(fe.Backends, fe.More))
	}
	for _, p := range d.Pools {
		fmt.Fprintf(&b, "pool %s:%s ->%s\n", p.Service, p.PortName, backends(p.Backends, 0))
	}
	for _, p := range d.Problems {
		fmt.Fprintf(&b, "problem in line %d: %s\n", p.Line, p.Text)
	}
	return b.String()
}

func protocol(p model.Protocol) string {
	if p == 0 {
		return "?"
	}
	return p.String()
}

func backends(all []adapter.Backend, more int) string {
	var b strings.Builder
	for _, backend := range all {
		fmt.Fprintf(&b, " %s", backend.Address)
		if backend.State != adapter.Unknown {
			fmt.Fprintf(&b, "=%s", [...]string{"", "active", "terminating", "unusable", "retained", "draining"}[backend.State])
		}
		if backend.Weight != 0 {
			fmt.Fprintf(&b, "*%d", backend.Weight)
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, " +%d", more)
	}
	return b.String()
}

// Fuzz checks what holds of any text: a parser says the same twice, and what it
// found are addresses, in lines that are there.
func Fuzz(f *testing.F, parse Parser, seeds ...string) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := parse(bytes.NewReader(text))
		if diff := cmp.Diff(Text(d), Text(parse(bytes.NewReader(text)))); diff != "" {
			t.Fatalf("parsed twice, a text means two things:\n%s", diff)
		}
		lines := bytes.Count(text, []byte("\n")) + 2
		for _, fe := range d.Frontends {
			if !fe.Address.IsValid() || fe.Line < 1 || fe.Line > lines {
				t.Fatalf("a frontend without an address or a line: %+v", fe)
			}
			for _, b := range fe.Backends {
				if !b.Address.IsValid() {
					t.Fatalf("a backend without an address: %+v", fe)
				}
			}
		}
		for _, p := range d.Problems {
			if p.Line < 1 || p.Line > lines || p.Text == "" {
				t.Fatalf("a problem without a line or words: %+v", p)
			}
		}
	})
}
