// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// smallSizes keep a comparison of whole maps quick.
func smallSizes() Sizes {
	return Sizes{Frontends: 256, Sets: 64, Backends: 1024, Affinity: 64, Flows: 64, UDP: 64, Ranges: 64}
}

// rig is a writer that can be ended and started again over the same maps.
type rig struct {
	*Datapath
	t   testing.TB
	cfg Config
}

func newRig(t testing.TB, sizes Sizes) *rig {
	t.Helper()
	return newRigWith(t, Config{Sizes: sizes})
}

// newRigWith adds to a Config what all rigs have in common.
func newRigWith(t testing.TB, cfg Config) *rig {
	t.Helper()
	cfg.PinPath, cfg.SocketMode, cfg.Node = filepath.Join(lab.NewBPFFS(t), "fairlead"), SocketOff, "n1"
	r := &rig{t: t, cfg: cfg}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	d, err := Open(r.cfg, r.logger())
	if err != nil {
		r.t.Fatal(err)
	}
	r.Datapath = d
}

func (r *rig) logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (r *rig) close() {
	r.t.Helper()
	if r.Datapath == nil {
		return
	}
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
	r.Datapath = nil
}

// attach makes the maps current, as an agent does after its first write.
func (r *rig) attach() {
	r.t.Helper()
	if err := r.Attach(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) reopen() {
	r.t.Helper()
	r.close()
	r.open()
}

// create makes or adopts a set under its owner, as the reconciler does.
func (r *rig) create(k model.SetKey) SetID {
	r.t.Helper()
	id, err := r.createSet(k)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) createSet(k model.SetKey) (SetID, error) {
	owner, ok := r.ClaimOwner(k)
	if !ok {
		owner = r.NewOwner()
	}
	return r.CreateSet(k, owner)
}

func (r *rig) publish(id SetID, s *model.Set) (changed bool) {
	r.t.Helper()
	changed, err := r.Publish(id, s)
	if err != nil {
		r.t.Fatal(err)
	}
	return changed
}

func (r *rig) insert(frontends ...Frontend) {
	r.t.Helper()
	if errs := r.InsertFrontends(frontends); errs != nil {
		r.t.Fatal(errors.Join(errs...))
	}
}

func (r *rig) delete(frontends ...Frontend) {
	r.t.Helper()
	if err := r.DeleteFrontends(frontends); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) release(id SetID) {
	r.t.Helper()
	if err := r.ReleaseSet(id); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) prune() int {
	r.t.Helper()
	n, err := r.Prune()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// reclaimAll waits until nothing is retired any more.
func (r *rig) reclaimAll(slots uint64, sets int) {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		free, freeSets := r.room.free, len(r.freeSets)
		r.mu.Unlock()
		if free == slots && freeSets == sets {
			return
		}
		select {
		case <-r.Reclaimed():
		case <-deadline:
			r.t.Fatalf("after 10 s %d slots and %d sets are free, want %d and %d", free, freeSets, slots, sets)
		}
	}
}

func service(name string) model.SetKey {
	return model.SetKey{
		Service: model.Name{Namespace: "default", Name: name}, PortName: "http",
		Protocol: model.TCP, Family: model.IPv4, Role: model.RoleClusterIP,
	}
}

func vip(name string) model.SetKey {
	k := service(name)
	k.Role = model.RoleVIPInternal
	return k
}

// forward is a set of the given backends, which must be sorted.
func forward(k model.SetKey, backends ...string) *model.Set {
	s := &model.Set{Key: k, Backends: backendsOf(backends...)}
	if len(backends) == 0 {
		s.Action = model.ActionReject
	}
	return s
}

func backendsOf(addresses ...string) []model.Backend {
	backends := make([]model.Backend, 0, len(addresses))
	for _, a := range addresses {
		backends = append(backends, model.Backend{AddrPort: netip.MustParseAddrPort(a)})
	}
	return backends
}

// numbered is a set of n backends at distinct addresses.
func numbered(k model.SetKey, n int) *model.Set {
	s := forward(k)
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		s.Action = model.ActionForward
		s.Backends = append(s.Backends, model.Backend{AddrPort: netip.AddrPortFrom(a, 8080)})
	}
	return s
}

