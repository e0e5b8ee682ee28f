// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// Sizes bound the maps. Each is a number of entries.
type Sizes struct {
	Frontends uint32 // addresses × ports × protocols (× 2 where policies differ)
	Sets      uint32 // Service ports × families × roles
	Backends  uint32 // slots: 1 + backends of each set, plus room to publish
	Affinity  uint32 // clients remembered by ClientIP affinity
	Flows     uint32 // connections on the wire, confirmed ones; besides, half as many flows of UDP, and a sixteenth of unconfirmed ones
	UDP       uint32 // pairs of unconnected UDP sockets that use several Services
	Ranges    uint32 // loadBalancerSourceRanges
}

// DefaultSizes fit a node of a cluster with some 20 000 Services.
func DefaultSizes() Sizes {
	return Sizes{
		Frontends: 65536,
		Sets:      65536,
		Backends:  524288,
		Affinity:  65536,
		Flows:     131072,
		UDP:       65536,
		Ranges:    16384,
	}
}

// Bytes is the kernel memory each map takes, by name: entries times the size
// of an entry with the kernel's overhead per element.
func (s Sizes) Bytes() map[string]uint64 {
	const hashOverhead = 48 + 8 // htab_elem and a bucket's share
	u := func(n uint32, each uintptr) uint64 { return uint64(n) * uint64(each) }
	return map[string]uint64{
		mapFrontends: u(s.Frontends, unsafe.Sizeof(frontendKey{})+4+unsafe.Sizeof(frontend{})+hashOverhead),
		mapAddresses: u(s.Frontends+maxNodeAddresses, unsafe.Sizeof(address{})+8+hashOverhead),
		mapSets:      u(s.Sets, unsafe.Sizeof(setEntry{})),
		mapNames:     u(s.Sets, unsafe.Sizeof(name{})),
		mapBackends:  u(s.Backends, unsafe.Sizeof(slot{})),
		mapAffinity:  u(s.Affinity, 24+32+hashOverhead+16),
		mapUDP:       u(s.UDP, 32+24+hashOverhead+16),
		mapRanges:    u(s.Ranges, 24+4+40),
		mapFlows:     u(2*s.Flows, unsafe.Sizeof(flowKey{})+unsafe.Sizeof(flow{})+hashOverhead+16),
		mapDatagrams: u(2*datagrams(s.Flows), unsafe.Sizeof(flowKey{})+unsafe.Sizeof(flow{})+hashOverhead+16),
		mapEmbryos:   u(2*embryos(s.Flows), unsafe.Sizeof(flowKey{})+unsafe.Sizeof(flow{})+hashOverhead+16),
	}
}

// Total is the kernel memory of all these maps.
func (s Sizes) Total() (total uint64) {
	for _, bytes := range s.Bytes() {
		total += bytes
	}
	return total
}

// The maps by their pinned names; those without a comment are in bpf/maps.h.
const (
	mapFrontends = "fairlead_frontends"
	mapSets      = "fairlead_sets"
	mapBackends  = "fairlead_backends"
	mapRanges    = "fairlead_ranges"
	mapAddresses = "fairlead_addresses"
	mapPrimary   = "fairlead_primary"
	mapDevices   = "fairlead_devices"
	mapFlows     = "fairlead_flows"
	mapDatagrams = "fairlead_datagrams"
	mapEmbryos   = "fairlead_embryos"
	mapFragments = "fairlead_fragments"
	mapAffinity  = "fairlead_affinity"
	mapPeers     = "fairlead_peers"
	mapExempt    = "fairlead_exempt"
	mapUDP       = "fairlead_udp"
	mapRefused   = "fairlead_refused"
	mapEvents    = "fairlead_events"
	mapCounters  = "fairlead_counters"
	mapNames     = "fairlead_names" // set id -> name, for people and restarts
	mapMeta      = "fairlead_meta"  // one element, meta
)

// maxNodeAddresses is the room for addresses of the node besides those of
// frontends.
const maxNodeAddresses = 4096

// datagrams is how many confirmed flows of UDP there is room for.
func datagrams(flows uint32) uint32 { return max(flows/2, 1024) }

// embryos is how many unconfirmed flows there is room for. Each new flow takes
// the one that was used longest ago, and a map that fits into the processor's
// caches makes that a third cheaper; a flood of n packets a second leaves a
// client embryos/n seconds for its handshake.
func embryos(flows uint32) uint32 { return max(flows/16, 1024) }

// generation is one set of maps that belong together.
type generation struct {
	number    int
	maps      map[string]*ebpf.Map
	adopted   bool            // in force: left by a predecessor, or since Attach
	inherited map[string]bool // of a new generation: the map is the previous one's

	sets     []setEntry
	slots    []slot
	names    []name
	meta     *meta
	mappings [][]byte
}

