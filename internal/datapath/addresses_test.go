// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
)

// knownAddresses is what the kernel knows of addresses, in words.
func (r *rig) knownAddresses() map[string]string {
	r.t.Helper()
	known := map[string]string{}
	err := readHash(r.current.maps[mapAddresses], func(a address, flags uint32) { known[a.addr().String()] = flagWords(flags) })
	if err != nil {
		r.t.Fatal(err)
	}
	return known
}

func flagWords(flags uint32) string {
	var words []string
	for bit, word := range []string{"node port", "node", "service", "cluster IP"} {
		if flags&(1<<bit) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ", ")
}

func (r *rig) expectAddresses(what string, want map[string]string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.knownAddresses()); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (r *rig) setNode(own, serving []netip.Addr) {
	r.t.Helper()
	if err := r.SetNodeAddresses(own, serving); err != nil {
		r.t.Fatal(err)
	}
}

// of is a set of the role, published without backends.
func (r *rig) of(name string, role model.Role) SetID {
	r.t.Helper()
	k := service(name)
	k.Role = role
	id := r.create(k)
	r.publish(id, forward(k))
	return id
}

const (
	onlyService   = "service"
	withClusterIP = "service, cluster IP"
)

func TestAddressesAreKnownWhileTheyHaveFrontends(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	clusterIP, external := r.of("web", model.RoleClusterIP), r.of("web", model.RoleInternal)
	r.insert(at("10.96.0.1:80", clusterIP), at("10.96.0.1:443", clusterIP), at("198.51.100.1:80", external), at("0.0.0.0:30080", external))
	r.expectAddresses("a NodePort has no address of its own", map[string]string{"10.96.0.1": withClusterIP, "198.51.100.1": onlyService})
	r.setNode(addressList("192.0.2.1", "198.51.100.1"), addressList("192.0.2.1"))
	r.expectAddresses("an externalIP may be the node's", map[string]string{
		"10.96.0.1": withClusterIP, "198.51.100.1": "node, service", "192.0.2.1": "node port, node",
	})
	r.delete(at("10.96.0.1:443", clusterIP), at("198.51.100.1:80", external))
	r.expectAddresses("one port stays", map[string]string{"10.96.0.1": withClusterIP, "198.51.100.1": "node", "192.0.2.1": "node port, node"})
	r.insert(at("10.96.0.1:80", external))
	r.setNode(nil, nil)
	r.expectAddresses("the address changed hands", map[string]string{"10.96.0.1": onlyService})
	r.delete(at("10.96.0.1:80", clusterIP))
	r.expectAddresses("deletes of the former holder are not the new one's", map[string]string{"10.96.0.1": onlyService})
	r.delete(at("10.96.0.1:80", external), at("0.0.0.0:30080", external))
	r.expectAddresses("all are gone", map[string]string{})
	if len(r.addresses) != 0 {
		t.Errorf("%d addresses are remembered for nothing", len(r.addresses))
	}
}

// Programs look no further for a packet to an address that they do not know.
func TestAnAddressIsKnownBeforeItsFrontendsAndForgottenIfTheyFail(t *testing.T) {
	r := newRig(t, smallSizes())
	clusterIP := r.of("web", model.RoleClusterIP)
	r.insert(at("10.96.0.1:80", clusterIP))
	var w writes
	for _, text := range []string{"10.96.0.1:81", "10.96.0.2:80", "10.96.0.2:81", "10.96.0.3:80"} {
		w.add(keyOf(at(text, clusterIP).Key), installed{clusterIP, true})
	}
	called := false
	r.announced(w, func(i int, err error) { t.Errorf("%s: %v", w.keys[i], err) }, func(part writes, _ func(int, error)) {
		called = true
		r.expectAddresses("while frontends are written", map[string]string{"10.96.0.1": withClusterIP, "10.96.0.2": withClusterIP, "10.96.0.3": withClusterIP})
		r.install(part.keys[3], part.want[3]) // as if the others did not fit
	})
	if !called {
		t.Error("nothing was written")
	}
	r.expectAddresses("afterwards", map[string]string{"10.96.0.1": withClusterIP, "10.96.0.3": withClusterIP})
}

