// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/failpoint"
	"github.com/fairlead-io/fairlead/internal/maglev"
	"github.com/fairlead-io/fairlead/internal/model"
)

// ErrHeld says that another agent holds the pin path. It stays the only
// writer for as long as it lives.
var ErrHeld = errors.New("another agent is the writer")

// SocketMode says whose connections the socket path translates.
type SocketMode string

// The socket modes.
const (
	SocketAll  SocketMode = "all"
	SocketHost SocketMode = "host" // the node's own namespace only
	SocketOff  SocketMode = "off"
)

// Config is what a Datapath is opened with.
type Config struct {
	PinPath    string // folder on a bpffs
	Cgroup     string // cgroup v2 folder whose processes are served
	SocketMode SocketMode
	HostNetNS  uint64 // cookie of the node's network namespace
	Wire       Wire
	// ServiceCIDRs are the ranges from which ClusterIPs are given: what no
	// Service has of them is dropped (R38).
	ServiceCIDRs []netip.Prefix
	Node         string // for people who look at the maps
	Sizes        Sizes
	// MaglevTableSize is that of each set which asks for a table; 0 is
	// maglev.DefaultSize.
	MaglevTableSize maglev.Size
}

// SetID is the index of a backend set in the kernel's array.
type SetID uint32

// Frontend is an address to be written, and the set it points to.
type Frontend struct {
	Key model.FrontendKey
	Set SetID
}

// Same says that both stand at one place in the kernel and point to one set:
// there a row of scope "all" stands where one of scope "internal" would.
func (f Frontend) Same(o Frontend) bool { return f.Set == o.Set && keyOf(f.Key) == keyOf(o.Key) }

// Datapath is the one writer of the maps under a pin path. It is not safe for
// concurrent use, but for what its methods' comments say.
type Datapath struct {
	cfg     Config
	log     *slog.Logger
	lock    *os.File
	spec    *ebpf.CollectionSpec
	current *generation
	barrier *barrier

	inherited bool // see Inherited
	// replaced is the generation that current takes over from on Attach; nil
	// if the pinned maps were adopted as they are.
	replaced *generation
	// former is one that a predecessor had replaced when it died amid Attach: its
	// programs may be on hooks and write flows to it until the next Attach.
	former *generation

	// known are the sets and owners found on start, until they are claimed or
	// pruned.
	known adopted
	// installed is what the frontends map holds.
	installed map[frontendKey]installed
	// frontendCount is its length, for other goroutines.
	frontendCount atomic.Int64
	stores        atomic.Uint64 // words stored since the start
	// owners counts the sets in use of each owner.
	owners    map[uint32]int
	addressMu sync.Mutex // guards addresses and primary
	// addresses are those of which the kernel knows something, whatever the port.
	addresses map[address]*addressUse
	// primary is the node's primary address of each family, once it was told.
	primary map[uint32]address
	// ranges are the source ranges in the kernel, by owner.
	ranges map[uint32]map[rangeKey]struct{}
	// strays are hash elements that make no sense; Prune deletes them. None is
	// in installed.
	strays map[frontendKey]struct{}
	// attached is the program on each hook; nil until Attach went well.
	attached map[string]ebpf.ProgramID
	// checksSources says that the programs leave sources that are not known yet
	// to sourceHook.
	checksSources bool
	sourceCheck   atomic.Uint32 // the program on it; 0: none is wanted
	wire          wire

	mu       sync.Mutex // guards what publishing and reclaiming share
	room     *extents
	shadows  []shadow // by set id
	freeSets []SetID
	retired  retired

	releases releases

	wake      chan struct{} // to the reclaimer: something is retired
	short     chan struct{} // to the reclaimer: room is short
	reclaimed chan struct{} // from it: room was freed
	stop      context.CancelFunc
	stopped   chan struct{}
	sweeping  sync.WaitGroup
}

// installed is one element of the frontends map.
type installed struct {
	set    SetID
	wanted bool // asked for since the start; Prune deletes the others
}

// shadow is what is known of a set in use without trusting the mapping, which
// others can write. An owner of 0 means the id is free.
type shadow struct {
	owner  uint32
	role   model.Role
	base   uint32
	length uint32
	ranged bool // it has source ranges
}

// retired waits for the barrier before it can be used again.
type retired struct {
	extents []run
	sets    []SetID
	slots   uint64 // of all extents
}

