// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/model"
)

//go:generate sh -c "clang -O2 -g -mcpu=v3 -Wall -Werror -target bpfel $BPF_INCLUDES -fdebug-prefix-map=$(pwd)=. -c testdata/reader.c -o testdata/reader.o"
//go:generate llvm-strip -g testdata/reader.o
//go:generate sh -c "sha256sum bpf/maps.h bpf/select.h testdata/reader.c testdata/reader.o > testdata/SHA256SUMS"

// The outcomes of a look-up, as in testdata/reader.c.
type outcomes struct {
	Forward, Missing, Foreign, Mixed, Changing, Refused uint64
}

func (o outcomes) total() uint64 {
	return o.Forward + o.Missing + o.Foreign + o.Mixed + o.Changing + o.Refused
}

// stressSettings are the constants of testdata/reader.c.
type stressSettings struct {
	program   string
	frontends uint32
	rivals    uint32
	pause     uint32
	packets   bool     // rather than sockets
	network   [12]byte // first bytes of the frontends' addresses; zero means IPv4
}

// stressReader is a program of testdata/reader.c over the pinned maps.
type stressReader struct {
	collection *ebpf.Collection
	program    *ebpf.Program
	repeat     uint32 // look-ups per system call
}

func newStressReader(t *testing.T, maps map[string]*ebpf.Map, s stressSettings) *stressReader {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec("testdata/reader.o")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{"frontends": s.frontends, "rivals": s.rivals, "pause": s.pause, "packets": s.packets}
	if s.network != ([12]byte{}) {
		settings["network"] = s.network
	}
	for name, value := range settings {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	replacements := map[string]*ebpf.Map{}
	for name, m := range maps {
		if spec.Maps[name] != nil {
			spec.Maps[name].MaxEntries = m.MaxEntries()
			replacements[name] = m
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		t.Fatalf("load the readers: %v", readable(err))
	}
	t.Cleanup(collection.Close)
	r := &stressReader{collection: collection, program: collection.Programs[s.program], repeat: 1 << 14}
	if s.pause > 0 {
		r.repeat = 1 << 8
	}
	return r
}

// run looks up on every processor until stop is closed.
func (r *stressReader) run(t *testing.T, stop <-chan struct{}) (wait func()) {
	var readers sync.WaitGroup
	for range runtime.NumCPU() {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := r.program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: r.repeat}); err != nil {
					t.Errorf("run the reader: %v", err)
					return
				}
			}
		})
	}
	return readers.Wait
}

func (r *stressReader) outcomes(t *testing.T) outcomes {
	t.Helper()
	var sums [6]uint64
	for i := range sums {
		sum, err := sumCounter(r.collection.Maps["stress_outcomes"], uint32(i))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sum
	}
	return outcomes{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]}
}

// stressWriter changes what readers look at, as fast as it can. Its backends
// encode their service and the generation of their set.
type stressWriter struct {
	*rig
	sets                     map[int]SetID
	flips, births, takeovers int
	maglev                   bool // sets go over to Maglev and back
}

func newStressWriter(t *testing.T, slots uint32) *stressWriter {
	t.Helper()
	w := &stressWriter{
		rig:  newRigWith(t, Config{MaglevTableSize: 251, Sizes: Sizes{Frontends: 1024, Sets: 1024, Backends: slots, Affinity: 2, Flows: 2, UDP: 2, Ranges: 2}}),
		sets: map[int]SetID{},
	}
	w.attach()
	return w
}

// flip publishes the next generation of a service's set.
func (w *stressWriter) flip(n int) {
	id, ok := w.sets[n]
	if !ok {
		id = w.newSet(fmt.Sprintf("s%d", n))
		w.sets[n] = id
	}
	w.flips++
	w.publishNext(id, n)
}

func (w *stressWriter) newSet(name string) SetID {
	for {
		id, err := w.createSet(service(name))
		if err == nil {
			return id
		}
		w.waitForRoom(err)
	}
}

