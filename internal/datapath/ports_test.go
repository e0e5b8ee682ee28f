// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"strings"
	"testing"
)

func TestPortRanges(t *testing.T) {
	for text, want := range map[string]Ports{"61000-65535": {61000, 65535}, "1024-1024": {1024, 1024}} {
		var p Ports
		if err := p.UnmarshalText([]byte(text)); err != nil || p != want || p.String() != text {
			t.Errorf("%q is read as %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "61000", "61000-", "-1", "1-2", "2000-1024", "61000-65536", "a-b", "61000-62000-63000", " 61000-62000"} {
		var p Ports
		if err := p.UnmarshalText([]byte(text)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is read as %v, %v; want an error of one line", text, p, err)
		}
	}
	for _, c := range []struct {
		a, b, both Ports
		ok         bool
	}{
		{Ports{61000, 65535}, Ports{32768, 60999}, Ports{}, false},
		{Ports{60000, 65535}, Ports{32768, 60999}, Ports{60000, 60999}, true},
		{Ports{1024, 65535}, Ports{32768, 60999}, Ports{32768, 60999}, true},
		{Ports{40000, 40001}, Ports{32768, 60999}, Ports{40000, 40001}, true},
	} {
		if both, ok := c.a.Overlap(c.b); ok != c.ok || ok && both != c.both {
			t.Errorf("%v and %v share %v, %v; want %v, %v", c.a, c.b, both, ok, c.both, c.ok)
		}
	}
}

func FuzzPorts(f *testing.F) {
	for _, text := range []string{"61000-65535", "1024-1024", "0-0", "5-", "--", "65535-1024", "99999-99999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var p Ports
		if err := p.UnmarshalText([]byte(text)); err != nil {
			if p != (Ports{}) {
				t.Errorf("%q: %v, and yet %v", text, err, p)
			}
			return
		}
		var again Ports
		if err := again.UnmarshalText([]byte(p.String())); err != nil || again != p || p.First < firstUnprivileged || p.Last < p.First {
			t.Errorf("%q is read as %v, which is read as %v, %v", text, p, again, err)
		}
	})
}
