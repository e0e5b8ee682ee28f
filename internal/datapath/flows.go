// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// flowKey is struct flow_key of bpf/maps.h: a packet of a flow as it arrives
// at a program; 40 bytes.
type flowKey struct {
	Source     address
	Target     address
	SourcePort port
	TargetPort port
	Protocol   uint8
	At         uint8 // atIngress or atEgress
	_          uint16
}

// flow is struct flow: what the packet becomes; 104 bytes.
type flow struct {
	Source     address
	Target     address
	SourcePort port
	TargetPort port
	Owner      uint32
	Set        uint32
	Seal       uint32
	Stamp      uint64
	Used       uint64 // nanoseconds of CLOCK_MONOTONIC, to about a second
	Sequence   uint32
	State      uint8
	Flags      uint8
	At         uint8 // of the other direction's key
	_          uint8
	Path       path
}

// path is struct path: how a direction that leaves past the stack did so last.
type path struct {
	Found  uint64
	Next   address
	Device uint32
	MTU    uint16
	Family uint8
	_      uint8
}

// The flags and states of flows, and the programs that a direction passes.
const (
	flowReply    = 1 << 0
	flowRedirect = 1 << 1

	flowAnswered  = 1 << 0
	flowFinClient = 1 << 1
	flowFinServer = 1 << 2
	flowReset     = 1 << 3
	flowEnded     = flowFinClient | flowFinServer

	atIngress = 0
	atEgress  = 1
)

// other is the key of the flow's other direction.
func (k flowKey) other(f *flow) flowKey {
	return flowKey{
		Source: f.Target, Target: f.Source, SourcePort: f.TargetPort, TargetPort: f.SourcePort,
		Protocol: k.Protocol, At: f.At,
	}
}

// timeout is how long a flow is kept without a packet; bpf/flow.h says the same.
func (f *flow) timeout(p model.Protocol, embryo bool) time.Duration {
	switch {
	case p == model.UDP && embryo:
		return 30 * time.Second
	case p == model.UDP:
		return 2 * time.Minute
	case f.State&flowReset != 0, f.State&flowEnded == flowEnded, embryo:
		return time.Minute
	case f.State&flowEnded != 0:
		return time.Hour
	}
	return 24 * time.Hour
}

// monotonic is the clock that programs read.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// sweepInterval is how often flows that are over are taken away. Programs do
// without: they know an old flow by its age, and the maps evict the oldest.
// It is done for people, who want to see how many flows there are.
const sweepInterval = 30 * time.Second

// sweepFlows takes flows away that are over, until ctx ends.
func (d *Datapath) sweepFlows(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := monotonic()
		if err == nil {
			err = errors.Join(d.sweep(mapFlows, now), d.sweep(mapDatagrams, now), d.sweep(mapEmbryos, now))
		}
		if err != nil {
			d.log.Warn("flows that are over could not be taken away, will try again", "error", err)
		}
	}
}

// sweeps are the counters of what is taken away, by map.
var sweeps = map[string]uint32{
	mapFlows: counterFlowsSwept, mapDatagrams: counterDatagramsSwept, mapEmbryos: counterEmbryosSwept,
}

// sweep deletes from a map the flows of which neither direction has seen a
// packet for as long as flows of its kind are kept.
func (d *Datapath) sweep(name string, now uint64) error {
	m := d.current.maps[name]
	counter, embryo := sweeps[name], name == mapEmbryos
	over := func(k flowKey, f *flow) bool {
		return f.Used+uint64(f.timeout(model.Protocol(k.Protocol), embryo)) < now
	}
	var old []flowKey
	err := readFlows(m, func(k flowKey, f flow) {
		if over(k, &f) {
			old = append(old, k, k.other(&f))
		}
	})
	if err != nil {
		return fmt.Errorf("read the flows of %s: %w", name, err)
	}
	deleted, err := deleteFlows(m, old, over)
	if err != nil {
		return fmt.Errorf("delete a flow of %s: %w", name, err)
	}
	return d.addToCounter(counter, deleted)
}

// deleteFlows deletes flows, two keys for each, but for those one of whose
// directions is not over: it was used all the time, or since the flow was read.
func deleteFlows(m *ebpf.Map, flows []flowKey, over func(flowKey, *flow) bool) (deleted uint64, err error) {
	isUsed := func(k flowKey) bool {
		var f flow
		return m.Lookup(k, &f) == nil && !over(k, &f)
	}
	for pair := range slices.Chunk(flows, 2) {
		if slices.ContainsFunc(pair, isUsed) {
			continue
		}
		for _, k := range pair {
			if err := m.Delete(k); err == nil {
				deleted++
			} else if err := ignoreMissing(err); err != nil {
				return deleted, err
			}
		}
	}
	return deleted, nil
}

// readFlows calls f for every element, both directions.
func readFlows(m *ebpf.Map, f func(flowKey, flow)) error { return readHash(m, f) }
