// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	done, cancel := context.WithCancel(t.Context())
	cancel()
	t.Run("each pause is longer, up to the longest", func(t *testing.T) {
		var b Backoff
		for last := time.Duration(0); last < longestPause; last = b.pause {
			b.Wait(done, nil)
			if b.pause <= last || b.pause > longestPause {
				t.Fatalf("%s after %s", b.pause, last)
			}
		}
	})
	t.Run("an API server that is found again ends it, and the next is a short one", func(t *testing.T) {
		found := make(chan struct{})
		close(found)
		b := Backoff{longestPause}
		began := time.Now()
		b.Wait(t.Context(), found)
		if waited := time.Since(began); waited > firstPause || b.pause != 0 {
			t.Errorf("it waited %s, and goes on after %s", waited, b.pause)
		}
	})
}
