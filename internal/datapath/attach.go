// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
)

// hook is a program of the socket path and where it attaches.
type hook struct {
	name    string // of the pinned link
	program string
	attach  ebpf.AttachType
}

var hooks = [HookCount]hook{
	{"connect4", "fairlead_connect4", ebpf.AttachCGroupInet4Connect},
	{"connect6", "fairlead_connect6", ebpf.AttachCGroupInet6Connect},
	{"sendmsg4", "fairlead_sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
	{"sendmsg6", "fairlead_sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
	{"recvmsg4", "fairlead_recvmsg4", ebpf.AttachCGroupUDP4Recvmsg},
	{"recvmsg6", "fairlead_recvmsg6", ebpf.AttachCGroupUDP6Recvmsg},
	{"getpeername4", "fairlead_getpeername4", ebpf.AttachCgroupInet4GetPeername},
	{"getpeername6", "fairlead_getpeername6", ebpf.AttachCgroupInet6GetPeername},
}

// HookCount is how many programs the socket path has.
const HookCount = 8

// HasPacketPath says whether this datapath serves traffic on the wire.
const HasPacketPath = false

// Attach puts the programs in force, once the maps hold everything that is
// wanted. A pinned link is given the new program in place, so there is no
// moment without one. With SocketOff the pinned links are removed.
//
// If new maps were filled beside pinned ones, this is where they take over.
func (d *Datapath) Attach() error {
	if d.cfg.SocketMode == SocketOff {
		if err := d.makeCurrent(); err != nil {
			return err
		}
		if err := removeLinks(d.cfg.PinPath); err != nil {
			return err
		}
		return d.dropReplaced()
	}
	programs, err := d.loadPrograms()
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := d.makeCurrent(); err != nil {
		return err
	}
	folder := filepath.Join(d.cfg.PinPath, linksFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("create the folder of pinned links: %w", err)
	}
	for _, h := range hooks {
		if err := d.attachHook(folder, h, programs.Programs[h.program]); err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, d.cfg.Cgroup, err)
		}
	}
	return d.dropReplaced()
}

func (d *Datapath) loadPrograms() (*ebpf.Collection, error) {
	spec := d.spec.Copy()
	settings := map[string]any{
		"host_netns":      d.cfg.HostNetNS,
		"host_only":       boolByte(d.cfg.SocketMode == SocketHost),
		"have_set_retval": boolByte(haveSetRetval() == nil),
		"have_mptcp":      boolByte(haveMPTCP() == nil),
	}
	for name, value := range settings {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set the program constant %s: %w", name, err)
		}
	}
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m := d.current.maps[name]; m != nil {
			replacements[name] = m
		}
	}
	// The programs do not use the maps that are for people only.
	delete(spec.Maps, mapNames)
	delete(spec.Maps, mapMeta)
	delete(replacements, mapNames)
	delete(replacements, mapMeta)
	programs, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, fmt.Errorf("load the programs of the socket path: %w", readable(err))
	}
	return programs, nil
}

// readable keeps the end of a verifier log, which says what was refused.
func readable(err error) error {
	var v *ebpf.VerifierError
	if !errors.As(err, &v) {
		return err
	}
	return fmt.Errorf("%-20v", v)
}

func boolByte(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func haveSetRetval() error {
	return features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval)
}

func haveMPTCP() error {
	return features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSkcToMptcpSock)
}

func (d *Datapath) attachHook(folder string, h hook, program *ebpf.Program) error {
	path := filepath.Join(folder, h.name)
	pinned, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return attachNew(d.cfg.Cgroup, path, h, program)
	}
	if err != nil {
		return fmt.Errorf("open the pinned link %s: %w", path, err)
	}
	defer pinned.Close()
	same, err := isAttachedTo(pinned, d.cfg.Cgroup)
	if err != nil {
		return err
	}
	if same {
		if err := pinned.Update(program); err != nil {
			return fmt.Errorf("replace the program of the pinned link %s: %w", path, err)
		}
		return nil
	}
	// The cgroup is another one, or was removed and made again: serve the new
	// one before the old link goes with its pin.
	if err := os.Rename(path, path+"-old"); err != nil {
		return fmt.Errorf("set the link to another cgroup aside: %w", err)
	}
	if err := attachNew(d.cfg.Cgroup, path, h, program); err != nil {
		return err
	}
	return os.Remove(path + "-old")
}

