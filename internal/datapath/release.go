// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	// releaseInterval is the time between two passes while backends go.
	releaseInterval = 100 * time.Millisecond
	// releaseRetry is when a pass that could not do all is made again.
	releaseRetry = 10 * time.Second
)

// releases is what publishing and releasing share.
type releases struct {
	due      chan struct{} // to the releaser: backends may be gone
	sockets  atomic.Uint64
	stranded atomic.Uint64
}

// Releases counts the connected UDP sockets whose backend is gone.
type Releases struct {
	Sockets  uint64 // destroyed since the start
	Stranded uint64 // of the last pass: in a namespace that no process of /proc lives in
}

// Releases says how many sockets were let go. Safe from any goroutine.
func (d *Datapath) Releases() Releases {
	return Releases{Sockets: d.releases.sockets.Load(), Stranded: d.releases.stranded.Load()}
}

// ReleaseSockets destroys connected UDP sockets whose backend is gone, and no
// others, until ctx ends (R35). It looks at all sockets when the maps come in
// force, and whenever a backend may have left after that. Safe beside all
// other methods but Close.
func (d *Datapath) ReleaseSockets(ctx context.Context) error {
	r, err := newReleaser(d.current)
	if err != nil {
		d.log.Warn("connected UDP sockets will keep backends that are gone until they are closed", "because", err)
		return nil
	}
	defer r.close()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.releases.due:
		case <-again:
		}
		again = nil
		if !d.passTwice(ctx, r) {
			again = time.After(releaseRetry)
		}
	}
}

// passTwice makes a pass at once, and one for the sockets that were amid
// connect() during the first: they had chosen a backend, but were not
// connected to it yet. It says whether all was done.
func (d *Datapath) passTwice(ctx context.Context, r *releaser) (done bool) {
	for range 2 {
		result, err := r.pass()
		d.releases.sockets.Add(uint64(len(result.released)))
		d.releases.stranded.Store(uint64(result.stranded))
		d.logReleases(ctx, result.released)
		if err != nil {
			d.log.Error("not all UDP sockets whose backend is gone could be released, will try again", "error", err, "in", releaseRetry)
		}
		done = err == nil && result.stranded == 0
		select {
		case <-ctx.Done():
			return done
		case <-time.After(releaseInterval):
		}
	}
	return done
}

func (d *Datapath) logReleases(ctx context.Context, sockets []releasedSocket) {
	if !d.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for _, s := range sockets {
		service := ""
		if n := d.current.names[s.Set]; n.Owner == s.Owner {
			if k, ok := n.key(); ok {
				service = k.Service.String()
			}
		}
		d.log.Debug("released a UDP socket whose backend is gone", "service", service,
			"frontend", s.Frontend.addrPort(), "backend", s.Backend.addrPort())
	}
}

// backendsLeft tells the releaser that UDP backends may be gone. Maps that are
// not in force say nothing of what sockets use.
func (d *Datapath) backendsLeft() {
	if d.current.adopted {
		signal(d.releases.due)
	}
}

// endpoint is struct endpoint of bpf/maps.h.
type endpoint struct {
	Address address
	Port    port
	_       uint16
}

func (e endpoint) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(e.Address.addr(), e.Port.uint16())
}

// releasedSocket is struct released of bpf/release.c.
type releasedSocket struct {
	Frontend endpoint
	Backend  endpoint
	Owner    uint32
	Set      uint32
}

// releaser holds the two programs of bpf/release.c.
type releaser struct {
	find    *link.Iter
	release *link.Iter
}

func newReleaser(g *generation) (*releaser, error) {
	spec, err := loadRelease()
	if err != nil {
		return nil, fmt.Errorf("read the embedded eBPF objects: %w", err)
	}
	replacements := map[string]*ebpf.Map{}
	for _, name := range []string{mapPeers, mapSets, mapBackends} {
		replacements[name] = g.maps[name]
		spec.Maps[name].MaxEntries = g.maps[name].MaxEntries()
	}
	var programs releasePrograms
	if err := spec.LoadAndAssign(&programs, &ebpf.CollectionOptions{MapReplacements: replacements}); err != nil {
		return nil, fmt.Errorf("load the programs that release sockets: %w", readable(err))
	}
	defer programs.Close()
	find, err := link.AttachIter(link.IterOptions{Program: programs.FairleadFind, Map: g.maps[mapPeers]})
	if err != nil {
		return nil, fmt.Errorf("make an iterator over the sockets' storage: %w", err)
	}
	release, err := link.AttachIter(link.IterOptions{Program: programs.FairleadRelease})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make an iterator over UDP sockets: %w", err), find.Close())
	}
	return &releaser{find, release}, nil
}

func (r *releaser) close() {
	r.find.Close()
	r.release.Close()
}

// passResult is what one pass over all sockets came to.
type passResult struct {
	released []releasedSocket
	stranded int
}

// pass looks for sockets to be released in all namespaces at once, and then
// enters those that have some.
func (r *releaser) pass() (result passResult, err error) {
	found, err := r.findSockets()
	if err != nil || len(found) == 0 {
		return result, err
	}
	namespaces, err := openNamespaces(found)
	defer namespaces.close()
	for inode, sockets := range found {
		ns, ok := namespaces[inode]
		if !ok {
			result.stranded += sockets
			continue
		}
		released, releaseErr := r.releaseIn(ns)
		result.released = append(result.released, released...)
		err = errors.Join(err, releaseErr)
	}
	return result, err
}

// findSockets counts the sockets to be released by the inode of their namespace.
func (r *releaser) findSockets() (map[uint32]int, error) {
	sockets, err := r.find.Open()
	if err != nil {
		return nil, fmt.Errorf("go through the sockets' storage: %w", err)
	}
	inodes, err := readRecords[uint32](sockets)
	if err != nil {
		return nil, fmt.Errorf("go through the sockets' storage: %w", err)
	}
	found := map[uint32]int{}
	for _, inode := range inodes {
		found[inode]++
	}
	return found, nil
}

// releaseIn releases the sockets of a namespace. Where an iterator is made
// tells which sockets it goes through; it can be read anywhere.
func (r *releaser) releaseIn(ns namespace) (released []releasedSocket, err error) {
	var sockets io.ReadCloser
	err = ns.do(func() error {
		sockets, err = r.release.Open()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("go through the UDP sockets of %s: %w", ns, err)
	}
	if released, err = readRecords[releasedSocket](sockets); err != nil {
		return released, fmt.Errorf("go through the UDP sockets of %s: %w", ns, err)
	}
	return released, nil
}

// readRecords runs an iterator to its end and closes it. The kernel hands out
// whole records; what was read before an error is returned with it.
func readRecords[T any](iterator io.ReadCloser) (records []T, err error) {
	defer iterator.Close()
	var all bytes.Buffer
	for {
		_, err = all.ReadFrom(iterator)
		// So it says that a million objects have passed without a record.
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	var one T
	records = make([]T, all.Len()/binary.Size(one))
	if _, decodeErr := binary.Decode(all.Bytes(), binary.NativeEndian, records); decodeErr != nil {
		return nil, errors.Join(err, decodeErr)
	}
	return records, err
}
