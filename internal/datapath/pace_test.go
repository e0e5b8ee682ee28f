// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPaceIsKept(t *testing.T) {
	for _, c := range []struct {
		name       string
		times      int
		apart      time.Duration
		atLeast    time.Duration
		lessThan   time.Duration
		interrupts bool
	}{
		{"a few do not wait", 100, 0, 0, time.Nanosecond, false},
		{"as many as may be do not wait", 1000, 0, 0, time.Nanosecond, false},
		{"a flood is spread", 10_500, 0, time.Second, 1100 * time.Millisecond, false},
		{"what comes slowly enough does not wait", 3000, 100 * time.Microsecond, 300 * time.Millisecond, 301 * time.Millisecond, false},
		{"nobody waits for what has ended", 10_500, 0, 0, time.Nanosecond, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.interrupts {
					cancel()
				}
				p, began := refusalPace(), time.Now()
				for range c.times {
					time.Sleep(c.apart)
					p.next(ctx)
				}
				if took := time.Since(began); took < c.atLeast || took >= c.lessThan {
					t.Errorf("it took %s, want at least %s and less than %s", took, c.atLeast, c.lessThan)
				}
			})
		})
	}
}
