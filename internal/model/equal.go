// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// Equal says that the proxy would do the same for both. It allocates nothing.
func (c *Compiled) Equal(o *Compiled) bool {
	if len(c.Sets) != len(o.Sets) || !slices.Equal(c.Claims, o.Claims) {
		return false
	}
	for i := range c.Sets {
		if !c.Sets[i].Equal(&o.Sets[i]) {
			return false
		}
	}
	return true
}

// Equal says that both sets treat every connection alike, for the same stated
// reason. It allocates nothing.
func (s *Set) Equal(o *Set) bool {
	return s.Key == o.Key &&
		s.Action == o.Action &&
		s.Reason == o.Reason &&
		s.AffinitySeconds == o.AffinitySeconds &&
		s.Selection == o.Selection &&
		slices.Equal(s.SourceRanges, o.SourceRanges) &&
		equalBackends(s.Backends, o.Backends) &&
		equalBackends(s.Draining, o.Draining)
}

func equalBackends(a, b []Backend) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].equal(&b[i]) {
			return false
		}
	}
	return true
}

func (b *Backend) equal(o *Backend) bool {
	return b.AddrPort == o.AddrPort &&
		b.State == o.State &&
		b.Local == o.Local &&
		b.Node == o.Node &&
		slices.Equal(b.Slices, o.Slices)
}
