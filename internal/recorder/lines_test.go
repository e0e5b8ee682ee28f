// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"slices"
	"sync"
)

// lines are written by one goroutine and read by another.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}
