// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
)

// barrier waits until every program that was running has ended: the kernel
// does so for its own sake when an element of a map-in-map is replaced
// (maybe_wait_bpf_programs in kernel/bpf/syscall.c).
type barrier struct {
	outer, inner *ebpf.Map
}

func newBarrier() (*barrier, error) {
	inner := &ebpf.MapSpec{Name: "fairlead_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	b := &barrier{}
	var err error
	if b.inner, err = ebpf.NewMap(inner); err != nil {
		return nil, fmt.Errorf("create the inner map of the barrier: %w", err)
	}
	b.outer, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "fairlead_outer", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: inner,
	})
	if err != nil {
		b.inner.Close()
		return nil, fmt.Errorf("create the map-in-map of the barrier: %w", err)
	}
	return b, nil
}

func (b *barrier) wait() error {
	if err := b.outer.Put(uint32(0), b.inner); err != nil {
		return fmt.Errorf("wait for running programs: %w", err)
	}
	return nil
}

func (b *barrier) close() {
	b.outer.Close()
	b.inner.Close()
}

// SpareProcessor gives the process one more of the runtime's processors. A
// barrier blocks in the kernel for milliseconds and holds one all the while:
// where there are two, changes would wait for it. Call it once, at the start.
func SpareProcessor() { runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) }

// reclaimDelay lets retired room gather: a barrier costs the same however much
// waits for it, and holds one of the runtime's processors while it does.
const reclaimDelay = time.Second

// reclaim makes retired extents and sets usable again, each after a barrier,
// in its own time: publishing never waits for it. Where room is short, the
// barrier comes at once.
func (d *Datapath) reclaim(ctx context.Context) {
	defer close(d.stopped)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.short:
		case <-d.wake:
			select {
			case <-ctx.Done():
				return
			case <-d.short:
			case <-time.After(reclaimDelay):
			}
		}
		batch := d.takeRetired()
		err := d.barrier.wait()
		for err != nil && ctx.Err() == nil {
			d.log.Error("retired room cannot be reused yet, will try again in a second", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			err = d.barrier.wait()
		}
		if err == nil {
			d.free(batch)
		}
	}
}

// retire lets an extent go. The lock is held.
func (d *Datapath) retire(sh shadow) {
	if sh.length == 0 {
		return
	}
	d.retired.extents = append(d.retired.extents, run{sh.base, sh.length})
	d.retired.slots += uint64(sh.length)
	signal(d.wake)
	if d.retired.slots > d.room.free {
		signal(d.short)
	}
}

func (d *Datapath) takeRetired() retired {
	d.mu.Lock()
	defer d.mu.Unlock()
	batch := d.retired
	d.retired = retired{}
	return batch
}

func (d *Datapath) free(batch retired) {
	d.mu.Lock()
	for _, r := range batch.extents {
		d.room.release(r.first, r.length)
	}
	d.freeSets = append(d.freeSets, batch.sets...)
	d.mu.Unlock()
	signal(d.reclaimed)
}

// Reclaimed signals that room was freed since it was last received from.
func (d *Datapath) Reclaimed() <-chan struct{} { return d.reclaimed }

// signal leaves a note in a channel of one; a note that is there already says
// the same.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
