// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"slices"

	"github.com/fairlead-io/fairlead/internal/model"
)

// contest keeps who competes for each spot, so that Resolve can be done one
// Service at a time. Most spots have one contender, and those cost one entry;
// the others of a spot stand in rivals, holder excluded.
type contest struct {
	holders map[model.Spot]*input
	rivals  map[model.Spot][]*input
}

func newContest() contest {
	return contest{map[model.Spot]*input{}, map[model.Spot][]*input{}}
}

// enter adds a contender, and returns whose claims on the spot are held by
// another than before, the newcomer itself apart: if it got the spot, all
// others there, since each says who holds it.
func (c *contest) enter(spot model.Spot, in *input) (affected []*input) {
	holder := c.holders[spot]
	if holder == nil {
		c.holders[spot] = in
		return nil
	}
	if holder == in {
		return nil
	}
	if !in.contender.Beats(holder.contender) {
		c.rivals[spot] = append(c.rivals[spot], in)
		return nil
	}
	c.holders[spot] = in
	c.rivals[spot] = append(c.rivals[spot], holder)
	return c.rivals[spot]
}

// leave takes a contender out, and returns all others there: if it was the
// holder, the spot is left without one, and they enter anew.
func (c *contest) leave(spot model.Spot, in *input) (others []*input) {
	if c.holders[spot] != in {
		c.setRivals(spot, slices.DeleteFunc(c.rivals[spot], func(r *input) bool { return r == in }))
		return nil
	}
	delete(c.holders, spot)
	others = c.rivals[spot]
	delete(c.rivals, spot)
	return others
}

func (c *contest) setRivals(spot model.Spot, rivals []*input) {
	if len(rivals) == 0 {
		delete(c.rivals, spot)
		return
	}
	c.rivals[spot] = rivals
}

// holder is what model.Compiled.WithShadows asks.
func (c *contest) holder(spot model.Spot) (model.Name, bool) {
	in := c.holders[spot]
	if in == nil {
		return model.Name{}, false
	}
	return in.name, true
}
