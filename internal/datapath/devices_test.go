// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

func TestDevicesAreServedFromAttachOn(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.mustServe("eth0", "eth1")
		r.expectFree("eth0", "eth1")
		r.expectSources()
		r.attach()
		r.expectServed("eth0", "eth1")
		r.expectSources("eth0", "eth1")
		r.expectPins("eth0", "eth1")

		r.add("eth2")
		r.mustServe("eth0", "eth2")
		r.expectServed("eth0", "eth2")
		r.expectFree("eth1")
		r.expectSources("eth0", "eth2")
		r.expectPins("eth0", "eth2")
		if n := r.compare(); n != 0 {
			t.Errorf("repaired %d where nobody changed anything", n)
		}
		r.mustServe()
		r.expectFree("eth0", "eth2")
		r.expectSources()
	})
}

func TestInsideDevicesGetProgramsOfTheirOwnAndNoSource(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0", "+eth1")
		r.expectServed("eth0")
		want := []string{"eth1 " + r.via("ingress") + " inside", "eth1 " + r.via("egress") + " inside"}
		if got := r.hooked("eth1"); !slices.Equal(got, want) {
			t.Errorf("on eth1 %q, want %q", got, want)
		}
		r.expectSources("eth0")
		r.mustServe("+eth0", "eth1")
		r.expectServed("eth1")
		r.expectSources("eth1")
	})
}

func TestAnAddressThatChangesIsTold(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		dev := r.device("eth0")
		dev.Source4, dev.Source6 = netip.MustParseAddr("198.51.100.9"), netip.Addr{}
		for range 2 {
			r.ns.Do(func() { r.SetDevices([]Device{dev}) })
			want := device{Source4: addressOf(dev.Source4), Index: uint32(dev.Index)}
			if got := r.sources()[uint32(dev.Index)]; got != want {
				t.Errorf("the programs know %v, want %v", got, want)
			}
		}
	})
}

func TestADeviceThatWentIsNoError(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0", "eth1")
		gone := r.device("eth1")
		r.del("eth1")
		if n := r.compare(); n != 0 {
			t.Errorf("repaired %d although nobody is left to serve", n)
		}
		kept := r.device("eth0")
		r.ns.Do(func() {
			if errs := r.SetDevices([]Device{kept, gone}); errs != nil {
				t.Error(errors.Join(errs...))
			}
		})
		r.expectServed("eth0")

		r.add("eth1")
		r.mustServe("eth0", "eth1")
		r.expectServed("eth0", "eth1")
		r.expectSources("eth0", "eth1")
		r.expectPins("eth0", "eth1")
	})
}

func TestADeviceThatIsRenamedKeepsItsPrograms(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0", "eth1")
		before := r.linkIDs("eth0", "eth1")
		// Names that change hands, and one with a dot, which no pin may have.
		r.rename("eth0", "tmp")
		r.rename("eth1", "eth0")
		r.rename("tmp", "eth1.7")
		r.mustServe("eth0", "eth1.7")
		r.expectServed("eth0", "eth1.7")
		r.expectPins("eth0", "eth1:7")
		if after := r.linkIDs("eth1.7", "eth0"); !slices.Equal(after, before) {
			t.Errorf("links %v became %v", before, after)
		}
	})
}

func TestANewDeviceTakesTheNameOfAnother(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0")
		before := r.linkIDs("eth0")
		r.rename("eth0", "old")
		r.add("eth0")
		r.mustServe("eth0", "old")
		r.expectServed("eth0", "old")
		r.expectPins("eth0", "old")
		if after := r.linkIDs("old"); !slices.Equal(after, before) {
			t.Errorf("links %v became %v", before, after)
		}
	})
}

func TestARestartAdoptsWhatIsAttached(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0", "eth1")
		before := r.linkIDs("eth0", "eth1")
		r.reopen()
		if got := r.hooked("eth0", "eth1"); len(got) != 4 {
			t.Errorf("between two agents there are %q", got)
		}
		r.expectSources("eth0", "eth1")
		r.mustServe("eth0", "eth1")
		r.attach()
		r.expectServed("eth0", "eth1")
		r.expectSources("eth0", "eth1")
		if after := r.linkIDs("eth0", "eth1"); !slices.Equal(after, before) {
			t.Errorf("links %v became %v", before, after)
		}
	})
}

func TestNewMapsComeWithNewProgramsInPlace(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0")
		before := r.linkIDs("eth0")
		r.cfg.Sizes.Flows *= 2
		r.reopen()
		r.mustServe("eth0")
		if len(r.sources()) != 0 || r.currentName() != "g1" {
			t.Errorf("the new maps know %v, and %s is current", r.sources(), r.currentName())
		}
		r.attach()
		r.expectServed("eth0")
		r.expectSources("eth0")
		if after := r.linkIDs("eth0"); !slices.Equal(after, before) {
			t.Errorf("links %v became %v", before, after)
		}
		r.expectUses("eth0", r.mapID("g2", mapFlows))
	})
}

// expectUses fails unless the programs on the device read and write this map.
func (r *wireRig) expectUses(name string, want ebpf.MapID) {
	r.t.Helper()
	for _, programs := range r.wire.programs {
		for _, p := range programs.Programs {
			info, err := p.Info()
			if err != nil {
				r.t.Fatal(err)
			}
			if ids, ok := info.MapIDs(); ok && len(ids) > 0 && !slices.Contains(ids, want) {
				r.t.Errorf("%s on %s uses the maps %v, want %v among them", p, name, ids, want)
			}
		}
	}
}