func mapSpecs(sizes Sizes) (*ebpf.CollectionSpec, error) {
	spec, err := loadSock()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF objects: %w", err)
	}
	for name, entries := range map[string]uint32{
		mapFrontends: sizes.Frontends,
		mapSets:      sizes.Sets,
		mapBackends:  sizes.Backends,
		mapRanges:    sizes.Ranges,
		mapAffinity:  sizes.Affinity,
		mapUDP:       sizes.UDP,
		mapAddresses: sizes.Frontends + maxNodeAddresses,
		mapFlows:     2 * sizes.Flows,
		mapDatagrams: 2 * datagrams(sizes.Flows),
		mapEmbryos:   2 * embryos(sizes.Flows),
	} {
		spec.Maps[name].MaxEntries = entries
	}
	spec.Maps[mapNames] = &ebpf.MapSpec{
		Name: mapNames, Type: ebpf.Array, Flags: unix.BPF_F_MMAPABLE,
		KeySize: 4, ValueSize: uint32(unsafe.Sizeof(name{})), MaxEntries: sizes.Sets,
	}
	spec.Maps[mapMeta] = &ebpf.MapSpec{
		Name: mapMeta, Type: ebpf.Array, Flags: unix.BPF_F_MMAPABLE,
		KeySize: 4, ValueSize: uint32(unsafe.Sizeof(meta{})), MaxEntries: 1,
	}
	return spec, nil
}

// pinnedMaps are the maps of a generation: all but the programs' constants.
func pinnedMaps(spec *ebpf.CollectionSpec) map[string]*ebpf.MapSpec {
	specs := map[string]*ebpf.MapSpec{}
	for name, m := range spec.Maps {
		if strings.HasPrefix(name, "fairlead_") {
			specs[name] = m
		}
	}
	return specs
}

// createGeneration makes and pins new maps. Maps of the previous generation
// that have the right layout and shape and hold the state of sockets go on in
// the new one: open connections keep their peers and clients their affinity.
func createGeneration(pinPath string, number int, specs map[string]*ebpf.MapSpec, previous *generation) (_ *generation, err error) {
	folder := generationFolder(pinPath, number)
	if err := os.RemoveAll(folder); err != nil {
		return nil, fmt.Errorf("remove the unfinished maps in %s: %w", folder, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of new maps: %w", err)
	}
	failpoint.Hit("open: folder of new maps is made")
	g := &generation{number: number, maps: map[string]*ebpf.Map{}, inherited: map[string]bool{}}
	defer func() {
		if err != nil {
			g.close()
			os.RemoveAll(folder)
		}
	}()
	for name, spec := range specs {
		m, err := inherit(previous, name, spec)
		if err != nil {
			return nil, err
		}
		g.inherited[name] = m != nil
		if m == nil {
			m, err = ebpf.NewMap(spec)
			if err != nil {
				return nil, fmt.Errorf("create map %s with %d entries: %w", name, spec.MaxEntries, err)
			}
		}
		g.maps[name] = m
		if err := m.Pin(filepath.Join(folder, name)); err != nil {
			return nil, fmt.Errorf("pin map %s: %w", name, err)
		}
		failpoint.Hit("open: new map is pinned")
	}
	if err := g.mmap(unix.PROT_READ | unix.PROT_WRITE); err != nil {
		return nil, err
	}
	g.meta.Layout = LayoutVersion
	failpoint.Hit("open: layout is named")
	return g, nil
}

// inherit returns the previous generation's map if it holds the state of
// sockets or clients, and still means what the spec says and has its shape. The
// mark of an exempt socket means the same in every layout.
func inherit(previous *generation, name string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	if previous == nil || previous.maps[name] == nil || spec.Compatible(previous.maps[name]) != nil {
		return nil, nil
	}
	switch name {
	case mapExempt:
	case mapPeers, mapUDP, mapAffinity, mapRefused, mapFlows, mapDatagrams, mapEmbryos, mapFragments:
		if previous.meta.Layout != LayoutVersion {
			return nil, nil
		}
	default:
		return nil, nil
	}
	m, err := previous.maps[name].Clone()
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor of map %s: %w", name, err)
	}
	return m, nil
}

// remedy is what helps where pins are broken that somebody else touched.
const remedy = "end the agent, run `fairlead cleanup`, and start the agent again"

// openGeneration opens what the current link names; nil if there is none. The
// kernel maps no array through a read-only descriptor, so that a reader is one
// by its mapping: protection is unix.PROT_READ, with PROT_WRITE for a writer.
func openGeneration(pinPath string, protection int) (*generation, error) {
	number, err := currentNumber(pinPath)
	if err != nil || number == 0 {
		return nil, err
	}
	return openNumbered(pinPath, number, protection)
}

// openFormer opens the generation that the current one has replaced, if it is
// still pinned. One that is not whole was about to be removed, and is of no use.
func openFormer(pinPath string, current *generation) *generation {
	if current == nil {
		return nil
	}
	g, err := openNumbered(pinPath, current.number-1, unix.PROT_READ)
	if err != nil {
		return nil
	}
	return g
}

