// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// surveyInterval is how often the endpoints that are not in use are asked.
const surveyInterval = 10 * time.Minute

// keepSurveying asks the endpoints that are not in use now and then: that one is
// dead or something else is to be seen before it is needed. Agents that were
// started together do so at different times.
func (c *Client) keepSurveying(ctx context.Context) {
	timer := time.NewTimer(rand.N(surveyInterval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		c.survey(ctx)
		timer.Reset(surveyInterval)
	}
}

// survey asks them once, one after the other.
func (c *Client) survey(ctx context.Context) {
	for _, r := range c.standing() {
		l, v := c.try(ctx, c.config, r.endpoint.url, r.names)
		if l != nil {
			l.leave()
		}
		if ctx.Err() != nil {
			return
		}
		c.surveyed(r.endpoint.key(), v)
	}
}

// standing are the endpoints that stand by: not the one in use, nor what a race
// is to leave alone or to try last.
func (c *Client) standing() (by []runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ordered() {
		if c.uses(e.key()) || e.isService() || e.state == api.EndpointForeign {
			continue
		}
		by = append(by, runner{endpoint: e, names: e.names(c.own)})
	}
	return by
}

// surveyed notes what was found, unless a race has found out more since.
func (c *Client) surveyed(key string, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses(key) {
		return
	}
	before := c.known()
	c.note(key, v)
	c.forget()
	if !slices.Equal(before, c.known()) {
		signal(c.changed)
	}
}
