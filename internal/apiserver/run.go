// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ErrNoDirectAddress is the error of Connect when the only address of the API
// server is that of a Service, and nobody answers there.
var ErrNoDirectAddress = errors.New("no address of an API server itself is known: give --api-server https://HOST:PORT")

// firstPause is how long to wait after the first race that found nobody. Each
// further pause is twice as long, up to the time between two heartbeats.
const firstPause = 200 * time.Millisecond

// Connect looks for an API server once. If nobody answers, that is no error as
// long as an address of the API server itself is known, for Run goes on trying;
// else it waits for an answer, for twice the timeout of a heartbeat.
func (c *Client) Connect(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, 2*c.cfg.Timeout)
	defer cancel()
	for pause := time.Duration(0); bound.Err() == nil; pause = c.longer(pause) {
		if c.rest(bound, pause, nil) && c.race(bound) || ctx.Err() == nil && c.noDirectAddress() == nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("looking for the API server: %w", context.Cause(ctx))
	}
	return c.noDirectAddress()
}

func (c *Client) noDirectAddress() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.endpoints {
		if !e.isService() {
			return nil
		}
	}
	return fmt.Errorf("%w (the address of a Service in this pod's environment does not answer: %s)", ErrNoDirectAddress, c.tried())
}

// Run keeps an API server at hand until ctx ends, and then leaves it.
func (c *Client) Run(ctx context.Context) error {
	defer c.leave()
	var surveys sync.WaitGroup
	surveys.Go(func() { c.keepSurveying(ctx) })
	defer surveys.Wait()
	var pause time.Duration
	for {
		next, doubted := c.cfg.Heartbeat, c.doubted
		if c.race(ctx) {
			pause = 0
		} else {
			pause = c.longer(pause)
			next, doubted = scattered(pause), nil
		}
		if !c.rest(ctx, next, doubted) {
			return nil
		}
	}
}

// longer is the pause after one more race that found nobody.
func (c *Client) longer(pause time.Duration) time.Duration {
	return min(max(2*pause, firstPause), c.cfg.Heartbeat)
}

// scattered is half of the pause to all of it: the agents that lost an API server
// at the same moment must not all come back to it at the same moment.
func scattered(pause time.Duration) time.Duration { return pause/2 + rand.N(pause/2+1) }

// rest waits, a little less at times, so that agents that were started together
// do not stay together. Something new to try cuts it short, and so does doubt.
// It is false if ctx ended.
func (c *Client) rest(ctx context.Context, pause time.Duration, doubted <-chan struct{}) bool {
	timer := time.NewTimer(pause - rand.N(pause/8+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-c.learned:
	case <-doubted:
	}
	return ctx.Err() == nil
}

// leave leaves the link in use for no other one.
func (c *Client) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		c.link.leave()
	}
	c.link = nil
}

// doubt has a race started if the link is still in use.
func (c *Client) doubt(l *link, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != c.link {
		return
	}
	if !c.doubtful {
		c.log.Debug("a request to the API server failed; asking whether it is well", "url", l.url.String(), "error", err)
	}
	c.doubtful = true
	signal(c.doubted)
}

// inUse returns the link in use, whether it is in doubt, so that a race may find
// a better one, and a channel that is closed when a race has ended.
func (c *Client) inUse() (l *link, doubtful bool, turned <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link, c.doubtful && !c.mute, c.turned
}

// unreachable says that nobody answers, and why.
func (c *Client) unreachable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tried := c.tried(); tried != "" {
		return fmt.Errorf("no API server answers (%s)", tried)
	}
	return errors.New("no API server was asked yet")
}
