// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// carryFlows copies the flows of the maps that are replaced to those in force
// that have another size, so that open connections go on (R39). Maps of the
// same size are the same ones.
//
// It runs before the programs change over, and once more after it: what was
// opened meanwhile stands in the former maps alone. Where a predecessor died in
// between, they are those that it had replaced.
func (d *Datapath) carryFlows() error {
	var failures []error
	for _, g := range []*generation{d.former, d.replaced} {
		if g == nil || g.meta.Layout != LayoutVersion {
			continue
		}
		// In this order, a flow that is confirmed meanwhile is seen in one of them.
		failures = append(failures,
			d.carryFlowsOf(g, mapEmbryos, counterEmbryosCreated),
			d.carryFlowsOf(g, mapFlows, counterFlowsCreated),
			d.carryFlowsOf(g, mapDatagrams, counterDatagramsCreated),
		)
	}
	return errors.Join(failures...)
}

func (d *Datapath) carryFlowsOf(g *generation, name string, created uint32) error {
	from, to := g.maps[name], d.current.maps[name]
	if from == nil {
		return nil
	}
	// Writing to a full map what it has would push out something else.
	if same, err := sameMap(from, to); err != nil || same {
		return err
	}
	var carried uint64
	var failed error
	err := readFlows(from, func(k flowKey, f flow) {
		switch err := to.Update(k, f, ebpf.UpdateNoExist); {
		case err == nil:
			carried++
		case !errors.Is(err, ebpf.ErrKeyExist):
			failed = err
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("carry the flows of %s over: %w", name, err)
	}
	if carried == 0 {
		return nil
	}
	return d.addToCounter(created, carried)
}

// sameMap says whether two descriptors are of one map.
func sameMap(a, b *ebpf.Map) (bool, error) {
	x, errX := a.Info()
	y, errY := b.Info()
	if err := errors.Join(errX, errY); err != nil {
		return false, fmt.Errorf("ask for the ids of two maps: %w", err)
	}
	idX, okX := x.ID()
	idY, okY := y.ID()
	return okX && okY && idX == idY, nil
}
