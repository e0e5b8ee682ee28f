// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

const (
	// headStart is what the first of a race gets before the others start.
	headStart = 300 * time.Millisecond
	// foreignPause is how long a foreign endpoint is left alone.
	foreignPause = time.Minute
)

// runner is an endpoint in a race.
type runner struct {
	endpoint endpoint // as it was at the start
	names    []string
	link     *link // the one in use, if it is at this endpoint and worth asking
}

// heat is the runners that start together, and how long they run alone; 0: to
// their end.
type heat struct {
	runners []runner
	alone   time.Duration
}

// result is how a runner did. It owns its link.
type result struct {
	key  string
	link *link // nil: silent or foreign
	verdict
}

// race looks for an endpoint that answers, puts it in use, and says whether it
// found one. Results that are not waited for are thrown away.
func (c *Client) race(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan result)
	var unready result
	running := 0
	for _, h := range c.heats(time.Now()) {
		for _, r := range h.runners {
			running++
			go func() { c.hand(ctx, results, c.run(ctx, r)) }()
		}
		late := make(<-chan time.Time)
		if h.alone > 0 {
			late = time.After(h.alone)
		}
		for started := false; running > 0 && !started; {
			select {
			case <-ctx.Done():
				c.discard(unready)
				return false
			case <-late:
				started = true
			case r := <-results:
				running--
				if r.state == api.EndpointAnswers {
					c.discard(unready)
					return c.finish(r)
				}
				unready = c.better(unready, r)
			}
		}
	}
	return c.finish(unready)
}

// run asks an endpoint over the link in use, and if that fails over a new one:
// a connection can be dead while its server is well.
func (c *Client) run(ctx context.Context, r runner) result {
	if r.link != nil {
		v := r.link.heartbeat(ctx, c.cfg.Timeout)
		if v.state == api.EndpointAnswers || v.state == api.EndpointUnready {
			return result{r.endpoint.key(), r.link, v}
		}
	}
	l, v := c.try(ctx, c.config, r.endpoint.url, r.names)
	return result{r.endpoint.key(), l, v}
}

// hand gives a result to the race, unless that is over.
func (c *Client) hand(ctx context.Context, results chan<- result, r result) {
	select {
	case results <- r:
	case <-ctx.Done():
		c.discard(r)
	}
}

// discard leaves the link of a result, unless it is the one in use.
func (c *Client) discard(r result) {
	if r.link == nil {
		return
	}
	c.mu.Lock()
	inUse := c.link == r.link
	c.mu.Unlock()
	if !inUse {
		r.link.leave()
	}
}

// better notes a result that is no answer, and returns which of two unready
// endpoints to use if there is nothing else: the one in use, or the first.
func (c *Client) better(a, b result) result {
	c.mu.Lock()
	c.note(b.key, b.verdict)
	second := b.link != nil && (a.link == nil || b.link == c.link)
	c.mu.Unlock()
	if second {
		a, b = b, a
	}
	c.discard(b)
	return a
}

// heats draws up a race. All that is foreign stands back until its pause is
// over, and then runs last, beside the Service address.
func (c *Client) heats(now time.Time) []heat {
	healthy := c.healthyLink()
	c.mu.Lock()
	defer c.mu.Unlock()
	var first, others, last []runner
	for _, e := range c.ordered() {
		r := runner{endpoint: e, names: e.names(c.own)}
		if healthy != nil && healthy.url == e.url {
			r.link = healthy
		}
		foreign := e.state == api.EndpointForeign
		switch {
		case foreign && now.Sub(e.tried) < foreignPause:
		case foreign || e.isService():
			last = append(last, r)
		case first == nil:
			first = append(first, r)
		default:
			others = append(others, r)
		}
	}
	return []heat{{first, c.alone()}, {others, 0}, {last, 0}}
}

// healthyLink is the link in use, unless its certificate is an old one.
func (c *Client) healthyLink() *link {
	l, _, _ := c.inUse()
	if l == nil || l.rotated() {
		return nil
	}
	return l
}

// alone is how long the first runner has the road to itself. One in good order
// gets the time of a whole heartbeat, for a slow answer is no reason to leave.
func (c *Client) alone() time.Duration {
	if c.secondBest() || c.doubtful {
		return headStart
	}
	return c.cfg.Timeout
}

// finish ends a race: it puts the link of the result in use, leaves the one
// that was, and lets waiting requests go on.
func (c *Client) finish(r result) bool {
	c.mu.Lock()
	before, known := c.link, c.known()
	if r.link != nil {
		c.use(r)
	} else {
		c.lose()
	}
	c.doubtful = false
	c.forget()
	close(c.turned)
	c.turned = make(chan struct{})
	if c.link != before || !slices.Equal(known, c.known()) {
		signal(c.changed)
	}
	left := before != nil && before != c.link
	c.mu.Unlock()
	if left {
		before.leave()
	}
	return r.link != nil
}

// use puts a link in use. Its endpoint stays in the list from now on, even if
// it was taken out of it during the race.
func (c *Client) use(r result) {
	now := time.Now()
	if c.index(r.key) < 0 {
		c.endpoints = append(c.endpoints, endpoint{url: r.link.url, since: now})
	}
	c.note(r.key, r.verdict)
	if r.state == api.EndpointAnswers {
		c.answered = now
	}
	same := c.uses(r.key)
	if !same {
		c.since = now
	}
	if !same || c.mute {
		close(c.found)
		c.found = make(chan struct{})
		c.log.Info("using the API server", "url", r.key, "state", r.state)
	}
	c.link, c.best, c.mute = r.link, r.key, false
}

// lose notes that nobody answered. The link in use stays, as nobody has a
// better one, unless it leads to a stranger.
func (c *Client) lose() {
	if c.link != nil && c.endpoints[c.index(c.link.url.String())].state == api.EndpointForeign {
		c.link, c.since = nil, time.Now()
	}
	if !c.mute {
		c.log.Warn("no API server answers; what is in force stays so while they are tried again", "tried", c.tried())
	}
	c.mute = true
}

// note sets the state of an endpoint.
func (c *Client) note(key string, v verdict) {
	i := c.index(key)
	if i < 0 {
		return
	}
	e := &c.endpoints[i]
	e.tried, e.err = time.Now(), v.err
	if e.state == v.state {
		return
	}
	if v.state == api.EndpointForeign {
		c.log.Warn("something else than the API server answers; it gets no token", "url", key, "error", v.err)
	}
	e.state, e.since = v.state, e.tried
}

// tried says of every endpoint why it is not in use.
func (c *Client) tried() string {
	var out []string
	for _, e := range c.ordered() {
		if e.err != nil {
			out = append(out, fmt.Sprintf("%s: %v", e.key(), e.err))
		}
	}
	return strings.Join(out, "; ")
}
