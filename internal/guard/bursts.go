// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"sync"
	"time"
)

const (
	// burstLength is the time in which burstSize deletes by one user are a burst.
	burstLength = 10 * time.Second
	burstSize   = 5
	// tidyUsers is from how many users on those are forgotten who are quiet.
	tidyUsers = 1000
)

// bursts counts deletes by user. Admission sees one delete at a time; that they
// come in a row is seen here. The zero value is ready.
type bursts struct {
	mu     sync.Mutex
	byUser map[string][]time.Time // the last burstLength, oldest first
}

// note counts a delete, and returns how many there were of late with it.
func (b *bursts) note(user string, now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byUser == nil {
		b.byUser = map[string][]time.Time{}
	}
	if len(b.byUser) >= tidyUsers {
		maps.DeleteFunc(b.byUser, func(_ string, at []time.Time) bool { return now.Sub(at[len(at)-1]) > burstLength })
	}
	at := append(b.byUser[user], now)
	for now.Sub(at[0]) > burstLength {
		at = at[1:]
	}
	b.byUser[user] = at
	return len(at)
}