func TestMoreAddressesThanThereIsRoomForDoNotKeepTheOthersOut(t *testing.T) {
	sizes := smallSizes()
	sizes.Frontends = 8
	r := newRig(t, sizes)
	id := r.of("web", model.RoleClusterIP)
	var frontends []Frontend
	for i := range maxNodeAddresses + 100 {
		frontends = append(frontends, at(fmt.Sprintf("10.96.%d.%d:80", i>>8, i&255), id))
	}
	errs := r.InsertFrontends(frontends)
	failed := 0
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrNoRoom) {
			t.Fatal(err)
		}
		if err != nil {
			failed++
		}
	}
	want := map[string]string{}
	for i := range sizes.Frontends {
		want[fmt.Sprintf("10.96.0.%d", i)] = withClusterIP
	}
	if failed != len(frontends)-len(want) || len(r.installed) != len(want) {
		t.Errorf("%d failed, %d are installed, want %d", failed, len(r.installed), len(want))
	}
	r.expectAddresses("those that fit", want)
}

func TestAFullMapOfAddressesFailsFrontendsUntilThereIsRoom(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.of("web", model.RoleClusterIP)
	r.insert(at("10.96.0.1:80", id))
	foreign := r.intruder().maps[mapAddresses]
	for i := range smallSizes().Frontends + maxNodeAddresses - 1 {
		if err := foreign.Put(addressOf(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})), uint32(addressNode)); err != nil {
			t.Fatal(err)
		}
	}
	errs := r.InsertFrontends([]Frontend{at("10.96.0.2:80", id), at("10.96.0.1:81", id)})
	for i, err := range errs {
		if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "10.96.0.2") || !strings.Contains(err.Error(), "--max-frontends") {
			t.Errorf("frontend %d: %v", i, err)
		}
	}
	if len(errs) != 2 || len(r.installed) != 1 {
		t.Errorf("errors %v, %d frontends are installed", errs, len(r.installed))
	}
	if err := r.SetNodeAddresses(addressList("192.0.2.1"), nil); !errors.Is(err, ErrNoRoom) {
		t.Errorf("an address of the node: %v", err)
	}
	// What is not ours is what fills the map.
	if _, err := r.Compare(); err != nil {
		t.Error(err)
	}
	r.insert(at("10.96.0.2:80", id), at("10.96.0.1:81", id))
	r.setNode(addressList("192.0.2.1"), nil)
	r.expectAddresses("there is room again", map[string]string{"10.96.0.1": withClusterIP, "10.96.0.2": withClusterIP, "192.0.2.1": "node"})
}

func TestAWriteOfNodeAddressesThatFailedIsDoneByTheNext(t *testing.T) {
	r := newRig(t, smallSizes())
	own := addressList("192.0.2.1", "192.0.2.2")
	r.setNode(own[1:], nil)
	for _, name := range []string{mapAddresses, mapPrimary} {
		whole := r.breakMap(name)
		for range 2 {
			if err := r.SetNodeAddresses(own[:1], own[:1]); err == nil {
				t.Errorf("no error although %s cannot be written", name)
			}
		}
		r.current.maps[name] = whole
		r.setNode(own[:1], own[:1])
		r.expectAddresses(name+" can be written again", map[string]string{"192.0.2.1": "node port, node"})
		r.setNode(own[1:], nil)
	}
}

func TestAddressesAreAdoptedAndThoseOfNobodyPruned(t *testing.T) {
	r := newRig(t, smallSizes())
	id := r.of("web", model.RoleClusterIP)
	r.insert(at("10.96.0.1:80", id), at("10.96.0.2:80", id), at("192.0.2.1:80", id))
	r.setNode(addressList("192.0.2.1", "192.0.2.2"), addressList("192.0.2.1"))
	r.attach()
	// A predecessor that died before it could take the bits away.
	if err := r.intruder().maps[mapAddresses].Put(addressOf(netip.MustParseAddr("10.96.0.9")), uint32(addressService|addressClusterIP)); err != nil {
		t.Fatal(err)
	}
	whole := map[string]string{
		"10.96.0.1": withClusterIP, "10.96.0.2": withClusterIP, "10.96.0.9": withClusterIP,
		"192.0.2.1": "node port, node, service, cluster IP", "192.0.2.2": "node",
	}
	r.reopen()
	r.expectAddresses("nothing changes before Prune", whole)
	id = r.of("web", model.RoleClusterIP)
	r.insert(at("10.96.0.1:80", id))
	r.prune()
	r.expectAddresses("Services that are gone meanwhile", map[string]string{
		"10.96.0.1": withClusterIP, "192.0.2.1": "node port, node", "192.0.2.2": "node",
	})
	r.setNode(addressList("192.0.2.2", "192.0.2.3"), nil)
	r.expectAddresses("the node has others", map[string]string{"10.96.0.1": withClusterIP, "192.0.2.2": "node", "192.0.2.3": "node"})
}

