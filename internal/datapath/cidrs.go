// SPDX-License-Identifier: Apache-2.0

package datapath

import "math"

// The owners of ranges from which ClusterIPs are given (R38), beside the source
// ranges of Service ports. No Service port has these owners.
const (
	ownerServiceCIDRs = 0
	// ownerHeldCIDRs has them while they are not in force: no program asks for
	// this owner, and their room is kept.
	ownerHeldCIDRs = math.MaxUint32
)

// addServiceCIDRs comes before programs that ask for the ranges.
func (d *Datapath) addServiceCIDRs() error {
	if err := d.dropRanges(ownerHeldCIDRs, nil); err != nil {
		return err
	}
	return d.addRanges(ownerServiceCIDRs, d.cfg.ServiceCIDRs)
}

// holdServiceCIDRs takes them out of force.
func (d *Datapath) holdServiceCIDRs() error {
	if err := d.dropRanges(ownerServiceCIDRs, nil); err != nil {
		return err
	}
	return d.addRanges(ownerHeldCIDRs, d.cfg.ServiceCIDRs)
}

// dropServiceCIDRs deletes those of a predecessor that are not wanted, once its
// programs are replaced.
func (d *Datapath) dropServiceCIDRs() error {
	keep := make(map[rangeKey]struct{}, len(d.cfg.ServiceCIDRs))
	for _, cidr := range d.cfg.ServiceCIDRs {
		keep[rangeKeyOf(ownerServiceCIDRs, cidr)] = struct{}{}
	}
	return d.dropRanges(ownerServiceCIDRs, keep)
}

// ownsRanges says that an owner may have ranges: a Service port that has a set,
// or nobody's.
func (d *Datapath) ownsRanges(owner uint32) bool {
	return owner == ownerServiceCIDRs || owner == ownerHeldCIDRs || d.owners[owner] > 0
}
