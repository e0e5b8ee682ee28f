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
// opened meanwhile stands in the former maps alone.
func (d *Datapath) carryFlows() error {
	if d.replaced == nil || d.replaced.meta.Layout != LayoutVersion {
		return nil
	}
	// In this order, a flow that is confirmed meanwhile is seen in one of them.
	return errors.Join(
		d.carryFlowsOf(mapEmbryos, counterEmbryosCreated),
		d.carryFlowsOf(mapFlows, counterFlowsCreated),
		d.carryFlowsOf(mapDatagrams, counterDatagramsCreated),
	)
}

func (d *Datapath) carryFlowsOf(name string, created uint32) error {
	from, to := d.replaced.maps[name], d.current.maps[name]
	if from == nil || d.current.inherited[name] {
		return nil
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