func (w *stressWriter) publishNext(id SetID, n int) {
	generation := w.current.sets[id].Generation + 1
	address := netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)})
	s := &model.Set{Key: service("s")}
	for range 1 + generation%5 {
		s.Backends = append(s.Backends, model.Backend{AddrPort: netip.AddrPortFrom(address, uint16(generation))})
	}
	s.Draining = s.Backends[:generation%2]
	if w.maglev && generation%4 < 2 {
		s.Selection = model.SelectionMaglev
	}
	for {
		_, err := w.Publish(id, s)
		if err == nil {
			return
		}
		w.waitForRoom(err)
	}
}

// waitForRoom waits for the reclaimer, which is how room comes back.
func (w *stressWriter) waitForRoom(err error) {
	if !errors.Is(err, ErrNoRoom) {
		w.t.Fatal(err)
	}
	select {
	case <-w.Reclaimed():
	case <-time.After(10 * time.Second):
		w.t.Fatalf("nothing was reclaimed in 10 s: %v", err)
	}
}

// stressFrontend is frontend n of those that are looked up.
func stressFrontend(n int, id SetID) Frontend {
	a := netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})
	return Frontend{Key: model.FrontendKey{Address: a, Port: 80, Protocol: model.TCP}, Set: id}
}

// bearAndBury creates a set with frontends of its own and takes it away
// again: elements of the hash, set ids, owners and slots are all recycled.
func (w *stressWriter) bearAndBury(round int) {
	const each = 64
	id := w.newSet("mortal")
	w.publishNext(id, 1<<20+round&0xffff)
	born := make([]Frontend, each)
	for i := range born {
		a := netip.AddrFrom4([4]byte{10, 97, byte(round), byte(i)})
		born[i] = Frontend{Key: model.FrontendKey{Address: a, Port: 80, Protocol: model.TCP}, Set: id}
	}
	w.insert(born...)
	w.delete(born...)
	w.release(id)
	w.births += each
}

// stressTime is how long each part of the stress test runs.
const stressTime = 2500 * time.Millisecond

// stress runs change again and again under the eyes of the readers.
func (w *stressWriter) stress(t *testing.T, r *stressReader, change func(round int)) outcomes {
	t.Helper()
	stop := make(chan struct{})
	wait := r.run(t, stop)
	round := 0
	for end := time.Now().Add(stressTime); time.Now().Before(end); round++ {
		change(round)
	}
	close(stop)
	wait()
	o := r.outcomes(t)
	t.Logf("%d look-ups under %d flips, %d births and deaths, %d takeovers in %d rounds: %+v",
		o.total(), w.flips, w.births, w.takeovers, round, o)
	return o
}

// heldLong is a pause in which a writer can do many things.
const heldLong = 10000

// Of slots there are enough that a writer hardly ever waits for the reclaimer,
// or so few that each is used again as soon as it may be.
const (
	manySlots = 16384
	fewSlots  = 1024
)

func TestNoReaderSeesAMixedForeignOrMissingSet(t *testing.T) {
	const frontends = 64
	for _, c := range []struct{ pause, slots uint32 }{{0, manySlots}, {heldLong, fewSlots}} {
		t.Run(fmt.Sprintf("a Service keeps its address while its set flips and others come and go, pause %d", c.pause), func(t *testing.T) {
			w := newStressWriter(t, c.slots)
			for n := range frontends {
				w.flip(n)
				w.insert(stressFrontend(n, w.sets[n]))
			}
			r := newStressReader(t, w.current.maps, stressSettings{program: "stress_reader", frontends: frontends, pause: c.pause})
			o := w.stress(t, r, func(round int) {
				for n := range frontends {
					w.flip(n)
				}
				w.bearAndBury(round)
			})
			if o != (outcomes{Forward: o.Forward}) || o.Forward == 0 {
				t.Errorf("outcomes = %+v, want every look-up forwarded", o)
			}
		})
		t.Run(fmt.Sprintf("an address changes hands between Services, pause %d", c.pause), func(t *testing.T) {
			w := newStressWriter(t, c.slots)
			r := newStressReader(t, w.current.maps, stressSettings{program: "stress_reader", frontends: frontends, rivals: frontends, pause: c.pause})
			o := w.stress(t, r, w.contest(frontends, frontends, func(taken []Frontend) { w.insert(taken...) }))
			if o != (outcomes{Forward: o.Forward}) || o.Forward == 0 {
				t.Errorf("outcomes = %+v, want every look-up forwarded", o)
			}
		})
	}
}

