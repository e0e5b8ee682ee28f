// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-io/fairlead/internal/api"
)

// broadcast hands each event to every listener. A listener that is slow
// misses some: the agent never waits for one.
type broadcast struct {
	mu        sync.Mutex
	listeners map[chan api.Event]struct{}
}

func newBroadcast() *broadcast {
	return &broadcast{listeners: map[chan api.Event]struct{}{}}
}

func (b *broadcast) send(e api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.listeners {
		select {
		case c <- e:
		default:
		}
	}
}

func (b *broadcast) listen(ctx context.Context, f func(api.Event) error) error {
	const backlog = 1024
	c := make(chan api.Event, backlog)
	b.mu.Lock()
	b.listeners[c] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.listeners, c)
		b.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-c:
			if err := f(e); err != nil {
				return err
			}
		}
	}
}
