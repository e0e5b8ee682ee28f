// SPDX-License-Identifier: Apache-2.0

package reflector

import "sync"

// internLimit bounds an interner: in a cluster whose nodes come and go for
// years, names that nobody uses any more must not pile up.
const internLimit = 1 << 16

// interner shares strings that many endpoints repeat: the names of nodes,
// zones, namespaces and ports. Every string is kept as a list of one, because
// that is the form in which topology hints repeat it. The zero value is ready
// for use by several goroutines.
type interner struct {
	mu    sync.Mutex
	lists map[string][]string
}

// list returns the shared list that holds s alone. It must not be modified.
func (i *interner) list(s string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if l, ok := i.lists[s]; ok {
		return l
	}
	if i.lists == nil || len(i.lists) >= internLimit {
		i.lists = make(map[string][]string)
	}
	l := []string{s}
	i.lists[s] = l
	return l
}

// string returns the shared copy of s.
func (i *interner) string(s string) string {
	if s == "" {
		return ""
	}
	return i.list(s)[0]
}
