// SPDX-License-Identifier: Apache-2.0

package replay

import "github.com/fairlead-io/fairlead/internal/reflector"

// problems are what could not be used: for each object the last one.
type problems struct {
	byObject map[string][]reflector.Problem
	order    []string // as they came first
}

func (p *problems) note(in *input) {
	if len(in.problems) == 0 {
		return
	}
	if p.byObject == nil {
		p.byObject = map[string][]reflector.Problem{}
	}
	object := objectTitle(&in.event)
	if _, known := p.byObject[object]; !known {
		p.order = append(p.order, object)
	}
	p.byObject[object] = in.problems
}

func (p *problems) list() (all []reflector.Problem) {
	for _, object := range p.order {
		all = append(all, p.byObject[object]...)
	}
	return all
}
