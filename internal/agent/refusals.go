// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"

	"github.com/fairlead-io/fairlead/internal/api"
)

// broadcast hands each refusal to every listener. A listener that is slow
// misses some: the agent never waits for one.
type broadcast struct {
	mu        sync.Mutex
	listeners map[chan api.Refusal]struct{}
}

func newBroadcast() *broadcast {
	return &broadcast{listeners: map[chan api.Refusal]struct{}{}}
}

func (b *broadcast) send(r api.Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.listeners {
		select {
		case c <- r:
		default:
		}
	}
}

func (b *broadcast) listen(ctx context.Context, f func(api.Refusal) error) error {
	const backlog = 1024
	c := make(chan api.Refusal, backlog)
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
		case r := <-c:
			if err := f(r); err != nil {
				return err
			}
		}
	}
}
