// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// tcx attaches by links that are pinned beside those of the socket path, and so
// stay in force when the agent ends. What a link is on says the link; the
// pin's name is for people.
type tcx struct {
	folder string
	links  map[point]pinnedLink
	dead   []string // pins of what is on no device any more, or is no link
}

type pinnedLink struct {
	link.Link
	path    string
	program ebpf.ProgramID
}

const tcxPrefix = "tcx-"

// tcxPin is the name of a pin. A BPF file system takes no dots, device names
// take no colons.
func tcxPin(device string, d direction) string {
	return tcxPrefix + strings.ReplaceAll(device, ".", ":") + "-" + wireHooks[d].name
}

// loopbackIndex is that of lo in every network namespace.
const loopbackIndex = 1

// haveTCX is nil if the kernel has TCX, from Linux 6.6 on.
func haveTCX() error {
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopbackIndex, Attach: ebpf.AttachTCXIngress})
	return err
}

func openTCX(pinPath string) (*tcx, error) {
	t := &tcx{folder: filepath.Join(pinPath, linksFolder), links: map[point]pinnedLink{}}
	entries, err := os.ReadDir(t.folder)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the pinned links: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tcxPrefix) {
			t.open(filepath.Join(t.folder, e.Name()))
		}
	}
	return t, nil
}

func (t *tcx) open(path string) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		t.dead = append(t.dead, path)
		return
	}
	at, program, ok := locate(l)
	if _, twice := t.links[at]; !ok || twice {
		l.Close()
		t.dead = append(t.dead, path)
		return
	}
	t.links[at] = pinnedLink{l, path, program}
}

// locate says where a link is attached in this network namespace: a link keeps
// the index of a device that was moved to another one.
func locate(l link.Link) (at point, program ebpf.ProgramID, ok bool) {
	info, err := l.Info()
	if err != nil || info.TCX() == nil || info.TCX().Ifindex == 0 {
		return point{}, 0, false
	}
	at = point{index: int(info.TCX().Ifindex)}
	if ebpf.AttachType(info.TCX().AttachType) == ebpf.AttachTCXEgress {
		at.direction = egress
	}
	there, err := link.QueryPrograms(link.QueryOptions{Target: at.index, Attach: wireHooks[at.direction].tcx})
	if err != nil {
		return point{}, 0, false
	}
	ok = slices.ContainsFunc(there.Programs, func(p link.AttachedProgram) bool {
		id, _ := p.LinkID()
		return id == info.ID
	})
	return at, info.Program, ok
}

func (t *tcx) at(p point) (ebpf.ProgramID, bool) {
	l, ok := t.links[p]
	return l.program, ok
}

func (t *tcx) put(dev Device, d direction, program *ebpf.Program) (changed bool, err error) {
	id, err := programID(program)
	if err != nil {
		return false, err
	}
	at, path := point{dev.Index, d}, filepath.Join(t.folder, tcxPin(dev.Name, d))
	have, ok := t.links[at]
	if !ok {
		return true, t.attach(at, path, program, id)
	}
	if have.path != path {
		if err := t.rename(at, path); err != nil {
			return false, err
		}
	}
	if have.program == id {
		return false, nil
	}
	if err := have.Update(program); err != nil {
		return false, fmt.Errorf("replace the program of the pinned link %s: %w", path, err)
	}
	have.path, have.program = path, id
	t.links[at] = have
	return true, nil
}

// attach pins the new link first under a name that is for no device.
func (t *tcx) attach(at point, path string, program *ebpf.Program, id ebpf.ProgramID) error {
	if err := os.MkdirAll(t.folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of pinned links: %w", err)
	}
	next := path + "-next"
	if err := os.RemoveAll(next); err != nil {
		return fmt.Errorf("remove a left-over link: %w", err)
	}
	h := wireHooks[at.direction]
	l, err := link.AttachTCX(link.TCXOptions{Interface: at.index, Program: program, Attach: h.tcx, Anchor: h.anchor})
	if err != nil {
		return err
	}
	if err := l.Pin(next); err != nil {
		return errors.Join(fmt.Errorf("pin the link at %s: %w", next, err), l.Close())
	}
	t.links[at] = pinnedLink{l, next, id}
	return t.rename(at, path)
}

// rename gives a link the pin of its device's present name. Another link may
// have it, whose device had the name before: it makes room, and is served or
// swept on its own.
func (t *tcx) rename(at point, path string) error {
	for p, other := range t.links {
		if other.path != path || p == at {
			continue
		}
		aside := fmt.Sprintf("%s-was-%d", path, p.index)
		if err := os.Rename(path, aside); err != nil {
			return fmt.Errorf("make room for a link: %w", err)
		}
		other.path = aside
		t.links[p] = other
	}
	l := t.links[at]
	if err := os.Rename(l.path, path); err != nil {
		return fmt.Errorf("name a link after its device: %w", err)
	}
	l.path = path
	t.links[at] = l
	return nil
}

func (t *tcx) sweep(keep func(point) bool) error {
	var failures []error
	kept := map[string]bool{}
	for p, l := range t.links {
		if keep(p) {
			kept[l.path] = true
			continue
		}
		delete(t.links, p)
		// By itself a link lets go some time after its last pin is gone.
		failures = append(failures, l.Detach(), os.Remove(l.path), l.Close())
	}
	for _, path := range t.dead {
		// A new link may have taken the place.
		if !kept[path] {
			failures = append(failures, os.RemoveAll(path))
		}
	}
	t.dead = nil
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("remove links of devices: %w", err)
	}
	return nil
}

func (t *tcx) close() {
	for _, l := range t.links {
		l.Close()
	}
}

func programID(p *ebpf.Program) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the id of a program: %w", err)
	}
	id, _ := info.ID()
	return id, nil
}
