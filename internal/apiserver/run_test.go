// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"
	"testing"
	"time"
)

func TestAgentsThatLostAnAPIServerTogetherComeBackOneByOne(t *testing.T) {
	c := &Client{cfg: Config{Heartbeat: 10 * time.Second}}
	const agents, outage = 5000, 2 * time.Minute
	bySecond := make([]int, 11)
	for range agents {
		var pause, at time.Duration
		for at < outage {
			pause = c.longer(pause)
			at += scattered(pause)
		}
		bySecond[(at-outage)/time.Second]++
	}
	if busiest := slices.Max(bySecond); busiest > agents/4 {
		t.Errorf("of %d agents, %d come back in one second: %v", agents, busiest, bySecond)
	}
}
