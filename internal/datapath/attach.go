// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/failpoint"
	"github.com/fairlead-io/fairlead/internal/model"
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

// HookCount is how many programs the socket path has at all times.
const HookCount = 8

// Attach puts the programs in force, once the maps hold everything that is
// wanted. A pinned link is given the new program in place, so there is no
// moment without one. With SocketOff those of the socket path are removed.
//
// If new maps were filled beside pinned ones, this is where they take over.
func (d *Datapath) Attach() error {
	if err := d.addServiceCIDRs(); err != nil {
		return err
	}
	return d.attach()
}

// AttachEarly is Attach while it is not known yet which Services there are: what
// the maps hold is served, and an address of ServiceCIDRs that they do not hold
// passes until Attach, for somebody else may serve it.
func (d *Datapath) AttachEarly() error {
	if err := d.holdServiceCIDRs(); err != nil {
		return err
	}
	return d.attach()
}

func (d *Datapath) attach() error {
	if err := d.carryFlows(); err != nil {
		return err
	}
	failpoint.Hit("attach: flows are carried over")
	if d.cfg.SocketMode == SocketOff {
		if err := d.makeCurrent(); err != nil {
			return err
		}
		if err := removeHookLinks(d.cfg.PinPath); err != nil {
			return err
		}
		failpoint.Hit("attach: links are removed")
		d.beginDevices()
		return d.takeOver()
	}
	programs, err := d.loadPrograms()
	if err != nil {
		return err
	}
	defer programs.Close()
	failpoint.Hit("attach: programs are loaded")
	if err := d.makeCurrent(); err != nil {
		return err
	}
	if err := d.attachedSourceCheck(); err != nil {
		return err
	}
	failpoint.Hit("attach: sources are checked")
	if err := d.attachHooks(programs); err != nil {
		return err
	}
	failpoint.Hit("attach: links are in place")
	d.beginDevices()
	return d.takeOver()
}

// takeOver ends a start. Backends may have left while no agent ran.
func (d *Datapath) takeOver() error {
	if err := d.carryFlows(); err != nil {
		return err
	}
	failpoint.Hit("attach: late flows are carried over")
	d.backendsLeft()
	if err := d.dropServiceCIDRs(); err != nil {
		return err
	}
	return d.dropReplaced()
}

// onHooks says that every program of the socket path that is wanted is on its
// hook.
func (d *Datapath) onHooks() bool {
	return d.cfg.SocketMode == SocketOff || !slices.ContainsFunc(hooks[:], func(h hook) bool {
		_, on := d.onHook(h)
		return !on
	})
}

// Lost says that the maps in force serve a frontend that those which Attach
// puts in their place do not hold. What cannot be read is taken for served.
func (d *Datapath) Lost(k model.FrontendKey) bool {
	servesNone := d.cfg.SocketMode == SocketOff && !d.cfg.Wire.On
	if d.replaced == nil || d.current.adopted || servesNone {
		return false
	}
	key := keyOf(k)
	if _, ok := d.installed[key]; ok {
		return false
	}
	served := d.replaced.maps[mapFrontends]
	var f frontend
	return served == nil || !errors.Is(served.Lookup(key, &f), ebpf.ErrKeyNotExist)
}

func (d *Datapath) attachHooks(programs *ebpf.Collection) error {
	folder, err := d.makeLinksFolder()
	if err != nil {
		return err
	}
	attached := map[string]ebpf.ProgramID{}
	for _, h := range hooks {
		if attached[h.name], err = d.attachHook(folder, h, programs.Programs[h.program]); err != nil {
			return err
		}
	}
	d.attached = attached
	return d.sweepLinks(folder)
}

func (d *Datapath) makeLinksFolder() (string, error) {
	folder := filepath.Join(d.cfg.PinPath, linksFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of pinned links: %w", err)
	}
	return folder, nil
}

// sweepLinks removes the links that an agent left which died in the midst of
// attaching: everything that is not on a hook by its name, nor on a device.
func (d *Datapath) sweepLinks(folder string) error {
	return removeHookLinksBut(folder, func(name string) bool {
		return name == sourceHook.name && d.sourceCheck.Load() != 0 || slices.ContainsFunc(hooks[:], func(h hook) bool { return h.name == name })
	})
}

// removeHookLinks removes the links of the socket path.
func removeHookLinks(pinPath string) error {
	return removeHookLinksBut(filepath.Join(pinPath, linksFolder), func(string) bool { return false })
}

func removeHookLinksBut(folder string, keep func(name string) bool) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the pinned links: %w", err)
	}
	for _, e := range entries {
		if keep(e.Name()) || strings.HasPrefix(e.Name(), tcxPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
			return fmt.Errorf("remove a pinned link: %w", err)
		}
	}
	return nil
}