func TestNewMapsKnowTheAddressesOfTheirOwnFrontends(t *testing.T) {
	r := newRig(t, smallSizes())
	id := r.of("web", model.RoleClusterIP)
	r.insert(at("10.96.0.1:80", id))
	r.attach()
	r.cfg.Sizes.Frontends *= 2
	r.reopen()
	r.expectAddresses("empty", map[string]string{})
	r.insert(at("10.96.0.2:80", r.of("web", model.RoleClusterIP)))
	r.attach()
	r.expectAddresses("filled", map[string]string{"10.96.0.2": withClusterIP})
}

func TestCompareRepairsAddressesThatSomeoneElseChanged(t *testing.T) {
	key := func(text string) address { return addressOf(netip.MustParseAddr(text)) }
	for name, c := range map[string]struct {
		damage   func(g *generation) error
		repaired int
	}{
		"nothing":            {func(*generation) error { return nil }, 0},
		"an address deleted": {func(g *generation) error { return g.maps[mapAddresses].Delete(key("10.96.0.1")) }, 1},
		"an address of the node deleted": {func(g *generation) error {
			return g.maps[mapAddresses].Delete(key("192.0.2.1"))
		}, 1},
		"an address added, which would serve NodePorts (R24)": {func(g *generation) error {
			return g.maps[mapAddresses].Put(key("192.0.2.7"), uint32(addressNodePort))
		}, 1},
		"an element without a bit": {func(g *generation) error { return g.maps[mapAddresses].Put(key("192.0.2.7"), uint32(0)) }, 1},
		"other bits":               {func(g *generation) error { return g.maps[mapAddresses].Put(key("10.96.0.1"), uint32(addressNode)) }, 1},
		"bits that mean nothing":   {func(g *generation) error { return g.maps[mapAddresses].Put(key("10.96.0.1"), uint32(unknown)) }, 1},
		"the primary addresses (R22)": {func(g *generation) error {
			return errors.Join(g.maps[mapPrimary].Put(uint32(primaryIPv4), key("192.0.2.7")), g.maps[mapPrimary].Put(uint32(primaryIPv6), key("2001:db8::7")))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.attach()
			r.insert(at("10.96.0.1:80", r.of("web", model.RoleClusterIP)))
			r.setNode(addressList("192.0.2.1", "2001:db8::1"), addressList("192.0.2.1"))
			before := r.dump()
			must(t, c.damage(r.intruder()))
			for _, want := range []int{c.repaired, 0} {
				if repaired, err := r.Compare(); err != nil || repaired != want {
					t.Errorf("repaired %d, %v; want %d", repaired, err, want)
				}
			}
			expectSame(t, before, r.dump())
		})
	}
}

func TestAComparisonThatCannotRepairAddressesSaysSo(t *testing.T) {
	r := newRig(t, smallSizes())
	r.insert(at("10.96.0.1:80", r.of("web", model.RoleClusterIP)))
	r.setNode(addressList("192.0.2.1"), nil)
	for _, name := range []string{mapAddresses, mapPrimary} {
		whole := r.breakMap(name)
		if repaired, err := r.compareAddresses(); err == nil || repaired != 0 {
			t.Errorf("%s cannot be read: repaired %d, %v", name, repaired, err)
		}
		r.current.maps[name] = whole
	}
	if repaired, err := r.compareAddresses(); err != nil || repaired != 0 {
		t.Errorf("repaired %d, %v", repaired, err)
	}
}

func TestThePrimaryAddressIsTheFirstOfItsFamily(t *testing.T) {
	r := newRig(t, smallSizes())
	expect := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, family := range []uint32{primaryIPv4, primaryIPv6} {
			var a address
			must(t, r.current.maps[mapPrimary].Lookup(family, &a))
			got = append(got, a.addr().String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q (R22)", what, got, want)
		}
	}
	expect("nobody has said", "::", "::")
	r.setNode(addressList("2001:db8::2", "192.0.2.2", "192.0.2.1", "2001:db8::1"), nil)
	expect("two of each", "192.0.2.2", "2001:db8::2")
	r.attach()
	r.reopen()
	expect("nobody has said since the restart", "192.0.2.2", "2001:db8::2")
	if repaired, err := r.Compare(); err != nil || repaired != 0 {
		t.Errorf("repaired %d, %v", repaired, err)
	}
	r.setNode(addressList("192.0.2.1"), nil)
	expect("one of one", "192.0.2.1", "::")
	r.setNode(nil, nil)
	expect("none", "::", "::")
}

