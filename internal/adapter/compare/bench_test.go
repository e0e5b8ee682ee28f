// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// BenchmarkDump compares one dump of 5000 Services with three endpoints each.
//
// Budget: 100 ms, so that an hour of dumps, one every two seconds, takes three
// minutes at most.
func BenchmarkDump(b *testing.B) {
	var s story
	for i := range 5000 {
		s.service(0, fmt.Sprintf("s%d", i), netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String(), nil)
	}
	for i := range 5000 {
		var all []string
		for j := range 3 {
			all = append(all, netip.AddrFrom4([4]byte{10, byte(j + 1), byte(i >> 8), byte(i)}).String())
		}
		s.slice(0, fmt.Sprintf("s%d", i), all...)
	}
	var d adapter.Dump
	c := New(Options{Lag: 5 * time.Second})
	engine, err := replay.New(replay.Options{Node: model.Node{Name: "n1"}, Observe: c.Step})
	if err != nil {
		b.Fatal(err)
	}
	defer engine.Close()
	for _, e := range s {
		engine.Apply(e)
	}
	engine.Flush()
	d = faithful(engine.Candidates())
	for b.Loop() {
		// The rows changed since the last dump: the worst case.
		c.index, c.moments = nil, []Moment{{Time: at(60), Read: func() adapter.Dump { return d }}}
		if found := c.Finish(); len(found) > 0 {
			b.Fatal(found[0])
		}
	}
}