type run struct{ first, length uint32 }

// Open takes the lock on the pin path and adopts what is pinned there. It
// writes nothing that a running program could see. ErrHeld names the holder.
func Open(cfg Config, log *slog.Logger) (*Datapath, error) {
	lock, err := lockPinPath(cfg.PinPath)
	if err != nil {
		return nil, err
	}
	d := &Datapath{
		cfg: cfg, log: log, lock: lock,
		installed: map[frontendKey]installed{},
		strays:    map[frontendKey]struct{}{},
		owners:    map[uint32]int{},
		addresses: map[address]*addressUse{},
		ranges:    map[uint32]map[rangeKey]struct{}{},
		known:     newAdopted(),

		checksSources: cfg.SocketMode == SocketAll && haveSourceCheck() == nil,
		wire:          wire{programs: map[bool]*ebpf.Collection{}},
		releases:      releases{due: make(chan struct{}, 1)},
		wake:          make(chan struct{}, 1),
		short:         make(chan struct{}, 1),
		reclaimed:     make(chan struct{}, 1),
		stopped:       make(chan struct{}),
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go d.reclaim(ctx)
	d.sweeping.Go(func() { d.sweepFlows(ctx) })
	return d, nil
}

func (d *Datapath) open() error {
	spec, err := mapSpecs(d.cfg.Sizes)
	if err != nil {
		return err
	}
	d.spec = spec
	if d.barrier, err = newBarrier(); err != nil {
		return err
	}
	pinned, err := openGeneration(d.cfg.PinPath, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	d.inherited = pinned != nil
	d.former = openFormer(d.cfg.PinPath, pinned)
	specs := pinnedMaps(spec)
	if pinned != nil {
		reason := pinned.fits(specs)
		if reason == nil {
			d.current, d.inherited = pinned, d.onHooks()
			return d.adopt()
		}
		d.log.Info("new maps are filled beside the pinned ones", "because", reason)
	}
	d.replaced = pinned
	number := 1
	if pinned != nil {
		number = pinned.number + 1
	}
	if d.current, err = createGeneration(d.cfg.PinPath, number, specs, pinned); err != nil {
		return err
	}
	// Before source ranges can fill the map.
	if err := d.addServiceCIDRs(); err != nil {
		return err
	}
	failpoint.Hit("open: new maps are made")
	return d.adopt()
}

// Inherited says that a predecessor's maps were in force when this writer was
// opened: after a reboot there are none, and without a program on every hook
// those that are there serve nobody, or not all. Maps that are to be replaced are
// taken to be in force: what replaces them must be whole first.
func (d *Datapath) Inherited() bool { return d.inherited }

// adopt learns what the maps hold, so that only differences are written.
func (d *Datapath) adopt() error {
	d.room = newExtents(uint32(len(d.current.slots)))
	d.shadows = make([]shadow, len(d.current.sets))
	d.sign()
	failpoint.Hit("open: signed")
	if d.replaced != nil {
		d.adoptOwners(d.replaced)
		failpoint.Hit("open: owners are kept")
		return nil
	}
	if !d.current.adopted {
		d.freeAllSets()
		return nil
	}
	// The predecessor may have died between a store and its barrier.
	if err := d.barrier.wait(); err != nil {
		return err
	}
	failpoint.Hit("open: no program sees a former set")
	return d.adoptSets()
}

// sign writes who the writer is.
func (d *Datapath) sign() {
	m := d.current.meta
	m.PID = uint32(os.Getpid())
	m.Started = uint64(time.Now().Unix())
	m.Node = [64]byte{}
	copy(m.Node[:len(m.Node)-1], d.cfg.Node)
	if m.NextOwner == 0 {
		m.NextOwner = 1
	}
}

// Close ends the writer and leaves everything pinned as it is.
func (d *Datapath) Close() error {
	d.stop()
	<-d.stopped
	d.sweeping.Wait()
	return d.release()
}

// release closes what is open, of which a failed start has only some.
func (d *Datapath) release() error {
	d.closeWire()
	for _, g := range []*generation{d.current, d.replaced, d.former} {
		if g != nil {
			g.close()
		}
	}
	if d.barrier != nil {
		d.barrier.close()
	}
	return d.lock.Close()
}