// compareHooks attaches the programs again if one of them is not where Attach
// put it.
func (d *Datapath) compareHooks() (repaired int, err error) {
	if d.attached == nil {
		return 0, nil
	}
	var missing []string
	for _, h := range hooks {
		if id, on := d.onHook(h); !on || id != d.attached[h.name] {
			missing = append(missing, h.name)
		}
	}
	if len(missing) == 0 {
		return 0, nil
	}
	d.log.Warn("someone else took programs off their hooks, they are attached again", "hooks", missing)
	programs, err := d.loadPrograms()
	if err != nil {
		return 0, err
	}
	defer programs.Close()
	if err := d.attachHooks(programs); err != nil {
		return 0, err
	}
	return len(missing), nil
}

func (d *Datapath) loadPrograms() (*ebpf.Collection, error) {
	programs, err := d.load(loadSock, nil)
	if err != nil {
		return nil, fmt.Errorf("load the programs of the socket path: %w", err)
	}
	return programs, nil
}

// load loads the programs of an object for the current maps, with the settings
// that all objects have and those of its own.
func (d *Datapath) load(read func() (*ebpf.CollectionSpec, error), own map[string]any) (*ebpf.Collection, error) {
	spec, err := read()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF objects: %w", err)
	}
	settings := map[string]any{
		"host_netns":         d.cfg.HostNetNS,
		"host_only":          boolByte(d.cfg.SocketMode == SocketHost),
		"have_set_retval":    boolByte(haveSetRetval() == nil),
		"have_mptcp":         boolByte(haveMPTCP() == nil),
		"have_source_check":  boolByte(d.checksSources),
		"have_command":       boolByte(haveCommand() == nil),
		"have_service_cidrs": boolByte(len(d.cfg.ServiceCIDRs) > 0),
	}
	maps.Copy(settings, own)
	for name, value := range settings {
		if spec.Variables[name] == nil {
			continue
		}
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set the program constant %s: %w", name, err)
		}
	}
	replacements := map[string]*ebpf.Map{}
	for name := range spec.Maps {
		if m := d.current.maps[name]; m != nil {
			spec.Maps[name] = d.spec.Maps[name].Copy()
			replacements[name] = m
		}
	}
	programs, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	if err != nil {
		return nil, readable(err)
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

// attachHook attaches a program, or gives its pinned link this one in place.
func (d *Datapath) attachHook(folder string, h hook, program *ebpf.Program) (ebpf.ProgramID, error) {
	if err := d.putOnHook(folder, h, program); err != nil {
		return 0, fmt.Errorf("attach %s to %s: %w", h.program, d.cfg.Cgroup, err)
	}
	info, err := program.Info()
	if err != nil {
		return 0, fmt.Errorf("ask for the id of %s: %w", h.program, err)
	}
	id, _ := info.ID()
	return id, nil
}

func (d *Datapath) putOnHook(folder string, h hook, program *ebpf.Program) error {
	path := filepath.Join(folder, h.name)
	pinned, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		// There is none, or what stands there is no link.
		return attachNew(d.cfg.Cgroup, path, h, program)
	}
	defer pinned.Close()
	on, err := isOn(pinned, h, d.cfg.Cgroup)
	if err != nil {
		return err
	}
	if !on {
		return attachNew(d.cfg.Cgroup, path, h, program)
	}
	if err := pinned.Update(program); err != nil {
		return fmt.Errorf("replace the program of the pinned link %s: %w", path, err)
	}
	failpoint.Hit("attach: link has the new program")
	return nil
}

// attachNew attaches a program and pins its link in the place of what was
// pinned there, which serves until then: the link to another cgroup, or to one
// that was removed and made again.
func attachNew(cgroup, path string, h hook, program *ebpf.Program) error {
	next := path + "-next"
	if err := os.RemoveAll(next); err != nil {
		return fmt.Errorf("remove a left-over link: %w", err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.attach, Program: program})
	if err != nil {
		return err
	}
	defer l.Close()
	failpoint.Hit("attach: new link is made")
	if err := l.Pin(next); err != nil {
		return fmt.Errorf("pin the link at %s: %w", next, err)
	}
	failpoint.Hit("attach: new link is pinned aside")
	if err := os.Rename(next, path); err != nil {
		return errors.Join(fmt.Errorf("put the new link in its place: %w", err), os.Remove(next))
	}
	failpoint.Hit("attach: new link is in place")
	return nil
}

// isOn compares a link's hook and cgroup with a hook and a folder. A cgroup's
// id is its folder's inode number; a link that was detached, or whose cgroup
// was removed, has 0.
func isOn(l link.Link, h hook, cgroup string) (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("ask what a pinned link is attached to: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(cgroup, &st); err != nil {
		return false, fmt.Errorf("look at the cgroup %s: %w", cgroup, err)
	}
	c := info.Cgroup()
	return c != nil && c.CgroupId == st.Ino && uint32(c.AttachType) == uint32(h.attach), nil
}

// Attachments lists the programs on the cgroup's hooks, ours and those
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
	for _, h := range append(hooks[:], sourceHook) {
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
	for _, h := range append(hooks[:], sourceHook) {
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
