// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// knownEndpoints bounds what is remembered, twice: some 20 MB each time.
const knownEndpoints = 1 << 15

// known are endpoints by their text. What nobody asked for while as many others
// came is forgotten. The zero value is ready for use by any number of goroutines.
type known struct {
	mu            sync.Mutex
	recent, older map[string]discoveryv1.Endpoint
}

// find returns an endpoint that must not be modified.
func (k *known) find(text []byte) (discoveryv1.Endpoint, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.recent[string(text)]; ok {
		return e, true
	}
	e, ok := k.older[string(text)]
	if ok {
		k.keep(string(text), e)
	}
	return e, ok
}

func (k *known) add(text []byte, e discoveryv1.Endpoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keep(string(text), e)
}

func (k *known) keep(text string, e discoveryv1.Endpoint) {
	if len(k.recent) >= knownEndpoints {
		k.recent, k.older = nil, k.recent
	}
	if k.recent == nil {
		k.recent = map[string]discoveryv1.Endpoint{}
	}
	k.recent[text] = e
}
