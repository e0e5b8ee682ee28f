// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestWhatOthersPinBesideFairleadStays(t *testing.T) {
	others := []string{"globals", "g", "gx", "g1x", "generation1", "ip", "g-1", "G1"}
	r := newRig(t, smallSizes())
	for _, name := range others {
		must(t, os.MkdirAll(filepath.Join(r.cfg.PinPath, name, "within"), 0o700))
	}
	expectAll := func() {
		t.Helper()
		for _, name := range others {
			if !exists(t, filepath.Join(r.cfg.PinPath, name, "within")) {
				t.Errorf("%s was removed", name)
			}
		}
	}
	must(t, os.Mkdir(filepath.Join(r.cfg.PinPath, "g77"), 0o700))
	r.attach()
	expectAll()
	if r.hasGeneration("g77") {
		t.Error("a generation that is not in force is still there")
	}
	r.close()

	for range 2 {
		err := Cleanup(r.cfg.PinPath)
		if err == nil || !strings.Contains(err.Error(), "is removed, but not the folder") || !strings.Contains(err.Error(), "G1") {
			t.Errorf("clean up: %v, want it to say what is left", err)
		}
		expectAll()
		for _, ours := range []string{"g1", currentLink, linksFolder} {
			if exists(t, filepath.Join(r.cfg.PinPath, ours)) {
				t.Errorf("%s is still there", ours)
			}
		}
	}
	for _, name := range others {
		must(t, os.RemoveAll(filepath.Join(r.cfg.PinPath, name)))
	}
	must(t, Cleanup(r.cfg.PinPath))
	if exists(t, r.cfg.PinPath) {
		t.Error("an empty pin path is still there")
	}
}

func TestTheLockIsOnTheFolderThatIsThere(t *testing.T) {
	const rounds, contenders = 300, 4
	path := filepath.Join(lab.NewBPFFS(t), "fairlead")
	var done sync.WaitGroup
	var mu sync.Mutex // held by who has the lock, and so never contended
	for range contenders {
		done.Go(func() {
			for won := 0; won < rounds; {
				lock, err := lockPinPath(path)
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				won++
				if !mu.TryLock() {
					t.Error("two hold the lock")
					return
				}
				runtime.Gosched()
				mu.Unlock()
				// As a cleanup does, while others are at the door.
				if err = errors.Join(os.Remove(path), lock.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
}

func TestAFailedStartLeavesNothingOpen(t *testing.T) {
	for name, spoil := range map[string]func(r *rig){
		"maps that the kernel does not make": func(r *rig) { r.cfg.Sizes.Ranges = 0 },
		"broken pins": func(r *rig) {
			must(t, os.Remove(filepath.Join(r.cfg.PinPath, currentLink)), os.Symlink("g7", filepath.Join(r.cfg.PinPath, currentLink)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, smallSizes())
			r.attach()
			r.close()
			spoil(r)
			before := openMaps(t)
			if d, err := Open(r.cfg, r.logger()); err == nil {
				d.Close()
				t.Fatal("it starts")
			}
			if after := openMaps(t); after != before {
				t.Errorf("%d maps are open, %d were before", after, before)
			}
		})
	}
}

// openMaps counts the descriptors of this process that lead to a map.
func openMaps(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.Contains(target, "bpf-map") {
			n++
		}
	}
	return n
}

func TestAttachToAnotherCgroup(t *testing.T) {
	begin := func(t *testing.T) (r *rig, old, moved *lab.Cgroup) {
		old = lab.NewCgroup(t)
		r = newRig(t, smallSizes())
		r.cfg.Cgroup, r.cfg.SocketMode = old.Path(), SocketAll
		r.reopen()
		r.attach()
		return r, old, lab.NewCgroup(t)
	}
	t.Run("that fails leaves the programs where they were", func(t *testing.T) {
		r, old, _ := begin(t)
		r.cfg.Cgroup = t.TempDir()
		r.reopen()
		if err := r.Attach(); err == nil {
			t.Error("it attaches to a folder that is no cgroup")
		}
		r.expectPrograms(old, HookCount)
	})
	for name, leave := range map[string]func(r *rig, moved *lab.Cgroup, path string){
		"is finished after an agent died before it put the new link in its place": func(r *rig, moved *lab.Cgroup, path string) {
			r.leaveLink(moved, path+"-next")
		},
		"is finished after an agent died between two renames": func(r *rig, moved *lab.Cgroup, path string) {
			must(t, os.Rename(path, path+"-old"))
			r.leaveLink(moved, path)
		},
		"is finished after an agent died with the old link out of its place": func(_ *rig, _ *lab.Cgroup, path string) {
			must(t, os.Rename(path, path+"-old"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, old, moved := begin(t)
			leave(r, moved, filepath.Join(r.cfg.PinPath, linksFolder, "connect4"))
			r.cfg.Cgroup = moved.Path()
			r.reopen()
			r.attach()
			r.expectPrograms(old, 0)
			r.expectPrograms(moved, HookCount)
			entries, err := os.ReadDir(filepath.Join(r.cfg.PinPath, linksFolder))
			if err != nil || len(entries) != HookCount {
				t.Errorf("%d links are pinned, %v", len(entries), err)
			}
		})
	}
}

// leaveLink attaches a program to connect4 and pins its link.
func (r *rig) leaveLink(cgroup *lab.Cgroup, path string) {
	r.t.Helper()
	l, err := link.AttachCgroup(link.CgroupOptions{
		Path: cgroup.Path(), Attach: ebpf.AttachCGroupInet4Connect, Program: foreignProgram(r.t, ebpf.AttachCGroupInet4Connect),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	defer l.Close()
	if err := l.Pin(path); err != nil {
		r.t.Fatal(err)
	}
}

// foreignProgram lets everything pass.
func foreignProgram(t testing.TB, attach ebpf.AttachType) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.CGroupSockAddr, AttachType: attach, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
