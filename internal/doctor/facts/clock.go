// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"time"
)

// apiServerLabel is of the Leases that API servers renew every ten seconds for as
// long as they run.
const apiServerLabel = "apiserver.kubernetes.io/identity"

// usualLag is for how long a Lease may be old though all clocks agree.
const usualLag = 30 * time.Second

// Skew is by how much the cluster's clock is ahead of that of who collected: whoever
// listed the Leases was answered by an API server, which had renewed its own. It is
// 0 if they agree, or if nothing tells. Nil Objects tell nothing.
func (o *Objects) Skew() time.Duration {
	if o == nil {
		return 0
	}
	var newest, read time.Time
	for _, l := range o.Leases {
		if l.Labels[apiServerLabel] != "" && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(newest) {
			newest, read = l.Spec.RenewTime.Time, o.Record(l).Time
		}
	}
	if skew := newest.Sub(read); !newest.IsZero() && !read.IsZero() && skew.Abs() > usualLag {
		return skew
	}
	return 0
}

// Skew is that of the newest sample that tells.
func (c *Case) Skew() time.Duration {
	for _, s := range slices.Backward(c.Samples) {
		if skew := s.Objects.Skew(); skew != 0 {
			return skew
		}
	}
	return 0
}
