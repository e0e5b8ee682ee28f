// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

func (r *rig) reader() *Reader {
	r.t.Helper()
	reader, err := OpenReader(r.cfg.PinPath)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { reader.Close() })
	return reader
}

func (r *rig) kernel() api.Kernel {
	r.t.Helper()
	kernel, err := r.reader().Kernel()
	if err != nil {
		r.t.Fatal(err)
	}
	return kernel
}

func TestAReaderSeesWhatWasPublished(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	k := vip("web")
	k.Family = model.IPv6
	id := r.create(k)
	s := withRanges(forward(k, "[2001:db8::1]:8080", "[2001:db8::2]:8080"), "2001:db8:1::/48", "2001:db8:2::1/128")
	s.Draining = backendsOf("[2001:db8::9]:8080")
	s.AffinitySeconds = 10800
	r.publish(id, s)
	f := Frontend{Key: model.FrontendKey{Address: netip.MustParseAddr("2001:db8:f::1"), Port: 443, Protocol: model.UDP, Scope: model.ScopeExternal}, Set: id}
	r.insert(f)
	dropped := service("dropped")
	unused := r.create(dropped)
	r.publish(unused, &model.Set{Key: dropped, Action: model.ActionDrop})
	want := api.Kernel{
		SchemaVersion: api.SchemaVersion, PinPath: r.cfg.PinPath, Layout: LayoutVersion,
		Entries: []api.KernelEntry{{
			Address: "2001:db8:f::1", Port: 443, Protocol: "UDP", Scope: "external",
			Service: "default/web", PortName: "http", Role: "vip-internal",
			Set: uint32(id), Owner: r.shadows[id].owner, Generation: 1, Base: r.shadows[id].base,
			Action: "forward", AffinitySeconds: 10800,
			SourceRanges: []string{"2001:db8:1::/48", "2001:db8:2::1/128"},
			Backends:     []api.KernelBackend{{Address: "2001:db8::1", Port: 8080}, {Address: "2001:db8::2", Port: 8080}},
			Draining:     []api.KernelBackend{{Address: "2001:db8::9", Port: 8080}},
		}},
		UnusedSets: []api.KernelEntry{{
			Protocol: "TCP", Service: "default/dropped", PortName: "http", Role: "cluster-ip",
			Set: uint32(unused), Owner: r.shadows[unused].owner, Generation: 1, Action: "drop",
			SourceRanges: []string{}, Backends: []api.KernelBackend{}, Draining: []api.KernelBackend{},
		}},
	}
	if diff := cmp.Diff(want, r.kernel()); diff != "" {
		t.Errorf("kernel (-want +got):\n%s", diff)
	}
}

func TestEntriesAreSortedByAddressBytesPortProtocolAndScope(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.published("web")
	for _, a := range []string{"10.96.0.2:80", "[2001:db8::1]:80", "10.96.0.10:80", "0.0.0.0:30080", "10.96.0.2:443", "[::]:30080"} {
		r.insert(at(a, id))
	}
	var got []string
	for _, e := range r.kernel().Entries {
		got = append(got, netip.AddrPortFrom(netip.MustParseAddr(e.Address), e.Port).String())
	}
	want := "0.0.0.0:30080 [::]:30080 10.96.0.2:80 10.96.0.2:443 10.96.0.10:80 [2001:db8::1]:80"
	if strings.Join(got, " ") != want {
		t.Errorf("order %q, want %q", strings.Join(got, " "), want)
	}
}

func TestGarbageIsAProblemOfItsEntryOnly(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(r *rig, g *generation, id SetID)
		want   string
	}{
		"an element that does not fit its key": {func(r *rig, _ *generation, _ SetID) { r.putForeign("10.96.0.1:80", frontend{}) }, "does not fit its key"},
		"a seal that does not fit": {func(r *rig, _ *generation, id SetID) {
			f := r.value(keyOf(at("10.96.0.1:80", id).Key), id)
			f.Seal++
			r.putForeign("10.96.0.1:80", f)
		}, "does not fit its key"},
		"a set that does not exist": {func(r *rig, _ *generation, _ SetID) {
			r.putForeign("10.96.0.1:80", frontendOf(keyOf(at("10.96.0.1:80", 0).Key), 64, 1))
		}, "points to set 64, and there are only 64"},
		"a set of another owner":    {func(_ *rig, g *generation, id SetID) { g.sets[id].Owner = 99 }, "belongs to owner 99"},
		"a count without an extent": {func(_ *rig, g *generation, id SetID) { g.sets[id].Word = packWord(0, 0, 2) }, "counts 2 backends and has no extent"},
		"an extent out of range":    {func(_ *rig, g *generation, id SetID) { g.sets[id].Word = packWord(1024, 0, 2) }, "starts at slot 1024, and there are only 1024"},
		"no header":                 {func(r *rig, g *generation, id SetID) { g.slots[r.shadows[id].base] = slot{} }, "is not the header"},
		"another count":             {func(_ *rig, g *generation, id SetID) { g.sets[id].Word++ }, "counts 3 backends, the header of its extent 2 of 2"},
		"a total out of range": {func(r *rig, g *generation, id SetID) {
			g.slots[r.shadows[id].base] = header{selectable: 2, total: 1<<32 - 1, generation: 1, length: 3}.slot(r.shadows[id].owner)
		}, "header of its extent 2 of 4294967295"},
		"a foreign slot": {func(r *rig, g *generation, id SetID) { g.slots[r.shadows[id].base+2].Owner = 99 }, "belongs to owner 99"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.attach()
			web, other := service("web"), r.published("other")
			id := r.create(web)
			r.publish(id, forward(web, "10.0.0.1:80", "10.0.0.2:80"))
			r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", other))
			c.damage(r, r.intruder(), id)
			entries := r.kernel().Entries
			if len(entries) != 2 || !strings.Contains(entries[0].Problem, c.want) || entries[1].Problem != "" {
				t.Errorf("entries %+v, want a problem of the first: %q", entries, c.want)
			}
		})
	}
}