func TestCompareServesDevicesAgain(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0", "eth1")
		for name, damage := range map[string]func() int{
			"nothing": func() int { return 0 },
			"a program taken off": func() int {
				r.detach("eth0", egress)
				return 1
			},
			"another program in the place of ours": func() int {
				r.usurp("eth1", ingress)
				return 1
			},
			"what is known of a device": func() int {
				must(t, r.current.maps[mapDevices].Delete(uint32(r.index("eth0"))))
				must(t, r.current.maps[mapDevices].Put(uint32(9999), device{Index: 9999}))
				return 2
			},
		} {
			want := damage()
			for _, want := range []int{want, 0} {
				if got := r.compare(); got != want {
					t.Errorf("%s: repaired %d, want %d", name, got, want)
				}
			}
			r.expectServed("eth0", "eth1")
			r.expectSources("eth0", "eth1")
			r.expectPins("eth0", "eth1")
		}
	})
}

// detach takes our program off a device, as an administrator might.
func (r *wireRig) detach(name string, d direction) {
	r.t.Helper()
	at := point{r.index(name), d}
	r.do(func() error {
		if r.cfg.Wire.Clsact {
			return netlink.FilterDel(filterAt(at, -1))
		}
		l, err := link.LoadPinnedLink(filepath.Join(r.cfg.PinPath, linksFolder, tcxPin(name, d)), nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Detach()
	})
}

// usurp puts another program in the place of ours.
func (r *wireRig) usurp(name string, d direction) {
	r.t.Helper()
	at, p := point{r.index(name), d}, passing(r.t, "usurper")
	r.do(func() error {
		if r.cfg.Wire.Clsact {
			return netlink.FilterReplace(filterAt(at, p.FD()))
		}
		l, err := link.LoadPinnedLink(filepath.Join(r.cfg.PinPath, linksFolder, tcxPin(name, d)), nil)
		if err != nil {
			return err
		}
		defer l.Close()
		return l.Update(p)
	})
}

func TestAnAgentThatDiedMidwayIsTidiedUpAfter(t *testing.T) {
	r := newWireRig(t, false)
	r.attach()
	r.mustServe("eth0", "eth1")
	before := r.linkIDs("eth0", "eth1")
	pin := func(name string) string { return filepath.Join(r.cfg.PinPath, linksFolder, name) }
	must(t,
		os.Rename(pin("tcx-eth0-ingress"), pin("tcx-eth0-ingress-next")), // before it was named
		os.Rename(pin("tcx-eth1-egress"), pin("tcx-eth0-egress-was-7")),  // amid a rename
		os.Mkdir(pin("tcx-eth9-ingress"), 0o700),
		passing(t, "stray").Pin(pin("tcx-eth1-ingress-next")),
	)
	r.reopen()
	r.mustServe("eth0", "eth1")
	r.attach()
	r.expectServed("eth0", "eth1")
	r.expectPins("eth0", "eth1")
	if after := r.linkIDs("eth0", "eth1"); !slices.Equal(after, before) {
		t.Errorf("links %v became %v", before, after)
	}
}

func TestAnotherWayOfAttachingTakesThePlaceOfTheFirst(t *testing.T) {
	r := newWireRig(t, false)
	r.attach()
	r.mustServe("eth0")
	for _, clsact := range []bool{true, false} {
		r.cfg.Wire.Clsact = clsact
		r.reopen()
		r.mustServe("eth0")
		r.attach()
		r.expectServed("eth0")
		r.expectPins("eth0")
	}
}

func TestAPacketPathThatIsSwitchedOffLeavesNoDeviceServed(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.attach()
		r.mustServe("eth0")
		r.cfg.Wire = Wire{}
		r.reopen()
		r.attach()
		if got := r.on("eth0"); len(got) != 0 || len(r.pins()) != 0 || len(r.sources()) != 0 {
			t.Errorf("left are %+v, pins %q, and devices %v", got, r.pins(), r.sources())
		}
		r.mustServe("eth0")
		if got := r.on("eth0"); len(got) != 0 {
			t.Errorf("served although it is off: %+v", got)
		}
	})
}

func TestCleanupLeavesNothingOnDevices(t *testing.T) {
	bothWays(t, func(t *testing.T, r *wireRig) {
		r.foreign("eth0", "first", ingress)
		r.attach()
		r.mustServe("eth0", "eth1")
		r.close()
		// The second time there is no pin path any more.
		for range 2 {
			r.do(func() error { return Cleanup(r.cfg.PinPath) })
			if got := append(r.on("eth0"), r.on("eth1")...); len(got) != 1 || got[0].Program != "first" {
				t.Errorf("left are %+v, want what someone else had put there", got)
			}
			if exists(t, r.cfg.PinPath) {
				t.Error("the pin path is still there")
			}
		}
		r.open()
	})
}

func TestAFilterSurvivesThePinPath(t *testing.T) {
	r := newWireRig(t, true)
	r.attach()
	r.mustServe("eth0")
	r.close()
	must(t, os.RemoveAll(r.cfg.PinPath))
	r.do(func() error { return Cleanup(r.cfg.PinPath) })
	if got := r.on("eth0"); len(got) != 0 {
		t.Errorf("left are %+v", got)
	}
	r.open()
}

func TestWhatDevicesWouldLoseIsLost(t *testing.T) {
	for _, served := range []bool{true, false} {
		r := newRig(t, smallSizes())
		r.apply(threeServices...)
		r.attach()
		r.cfg.Sizes.Frontends, r.cfg.Wire.On = 4, served
		r.reopen()
		r.apply(threeServices[:2]...)
		if lost := r.Lost(at("10.96.0.2:80", 0).Key); lost != served {
			t.Errorf("sockets are off, devices are served: %v, and yet a frontend that is not written is lost: %v", served, lost)
		}
	}
}
