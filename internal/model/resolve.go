// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Contender is a Service that competes for a spot.
type Contender struct {
	Service Name
	Created time.Time // zero where the source has none, as in a folder of manifests
}

// Beats says that c holds a spot that both claim: the older Service does, and
// of two that are of one age, or both without one, the first by name. A
// Service without a creation time counts as the newest, so that a manifest
// takes nothing from a Service that the API server has dated. Exactly one of
// two Services with different names beats the other.
func (c Contender) Beats(o Contender) bool {
	if c.Created.IsZero() != o.Created.IsZero() {
		return o.Created.IsZero()
	}
	return cmp.Or(c.Created.Compare(o.Created), c.Service.Compare(o.Service)) < 0
}

// Candidate is a Service with what Compile made of it.
type Candidate struct {
	Contender
	Compiled Compiled
}

// Resolve decides who holds each spot that several Services claim, for the
// whole world at once. Names are distinct, and the Compiled come from Compile.
// The result has the order of the input, which is not modified.
//
// The same is reached one Service at a time: keep for each of its Spots who
// contends there, take the one that Beats the others as the holder, and apply
// WithShadows to every contender of a spot whose holder changed.
func Resolve(cs []Candidate) []Candidate {
	holders := make(map[Spot]Contender)
	for _, c := range cs {
		for spot := range c.Compiled.Spots() {
			if h, taken := holders[spot]; !taken || c.Beats(h) {
				holders[spot] = c.Contender
			}
		}
	}
	holder := func(s Spot) (Name, bool) {
		h, taken := holders[s]
		return h.Service, taken
	}
	resolved := slices.Clone(cs)
	for i, c := range cs {
		resolved[i].Compiled = c.Compiled.WithShadows(holder, c.Service)
	}
	return resolved
}

// CompileAll compiles every Service with its own slices, found among all, and
// resolves who holds what: the whole world from scratch, in the order of the
// Services.
func CompileAll(services []*Service, all []*EndpointSlice, node *Node, opts *Options) []Candidate {
	owned := make(map[Name][]*EndpointSlice)
	for _, slice := range all {
		owned[slice.ServiceName()] = append(owned[slice.ServiceName()], slice)
	}
	candidates := make([]Candidate, len(services))
	for i, svc := range services {
		candidates[i] = Candidate{
			Contender: Contender{Service: svc.Name, Created: svc.CreationTimestamp},
			Compiled:  Compile(svc, owned[svc.Name], node, opts),
		}
	}
	return Resolve(candidates)
}

// Spots yields, in order and once each, the spots for which the Service
// contends. A claim that the Service itself or the node shadows holds nothing,
// and so contends for nothing. Call it on what Compile returned.
func (c *Compiled) Spots() iter.Seq[Spot] {
	return func(yield func(Spot) bool) {
		var last Spot
		for i := range c.Claims {
			spot := c.Claims[i].Key.Spot()
			if c.Claims[i].Shadowed != "" || spot == last {
				continue
			}
			if !yield(spot) {
				return
			}
			last = spot
		}
	}
}

// WithShadows returns what is left of a Service's claims while others hold
// some of its spots: claims on those say who does. Call it on what Compile
// returned, not on its own result: it only adds shadows. The receiver is not
// modified, and is returned as it is if nothing changes.
func (c *Compiled) WithShadows(holder func(Spot) (Name, bool), self Name) Compiled {
	shadowed := *c
	for i, claim := range c.Claims {
		if claim.Shadowed != "" {
			continue
		}
		name, held := holder(claim.Key.Spot())
		if !held || name == self {
			continue
		}
		if &shadowed.Claims[0] == &c.Claims[0] {
			shadowed.Claims = slices.Clone(c.Claims)
		}
		shadowed.Claims[i].Shadowed = name.String()
	}
	return shadowed
}
