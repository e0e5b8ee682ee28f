// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// sourceHook sees each packet of the cgroup's sockets, and so the source that
// a socket did not have yet when it dialled an address with source ranges
// (R22). It is attached only while a set has some: a cluster without source
// ranges pays for no program on its packets.
var sourceHook = hook{"skb_egress", "fairlead_skb_egress", ebpf.AttachCGroupInetEgress}

// haveSourceCheck says whether the kernel can run the program of sourceHook.
func haveSourceCheck() error {
	helper := func(fn asm.BuiltinFunc) error { return features.HaveProgramHelper(ebpf.CGroupSKB, fn) }
	return errors.Join(features.HaveProgramType(ebpf.CGroupSKB), helper(asm.FnSkFullsock), helper(asm.FnSkStorageGet),
		helper(asm.FnSkbLoadBytes), helper(asm.FnRingbufReserve))
}

// haveCommand says whether that program may ask which process runs.
func haveCommand() error {
	return errors.Join(features.HaveProgramHelper(ebpf.CGroupSKB, asm.FnGetCurrentComm),
		features.HaveProgramHelper(ebpf.CGroupSKB, asm.FnGetCurrentPidTgid))
}

// Hooks is how many programs of the socket path should be attached. Safe from
// any goroutine.
func (d *Datapath) Hooks() int {
	if d.sourceCheck.Load() != 0 {
		return HookCount + 1
	}
	return HookCount
}

// hasRangedSet says that a program may meet a set with source ranges.
func (d *Datapath) hasRangedSet() bool {
	return slices.ContainsFunc(d.shadows, func(sh shadow) bool { return sh.ranged })
}

// ensureSourceCheck comes before a set with source ranges is published: a
// program that meets one lets sockets that are not bound pass, and relies on
// the check. Maps that are not in force yet get it with Attach.
func (d *Datapath) ensureSourceCheck() error {
	if !d.checksSources || !d.current.adopted || d.sourceCheck.Load() != 0 {
		return nil
	}
	if id, ok := d.onHook(sourceHook); ok {
		d.sourceCheck.Store(uint32(id)) // a predecessor's
		return nil
	}
	return d.attachSourceCheck()
}

// attachSourceCheck attaches the check, or gives its link the program that
// uses the maps in force.
func (d *Datapath) attachSourceCheck() error {
	programs, err := d.load(loadSource, nil)
	if err != nil {
		return fmt.Errorf("load the check of source addresses: %w", err)
	}
	defer programs.Close()
	folder, err := d.makeLinksFolder()
	if err != nil {
		return err
	}
	id, err := d.attachHook(folder, sourceHook, programs.Programs[sourceHook.program])
	if err != nil {
		return err
	}
	d.sourceCheck.Store(uint32(id))
	return nil
}

// attachedSourceCheck is the part of Attach that is about the check. Where none
// is wanted, the link of a predecessor is swept with what else is left over.
func (d *Datapath) attachedSourceCheck() error {
	d.sourceCheck.Store(0)
	if !d.checksSources || !d.hasRangedSet() {
		return nil
	}
	return d.attachSourceCheck()
}

// compareSourceCheck attaches the check again if someone took it away. Some
// time after the last set with source ranges is gone, it takes it away itself:
// sets come and go more often than once between two comparisons.
func (d *Datapath) compareSourceCheck() (repaired int, err error) {
	id := ebpf.ProgramID(d.sourceCheck.Load())
	if id == 0 {
		return 0, nil
	}
	if !d.hasRangedSet() {
		return 0, d.detachSourceCheck()
	}
	if on, ok := d.onHook(sourceHook); ok && on == id {
		return 0, nil
	}
	d.log.Warn("someone else took a program off its hook, it is attached again", "hook", sourceHook.name)
	return 1, d.attachSourceCheck()
}

func (d *Datapath) detachSourceCheck() error {
	err := os.Remove(filepath.Join(d.cfg.PinPath, linksFolder, sourceHook.name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detach %s: %w", sourceHook.program, err)
	}
	d.sourceCheck.Store(0)
	failpoint.Hit("compare: source check is detached")
	return nil
}

// onHook returns the program of the hook's pinned link, if that is where it
// should be.
func (d *Datapath) onHook(h hook) (ebpf.ProgramID, bool) {
	pinned, err := link.LoadPinnedLink(filepath.Join(d.cfg.PinPath, linksFolder, h.name), nil)
	if err != nil {
		return 0, false
	}
	defer pinned.Close()
	on, err := isOn(pinned, h, d.cfg.Cgroup)
	if err != nil || !on {
		return 0, false
	}
	info, err := pinned.Info()
	if err != nil {
		return 0, false
	}
	return info.Program, true
}