func attachNew(cgroup, path string, h hook, program *ebpf.Program) error {
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.attach, Program: program})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pin the link at %s: %w", path, err)
	}
	return nil
}

// isAttachedTo compares a link's cgroup with a folder by the cgroup's id,
// which is the folder's inode number. A link whose cgroup was removed has 0.
func isAttachedTo(l link.Link, cgroup string) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("ask what a pinned link is attached to: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(cgroup, &st); err != nil {
		return false, fmt.Errorf("look at the cgroup %s: %w", cgroup, err)
	}
	c := info.Cgroup()
	return c != nil && c.CgroupId == st.Ino, nil
}

// makeCurrent lets the current link name the maps that are now complete. It
// comes before the programs change over: whoever restarts in between finds
// maps that are whole, and gives the programs to them.
func (d *Datapath) makeCurrent() error {
	if d.current.adopted {
		return nil
	}
	path := filepath.Join(d.cfg.PinPath, currentLink)
	next := path + "-next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove a left-over link: %w", err)
	}
	if err := os.Symlink(filepath.Base(generationFolder(d.cfg.PinPath, d.current.number)), next); err != nil {
		return fmt.Errorf("name the current maps: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("name the current maps: %w", err)
	}
	d.current.adopted = true
	return nil
}

// dropReplaced unpins every generation but the current one.
func (d *Datapath) dropReplaced() error {
	if d.replaced != nil {
		d.replaced.close()
		d.replaced = nil
	}
	entries, err := os.ReadDir(d.cfg.PinPath)
	if err != nil {
		return fmt.Errorf("list the pin path: %w", err)
	}
	current := filepath.Base(generationFolder(d.cfg.PinPath, d.current.number))
	for _, e := range entries {
		if !e.IsDir() || e.Name() == current || e.Name() == linksFolder || !strings.HasPrefix(e.Name(), "g") {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.cfg.PinPath, e.Name())); err != nil {
			return fmt.Errorf("unpin the maps that were replaced: %w", err)
		}
	}
	return nil
}

func removeLinks(pinPath string) error {
	if err := os.RemoveAll(filepath.Join(pinPath, linksFolder)); err != nil {
		return fmt.Errorf("remove the pinned links: %w", err)
	}
	return nil
}

// Cleanup detaches the programs and removes everything that is pinned, links
// first. It fails with ErrHeld while an agent is the writer.
func Cleanup(pinPath string) error {
	if _, err := os.Stat(pinPath); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lockPinPath(pinPath)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := removeLinks(pinPath); err != nil {
		return err
	}
	if err := os.RemoveAll(pinPath); err != nil {
		return fmt.Errorf("remove the pinned maps: %w", err)
	}
	return nil
}

// Attachments lists the programs on the cgroup's socket hooks, ours and those
// of others, in the order in which they run.
func Attachments(cgroup, pinPath string) ([]api.Attachment, error) {
	ours, err := ourPrograms(pinPath)
	if err != nil {
		return nil, err
	}
	folder, err := os.Open(cgroup)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup: %w", err)
	}
	defer folder.Close()
	attachments := []api.Attachment{}
	for _, h := range hooks {
		result, err := link.QueryPrograms(link.QueryOptions{Target: int(folder.Fd()), Attach: h.attach})
		if err != nil {
			return nil, fmt.Errorf("list the %s programs of %s: %w", h.name, cgroup, err)
		}
		for _, p := range result.Programs {
			attachments = append(attachments, api.Attachment{
				Hook: h.name, Program: programName(p.ID), ID: uint32(p.ID), Ours: ours[p.ID],
			})
		}
	}
	return attachments, nil
}

func ourPrograms(pinPath string) (map[ebpf.ProgramID]bool, error) {
	ours := map[ebpf.ProgramID]bool{}
	for _, h := range hooks {
		l, err := link.LoadPinnedLink(filepath.Join(pinPath, linksFolder, h.name), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open the pinned link %s: %w", h.name, err)
		}
		info, err := l.Info()
		l.Close()
		if err != nil {
			return nil, fmt.Errorf("ask for the program of the link %s: %w", h.name, err)
		}
		ours[info.Program] = true
	}
	return ours, nil
}

// programName is empty for a program that went in the meantime.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
