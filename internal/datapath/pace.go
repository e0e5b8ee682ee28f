// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"time"
)

// refusalPace bounds what refusals cost the node: whoever can send packets can
// have them refused at the rate of the wire. The buffer holds what comes in two
// such spans, and what finds it full is counted.
func refusalPace() pace { return pace{most: 1000, per: 100 * time.Millisecond} }

// pace lets no more than most happen in a span.
type pace struct {
	most int
	per  time.Duration

	began time.Time
	taken int
}

// next waits for the next span if this one is used up, or until ctx ends.
func (p *pace) next(ctx context.Context) {
	now := time.Now()
	if now.Sub(p.began) >= p.per {
		p.began, p.taken = now, 0
	}
	p.taken++
	if p.taken <= p.most {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(p.began.Add(p.per).Sub(now)):
	}
	p.began, p.taken = time.Now(), 1
}
