// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/model"
)

// published creates and publishes a set of one backend.
func (r *rig) published(name string) SetID {
	r.t.Helper()
	k := service(name)
	id := r.create(k)
	r.publish(id, forward(k, "10.0.0.1:80"))
	return id
}

func TestInsertFrontendsWritesOnlyDifferences(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.published("web")
	r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id))
	want := []string{"10.96.0.1:80 default/web forward 10.0.0.1:80", "10.96.0.2:80 default/web forward 10.0.0.1:80"}
	r.expectEntries(want...)

	// Were it written again, what someone else changed would be repaired.
	g := r.intruder()
	k := keyOf(at("10.96.0.1:80", id).Key)
	if err := g.maps[mapFrontends].Delete(k); err != nil {
		t.Fatal(err)
	}
	r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id))
	r.expectEntries(want[1:]...)
}

func TestScopesAndProtocolsAreFrontendsOfTheirOwn(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id, other := r.published("web"), r.published("dns")
	internal := at("10.96.0.1:80", id)
	internal.Key.Scope = model.ScopeInternal
	external := internal
	external.Key.Scope = model.ScopeExternal
	udp := at("10.96.0.1:80", other)
	udp.Key.Protocol = model.UDP
	r.insert(internal, external, udp)
	reader, err := OpenReader(r.cfg.PinPath)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	kernel, err := reader.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range kernel.Entries {
		got = append(got, e.Protocol+" "+e.Scope+" "+e.Service)
	}
	if want := "TCP external default/web, TCP internal default/web, UDP internal default/dns"; strings.Join(got, ", ") != want {
		t.Errorf("entries %q, want %q (R27)", strings.Join(got, ", "), want)
	}
	// Rows of scope all and internal never exist both, and share the key.
	all := at("10.96.0.1:80", id)
	if keyOf(all.Key) != keyOf(internal.Key) || keyOf(all.Key) == keyOf(external.Key) {
		t.Error("scope all is not the key that internal traffic looks up")
	}
}

func TestDeleteFrontendsIgnoresWhatIsNotThere(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.published("web")
	r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id), at("10.96.0.3:80", id))
	if err := r.intruder().maps[mapFrontends].Delete(keyOf(at("10.96.0.1:80", id).Key)); err != nil {
		t.Fatal(err)
	}
	r.delete(at("10.96.0.9:80", id), at("10.96.0.1:80", id), at("10.96.0.2:80", id))
	r.expectEntries("10.96.0.3:80 default/web forward 10.0.0.1:80")
	r.delete()
	r.delete(at("10.96.0.3:80", id), at("10.96.0.3:80", id))
	r.expectEntries("unused default/web ")
}

func TestAnAddressTakenOverIsNotTheLosersToDelete(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	loser, winner := r.published("loser"), r.published("winner")
	r.insert(at("10.96.0.1:80", loser), at("10.96.0.2:80", loser))
	r.insert(at("10.96.0.1:80", winner))
	want := []string{"10.96.0.1:80 default/winner forward 10.0.0.1:80", "10.96.0.2:80 default/loser forward 10.0.0.1:80"}
	r.expectEntries(want...)
	r.delete(at("10.96.0.1:80", loser))
	r.expectEntries(want...)
	r.delete(at("10.96.0.2:80", loser))
	r.release(loser)
	r.expectEntries(want[0])
	// And back, while the winner goes.
	r.insert(at("10.96.0.1:80", r.published("loser")))
	r.delete(at("10.96.0.1:80", winner))
	r.expectEntries("10.96.0.1:80 default/loser forward 10.0.0.1:80", "unused default/winner ")
}

func TestAFullFrontendsMapTakesWhatFits(t *testing.T) {
	sizes := smallSizes()
	sizes.Frontends = 4
	r := newRig(t, sizes)
	r.attach()
	id := r.published("web")
	var frontends []Frontend
	for i := range 7 {
		frontends = append(frontends, at(fmt.Sprintf("10.96.0.%d:80", i), id))
	}
	errs := r.InsertFrontends(frontends)
	if len(errs) != len(frontends) {
		t.Fatalf("%d errors for %d frontends", len(errs), len(frontends))
	}
	var fit, rest []Frontend
	for i, err := range errs {
		if err == nil {
			fit = append(fit, frontends[i])
			continue
		}
		rest = append(rest, frontends[i])
		for _, part := range []string{keyOf(frontends[i].Key).String(), "--max-frontends", "4 entries"} {
			if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
	}
	if got := len(r.entries()); len(fit) != 4 || got != 4 {
		t.Fatalf("%d frontends are said to fit, %d are in the kernel, want 4", len(fit), got)
	}
	// A full map still lets an address change hands.
	other := r.published("other")
	moved := fit[3]
	moved.Set = other
	r.insert(moved)

	r.delete(fit[:3]...)
	r.insert(rest...)
	r.expectEntries(
		fmt.Sprintf("%s default/other forward 10.0.0.1:80", strings.TrimSuffix(keyOf(moved.Key).String(), "/TCP")),
		"10.96.0.4:80 default/web forward 10.0.0.1:80",
		"10.96.0.5:80 default/web forward 10.0.0.1:80",
		"10.96.0.6:80 default/web forward 10.0.0.1:80")
}

func TestABatchThatTheKernelRefusesIsNoSuccess(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.published("web")
	r.insert(at("10.96.0.1:80", id))
	frontends, restore := r.breakMap(mapFrontends), []Frontend{at("10.96.0.2:80", id), at("10.96.0.3:80", id)}
	if errs := r.InsertFrontends(restore); len(errs) != 2 || errs[0] == nil || errs[1] == nil {
		t.Errorf("errors %v, want one for each", errs)
	}
	if err := r.DeleteFrontends([]Frontend{at("10.96.0.1:80", id)}); err == nil {
		t.Error("no error although nothing can be deleted")
	}
	r.current.maps[mapFrontends] = frontends
	r.insert(restore...)
	if got := r.entries(); len(got) != 3 {
		t.Errorf("entries %q, want three", got)
	}
}

// breakMap makes every call to a map fail, and returns the map.
func (r *rig) breakMap(name string) *ebpf.Map {
	r.t.Helper()
	m := r.current.maps[name]
	broken, err := m.Clone()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := broken.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.current.maps[name] = broken
	return m
}

func TestAComparisonOfManyFrontendsSeesEachOnce(t *testing.T) {
	const many = 10000 // more than one chunk of the batched reads
	r := newRig(t, Sizes{Frontends: many, Sets: 2, Backends: 8, Affinity: 2, Flows: 2, UDP: 2, Ranges: 2})
	id := r.published("web")
	frontends := make([]Frontend, many)
	for i := range frontends {
		frontends[i] = at(fmt.Sprintf("10.96.%d.%d:80", i>>8, i&255), id)
	}
	r.insert(frontends...)
	seen := map[frontendKey]int{}
	err := readFrontends(r.current.maps[mapFrontends], func(k frontendKey, _ frontend) { seen[k]++ })
	if err != nil {
		t.Fatal(err)
	}
	for k, n := range seen {
		if n != 1 {
			t.Errorf("%s comes %d times", k, n)
		}
	}
	if len(seen) != many {
		t.Errorf("%d elements, want %d", len(seen), many)
	}
	if repaired, err := r.Compare(); err != nil || repaired != 0 {
		t.Errorf("repaired %d, %v", repaired, err)
	}
	r.delete(frontends...)
	var k frontendKey
	if err := r.current.maps[mapFrontends].NextKey(nil, &k); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("after deleting all: %v, %v", k, err)
	}
}