// at is a frontend of the set.
func at(address string, id SetID) Frontend {
	ap := netip.MustParseAddrPort(address)
	return Frontend{Key: model.FrontendKey{Address: ap.Addr(), Port: ap.Port(), Protocol: model.TCP}, Set: id}
}

// dump is every pinned map byte for byte, read through the pins with system
// calls and not through the writer's own mappings. The time of signing is
// left out: it alone may change when a writer starts.
type dump map[string]map[string]string

func (r *rig) dump() dump {
	r.t.Helper()
	d := dump{}
	folder, err := filepath.EvalSymlinks(filepath.Join(r.cfg.PinPath, currentLink))
	if err != nil {
		r.t.Fatal(err)
	}
	pins, err := os.ReadDir(folder)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, pin := range pins {
		d[pin.Name()] = dumpMap(r.t, filepath.Join(folder, pin.Name()))
	}
	return d
}

func dumpMap(t testing.TB, path string) map[string]string {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	elements := map[string]string{}
	switch m.Type() {
	case ebpf.RingBuf, ebpf.SkStorage, ebpf.PerCPUArray:
		return elements
	}
	var key, value []byte
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		if filepath.Base(path) == mapMeta {
			clear(value[16:24])
		}
		elements[hex.EncodeToString(key)] = hex.EncodeToString(value)
	}
	if err := entries.Err(); err != nil {
		t.Fatalf("dump %s: %v", path, err)
	}
	return elements
}

// expectSame fails if anything but the elements named "map key" differs.
func expectSame(t testing.TB, before, after dump, but ...string) {
	t.Helper()
	for name := range before {
		for key := range before[name] {
			if slices.Contains(but, name+" "+key) {
				delete(before[name], key)
				delete(after[name], key)
			}
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the maps changed (-before +after):\n%s", diff)
	}
}

// element names the element of an array map, for expectSame.
func element(name string, index uint32) string {
	return fmt.Sprintf("%s %s", name, hex.EncodeToString([]byte{byte(index), byte(index >> 8), byte(index >> 16), byte(index >> 24)}))
}

// intruder is someone else who writes to the pinned maps.
func (r *rig) intruder() *generation {
	r.t.Helper()
	g, err := openGeneration(r.cfg.PinPath, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil || g == nil {
		r.t.Fatalf("open the pinned maps a second time: %v, %v", g, err)
	}
	r.t.Cleanup(g.close)
	return g
}

// entries are what a reader sees, one line each.
func (r *rig) entries() []string {
	r.t.Helper()
	reader, err := OpenReader(r.cfg.PinPath)
	if err != nil {
		r.t.Fatal(err)
	}
	defer reader.Close()
	kernel, err := reader.Kernel()
	if err != nil {
		r.t.Fatal(err)
	}
	lines := []string{}
	for _, e := range kernel.Entries {
		line := fmt.Sprintf("%s:%d %s %s", e.Address, e.Port, e.Service, e.Action)
		for _, b := range e.Backends {
			line += fmt.Sprintf(" %s:%d", b.Address, b.Port)
		}
		if e.Problem != "" {
			line += " PROBLEM " + e.Problem
		}
		lines = append(lines, line)
	}
	for _, e := range kernel.UnusedSets {
		lines = append(lines, fmt.Sprintf("unused %s %s", e.Service, e.Problem))
	}
	return lines
}

func (r *rig) expectEntries(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.entries()); diff != "" {
		r.t.Errorf("the kernel's entries (-want +got):\n%s", diff)
	}
}

func exists(t testing.TB, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