// currentNumber is that of the generation which the current link names; 0 if
// there is none.
func currentNumber(pinPath string) (int, error) {
	target, err := os.Readlink(filepath.Join(pinPath, currentLink))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read which maps are current: %w: %s", err, remedy)
	}
	number, ok := generationNumber(target)
	if !ok {
		return 0, fmt.Errorf("%s names %q, which is no generation of maps: %s", filepath.Join(pinPath, currentLink), target, remedy)
	}
	return number, nil
}

func openNumbered(pinPath string, number, protection int) (*generation, error) {
	g := &generation{number: number, maps: map[string]*ebpf.Map{}, adopted: true}
	folder := generationFolder(pinPath, number)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("list the pinned maps: %w: %s", err, remedy)
	}
	for _, e := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(folder, e.Name()), nil)
		if err != nil {
			g.close()
			return nil, fmt.Errorf("open the pinned map %s: %w", e.Name(), err)
		}
		g.maps[e.Name()] = m
	}
	if err := g.mmapMeta(protection); err != nil {
		g.close()
		return nil, err
	}
	// Arrays of another layout may have any shape; fits sorts them out.
	if err := g.mmapArrays(protection); err != nil && g.meta.Layout == LayoutVersion {
		g.close()
		return nil, err
	}
	return g, nil
}

// fits says whether the generation can serve as it is: nil, or why not.
func (g *generation) fits(specs map[string]*ebpf.MapSpec) error {
	if g.meta.Layout != LayoutVersion {
		return fmt.Errorf("the pinned maps have layout %d, this agent writes layout %d", g.meta.Layout, LayoutVersion)
	}
	for name, spec := range specs {
		m := g.maps[name]
		if m == nil {
			return fmt.Errorf("the map %s is not pinned", name)
		}
		if err := spec.Compatible(m); err != nil {
			return fmt.Errorf("the pinned map %s has another shape: %w", name, err)
		}
	}
	return nil
}

// mmap maps what is written by stores.
func (g *generation) mmap(protection int) error {
	if err := g.mmapMeta(protection); err != nil {
		return err
	}
	return g.mmapArrays(protection)
}

func (g *generation) mmapMeta(protection int) error {
	metas, err := mapSlice[meta](g, mapMeta, protection)
	if err != nil {
		return err
	}
	if len(metas) != 1 {
		return fmt.Errorf("map %s has %d entries instead of one", mapMeta, len(metas))
	}
	g.meta = &metas[0]
	return nil
}

// mmapArrays maps all arrays, or none.
func (g *generation) mmapArrays(protection int) error {
	sets, err := mapSlice[setEntry](g, mapSets, protection)
	if err != nil {
		return err
	}
	slots, err := mapSlice[slot](g, mapBackends, protection)
	if err != nil {
		return err
	}
	names, err := mapSlice[name](g, mapNames, protection)
	if err != nil {
		return err
	}
	g.sets, g.slots, g.names = sets, slots, names
	return nil
}

// mapSlice maps a whole array map. The element's size must match, or the
// mapping would be misread.
func mapSlice[T any](g *generation, name string, protection int) ([]T, error) {
	m := g.maps[name]
	if m == nil {
		return nil, fmt.Errorf("the map %s is not pinned: %s", name, remedy)
	}
	var zero T
	size := int(unsafe.Sizeof(zero))
	if m.Type() != ebpf.Array || int(m.ValueSize()) != size || m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return nil, fmt.Errorf("map %s is a %s of %d-byte values, not a mappable array of %d-byte values", name, m.Type(), m.ValueSize(), size)
	}
	entries := int(m.MaxEntries())
	page := os.Getpagesize()
	length := (entries*size + page - 1) / page * page
	b, err := unix.Mmap(m.FD(), 0, length, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %s into memory: %w", length, name, err)
	}
	g.mappings = append(g.mappings, b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), entries), nil
}

func (g *generation) close() {
	for _, b := range g.mappings {
		unix.Munmap(b)
	}
	g.mappings, g.sets, g.slots, g.names, g.meta = nil, nil, nil, nil, nil
	for _, m := range g.maps {
		m.Close()
	}
}

// Validate says whether the kernel can take maps of these sizes.
func (s Sizes) Validate() error {
	for _, f := range []struct {
		flag    string
		entries uint32
		most    uint32
	}{
		{"--max-frontends", s.Frontends, 1 << 24},
		{"--max-sets", s.Sets, 1 << 24},
		{"--max-backends", s.Backends, 1 << 26},
		{"--max-affinity", s.Affinity, 1 << 24},
		{"--max-flows", s.Flows, 1 << 23},
		{"--max-udp-pairs", s.UDP, 1 << 24},
		{"--max-source-ranges", s.Ranges, 1 << 24},
	} {
		if f.entries < 2 || f.entries > f.most {
			return fmt.Errorf("%s %d: it must be between 2 and %d", f.flag, f.entries, f.most)
		}
	}
	return nil
}