func TestMapsOfGarbageAreReadWithoutPanic(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	g := r.intruder()
	for seed := range uint64(20) {
		scribble(g.sets, seed)
		scribble(g.slots, seed+100)
		scribble(g.names, seed+200)
		for id := range g.sets { // and some that come further than the first check
			if id%2 == 0 {
				g.sets[id].Word &= 1<<40 - 1
				g.slots[id%8].Kind = slotHeader
			}
		}
		for _, e := range r.kernel().Entries {
			if e.Problem == "" {
				t.Errorf("seed %d: entry %+v has no problem", seed, e)
			}
		}
	}
}

func TestAReaderNeverShowsAMixedSet(t *testing.T) {
	const services = 8
	w := newStressWriter(t, manySlots)
	for n := range services {
		w.flip(n)
		w.insert(stressFrontend(n, w.sets[n]))
	}
	reader := w.reader()
	stop, stopped := make(chan struct{}), make(chan struct{})
	reads := 0
	go func() {
		defer close(stopped)
		for ; ; reads++ {
			select {
			case <-stop:
				return
			default:
			}
			kernel, err := reader.Kernel()
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range kernel.Entries {
				if wrong := checkStressEntry(e); wrong != "" {
					t.Errorf("%s: %+v", wrong, e)
					return
				}
			}
		}
	}()
	for end := time.Now().Add(stressTime); time.Now().Before(end); {
		for n := range services {
			w.flip(n)
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d reads of all sets under %d flips", reads, w.flips)
	if reads == 0 {
		t.Error("nothing was read")
	}
}

// checkStressEntry compares an entry with what stressWriter publishes at the
// entry's generation.
func checkStressEntry(e api.KernelEntry) string {
	service := netip.MustParseAddr(e.Address).As4()
	service[0], service[1] = 11, 0
	want := api.KernelBackend{Address: netip.AddrFrom4(service).String(), Port: uint16(e.Generation)}
	if e.Problem != "" {
		return "a problem"
	}
	if len(e.Backends) != int(1+e.Generation%5) || len(e.Draining) != int(e.Generation%2) {
		return fmt.Sprintf("%d backends, %d draining", len(e.Backends), len(e.Draining))
	}
	for _, b := range append(e.Backends, e.Draining...) {
		if b != want {
			return fmt.Sprintf("a backend %v, want %v", b, want)
		}
	}
	return ""
}

func TestRefusalsAreCountedMostFirstWithTheirService(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	r.insert(at("10.96.0.1:80", r.published("web")))
	refused := r.intruder().maps[mapRefused]
	for _, c := range []struct {
		address string
		reason  uint8
		count   uint64
	}{{"10.96.0.1", 1, 3}, {"10.96.0.2", 2, 7}, {"2001:db8::1", 77, 5}} {
		k := refusalKey{Address: addressOf(netip.MustParseAddr(c.address)), Port: portOf(80), Protocol: 6, Reason: c.reason}
		if err := refused.Put(k, c.count); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.reader().Refusals()
	if err != nil {
		t.Fatal(err)
	}
	want := []api.RefusalCount{
		{Address: "10.96.0.2", Port: 80, Protocol: "TCP", Reason: reasonText(2), Count: 7},
		{Address: "2001:db8::1", Port: 80, Protocol: "TCP", Reason: "reason 77", Count: 5},
		{Address: "10.96.0.1", Port: 80, Protocol: "TCP", Service: "default/web", Reason: reasonText(1), Count: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

func TestAReaderWritesNothing(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	before := r.dump()
	reader := r.reader()
	if _, err := reader.Kernel(); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Refusals(); err != nil {
		t.Fatal(err)
	}
	expectSame(t, before, r.dump())
}