// Whatever is done in whatever order, the kernel knows what follows from the
// frontends and the node.
func TestAddressesFollowFromFrontendsAndNode(t *testing.T) {
	sizes := smallSizes()
	sizes.Frontends = 6
	r := newRig(t, sizes)
	r.attach()
	texts := []string{"10.96.0.1:80", "10.96.0.1:81", "10.96.0.2:80", "192.0.2.1:80", "192.0.2.2:80", "0.0.0.0:80", "10.96.0.3:80", "10.96.0.4:80"}
	node := addressList("192.0.2.1", "192.0.2.2", "10.96.0.1")
	roles := []model.Role{model.RoleClusterIP, model.RoleInternal, model.RoleVIPInternal}
	rapid.Check(t, func(t *rapid.T) {
		var sets []SetID
		find := func() {
			sets = nil
			for i, role := range roles {
				k := service(fmt.Sprintf("s%d", i))
				k.Role = role
				id := r.create(k)
				r.publish(id, forward(k))
				sets = append(sets, id)
			}
		}
		find()
		var own, serving []netip.Addr
		some := func() []Frontend {
			var frontends []Frontend
			for _, text := range rapid.SliceOfNDistinct(rapid.SampledFrom(texts), 0, 4, rapid.ID).Draw(t, "frontends") {
				frontends = append(frontends, at(text, rapid.SampledFrom(sets).Draw(t, "set")))
			}
			return frontends
		}
		restart := func() {
			r.reopen()
			find()
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(*rapid.T) { r.InsertFrontends(some()) }, // some may find no room
			"delete": func(*rapid.T) { r.delete(some()...) },
			"node": func(t *rapid.T) {
				own = rapid.SliceOfDistinct(rapid.SampledFrom(node), rapid.ID).Draw(t, "own")
				serving = own[:rapid.IntRange(0, len(own)).Draw(t, "serving")]
				r.setNode(own, serving)
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
					return // it takes long
				}
				restart()
				r.prune()
			},
			"damage": func(t *rapid.T) {
				a := addressOf(netip.MustParseAddrPort(rapid.SampledFrom(texts).Draw(t, "at")).Addr())
				if rapid.Bool().Draw(t, "delete") {
					r.current.maps[mapAddresses].Delete(a)
				} else if err := r.current.maps[mapAddresses].Put(a, rapid.Uint32Range(0, 15).Draw(t, "flags")); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Compare(); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				want := r.expectedAddresses(own, serving)
				if diff := cmp.Diff(want, r.knownAddresses()); diff != "" {
					t.Fatalf("what the kernel knows (-want +got):\n%s", diff)
				}
			},
		})
		restart()
		r.prune() // nothing was asked for
		r.setNode(nil, nil)
	})
}

// expectedAddresses is made of what the frontends map holds in truth.
func (r *rig) expectedAddresses(own, serving []netip.Addr) map[string]string {
	r.t.Helper()
	flags := map[string]uint32{}
	err := readFrontends(r.current.maps[mapFrontends], func(k frontendKey, f frontend) {
		if k.isWildcard() {
			return
		}
		flags[k.Address.addr().String()] |= addressService
		if r.shadows[f.Set].role == model.RoleClusterIP {
			flags[k.Address.addr().String()] |= addressClusterIP
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range own {
		flags[a.String()] |= addressNode
	}
	for _, a := range serving {
		flags[a.String()] |= addressNodePort
	}
	words := map[string]string{}
	for a, f := range flags {
		words[a] = flagWords(f)
	}
	return words
}

// The node's addresses come from another goroutine than frontends.
func TestNodeAddressesMayChangeWhileFrontendsAreWritten(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.of("web", model.RoleClusterIP)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	own := addressList("192.0.2.1", "10.96.0.1", "2001:db8::1")
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := r.SetNodeAddresses(own[i%len(own):], own[:i%len(own)]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	all := []Frontend{at("10.96.0.1:80", id), at("10.96.0.2:80", id), at("192.0.2.1:80", id)}
	for i := range 200 {
		r.insert(all...)
		if i%20 == 0 {
			known := r.knownAddresses()
			for _, f := range all {
				if words := known[f.Key.Address.String()]; !strings.HasSuffix(words, withClusterIP) {
					t.Errorf("%s is %q although it has a frontend", f.Key.Address, words)
				}
			}
			if _, err := r.Compare(); err != nil {
				t.Error(err)
			}
		}
		r.delete(all[i%3:]...)
	}
	close(stop)
	wg.Wait()
	r.insert(all...)
	r.setNode(own, own[:1])
	r.expectAddresses("in the end", map[string]string{
		"10.96.0.1": "node, service, cluster IP", "10.96.0.2": withClusterIP,
		"192.0.2.1": "node port, node, service, cluster IP", "2001:db8::1": "node",
	})
}
