// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// trouble is something that cannot be done at present, and what that means, in
// words that go before the error.
type trouble string

// troubles keeps what goes wrong until it goes well.
type troubles struct {
	log *slog.Logger

	mu      sync.Mutex
	present map[trouble]error
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, present: map[trouble]error{}}
}

// note takes how something went, and logs the beginning and the end of a
// trouble.
func (t *troubles) note(what trouble, err error) {
	t.mu.Lock()
	_, had := t.present[what]
	delete(t.present, what)
	if err != nil {
		t.present[what] = err
	}
	t.mu.Unlock()
	switch {
	case err != nil && !had:
		t.log.Error(string(what)+"; will try again", "error", err)
	case err == nil && had:
		t.log.Info("no longer: " + string(what))
	}
}

// findings says in a sentence each what goes wrong at present.
func (t *troubles) findings() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var sentences []string
	for _, what := range slices.Sorted(maps.Keys(t.present)) {
		sentences = append(sentences, fmt.Sprintf("%s: %v", what, t.present[what]))
	}
	return sentences
}