func TestNoPacketSeesAMixedSetWhileItsServiceGoesOverToMaglevAndBack(t *testing.T) {
	const frontends = 64
	for _, c := range []struct{ pause, slots uint32 }{{0, 4 * manySlots}, {heldLong, 8 * fewSlots}} {
		for _, packets := range []bool{true, false} {
			t.Run(fmt.Sprintf("pause %d, packets %v", c.pause, packets), func(t *testing.T) {
				w := newStressWriter(t, c.slots)
				w.maglev = true
				for n := range frontends {
					w.flip(n)
					w.insert(stressFrontend(n, w.sets[n]))
				}
				r := newStressReader(t, w.current.maps, stressSettings{
					program: "stress_reader", frontends: frontends, pause: c.pause, packets: packets,
				})
				o := w.stress(t, r, func(round int) {
					for n := range frontends {
						w.flip(n)
					}
					w.bearAndBury(round)
				})
				if o != (outcomes{Forward: o.Forward}) || o.Forward == 0 {
					t.Errorf("outcomes = %+v, want every look-up forwarded", o)
				}
			})
		}
	}
}

// What keeps foreign sets at zero in the test above is that programs compare
// seal and owner. Without it, the same readers and changes show some, but for a
// writer that waits after each element that it replaces.
func TestForeignSetsAreSeenWithoutChecksAndWaiting(t *testing.T) {
	const frontends = 64
	for name, c := range map[string]struct {
		program string
		waits   bool
		foreign bool
	}{
		"a program that checks needs no writer that waits":     {"stress_reader", false, false},
		"a program that trusts needs one that waits each time": {"stress_trusting_reader", true, false},
		"a program that trusts sees foreign sets otherwise":    {"stress_trusting_reader", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStressWriter(t, manySlots)
			r := newStressReader(t, w.current.maps, stressSettings{program: c.program, frontends: frontends, rivals: frontends, pause: heldLong})
			change := w.contest(frontends, frontends, w.overwrite)
			if c.waits {
				change = w.contest(frontends, 8, w.insertEach)
			}
			o := w.stress(t, r, change)
			if o.Forward == 0 || (o.Foreign > 0) != c.foreign {
				t.Errorf("outcomes = %+v, want foreign ones: %v", o, c.foreign)
			}
		})
	}
}

// insertEach replaces elements as the product does, but waits after each.
func (w *stressWriter) insertEach(taken []Frontend) {
	for _, f := range taken {
		w.insert(f)
	}
}

// overwrite replaces elements of the hash at once, as writers do that know
// nothing of who may be looking at them.
func (w *stressWriter) overwrite(taken []Frontend) {
	keys, values := make([]frontendKey, len(taken)), make([]frontend, len(taken))
	for i, f := range taken {
		keys[i] = keyOf(f.Key)
		values[i] = w.value(keys[i], f.Set)
	}
	if _, err := w.current.maps[mapFrontends].BatchUpdate(keys, values, nil); err != nil {
		w.t.Fatal(err)
	}
}

// contest returns a change in which some frontends go over to their rivals by
// the given way of writing, while sets flip and others come and go.
func (w *stressWriter) contest(frontends, each int, take func([]Frontend)) func(round int) {
	for n := range frontends {
		w.flip(n)
		w.flip(n + frontends)
		w.insert(stressFrontend(n, w.sets[n]))
	}
	return func(round int) {
		taken := make([]Frontend, each)
		for i := range taken {
			n := (round*each + i) % frontends
			rival := (round*each/frontends + 1) % 2
			w.flip(n + frontends*rival)
			taken[i] = stressFrontend(n, w.sets[n+frontends*rival])
		}
		take(taken)
		w.takeovers += each
		w.bearAndBury(round)
	}
}

func TestTheStressReadersAreCompiledFromTheirSources(t *testing.T) {
	sums, err := os.ReadFile("testdata/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for line := range strings.Lines(string(sums)) {
		want, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files++
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != want {
			t.Errorf("%s differs from what testdata/reader.o was last compiled from: run `make generate`", path)
		}
	}
	if files != 4 {
		t.Errorf("testdata/SHA256SUMS names %d files, want 4", files)
	}
}
