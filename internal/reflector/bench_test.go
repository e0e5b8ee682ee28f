// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
)

func BenchmarkConvertService(b *testing.B) {
	c, in := new(Converter), web()
	b.ReportAllocs()
	for b.Loop() {
		if event, _ := c.Event(in); event.gone() {
			b.Fatal("refused")
		}
	}
}

func BenchmarkConvertEndpointSlice(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			c, in := new(Converter), largeSlice(n)
			b.ReportAllocs()
			for b.Loop() {
				if event, _ := c.Event(in); event.gone() {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkHeld reports the memory that stays in use per object, or per
// endpoint, once the API's objects are garbage.
func BenchmarkHeld(b *testing.B) {
	c := new(Converter)
	b.Run("service", func(b *testing.B) {
		heldBytes(b, "service", 1, func(i int) Event {
			in := web()
			in.Name = fmt.Sprintf("web-%d", i)
			event, _ := c.Event(in)
			return event
		})
	})
	b.Run("slice of 100", func(b *testing.B) {
		heldBytes(b, "endpoint", 100, func(int) Event {
			event, _ := c.Event(largeSlice(100))
			return event
		})
	})
}

// heldBytes measures what a unit takes while a thousand events are held.
func heldBytes(b *testing.B, unit string, units int, convert func(i int) Event) {
	const n = 1000
	var before, after runtime.MemStats
	events := make([]Event, n)
	for b.Loop() {
		clear(events)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range events {
			events[i] = convert(i)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
	}
	runtime.KeepAlive(events)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(n*units), "B/"+unit)
}

func BenchmarkParseManifest(b *testing.B) {
	p, err := newParser()
	if err != nil {
		b.Fatal(err)
	}
	slice := largeSlice(10_000)
	slice.APIVersion, slice.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	large, err := json.Marshal(slice)
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{"service": []byte(service("a", 80)), "slice of 10000 in JSON": large} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if m := p.parse("f", text); len(m.objects) != 1 {
					b.Fatal(m.problems)
				}
			}
		})
	}
}
