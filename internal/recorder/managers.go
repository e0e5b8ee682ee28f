// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// manager is an entry of managedFields: who wrote some fields of an object, and
// when last, to the second.
type manager struct {
	name, operation, subresource string
	at                           time.Time
	fields                       map[string]any
	mark                         uint64 // alike only for entries that say the same
}

// managersOf reads metadata.managedFields.
func (s *states) managersOf(list any) []manager {
	entries, _ := list.([]any)
	managers := make([]manager, 0, len(entries))
	for _, entry := range entries {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		m := manager{
			name: text(fields, "manager"), operation: text(fields, "operation"), subresource: text(fields, "subresource"),
			mark: maphash.Bytes(s.seed, s.encode(entry)),
		}
		m.at, _ = time.Parse(time.RFC3339, text(fields, "time"))
		m.fields, _ = fields["fieldsV1"].(map[string]any)
		managers = append(managers, m)
	}
	return managers
}

func text(fields map[string]any, key string) string {
	s, _ := fields[key].(string)
	return s
}

func marksOf(managers []manager) []uint64 {
	marks := make([]uint64, len(managers))
	for i, m := range managers {
		marks[i] = m.mark
	}
	return marks
}

// writerOf finds who wrote the state that these managers are of. The marks are
// those of the state before, nil if they are not known.
//
// Whoever wrote has changed its own entry, unless it wrote the same fields twice
// within a second. Others may have changed because they lost fields to it: what
// changed is the writer's. A field that was removed is nobody's any more; then
// the newest entry tells. Of a write to the scale an API server notes no time.
func writerOf(managers []manager, before []uint64, diff []journal.Change) manager {
	changed := slices.DeleteFunc(slices.Clone(managers), func(m manager) bool { return slices.Contains(before, m.mark) })
	if len(changed) == 0 {
		changed = managers
	}
	changed = newest(owners(changed, diff))
	if len(changed) == 0 {
		return manager{}
	}
	return slices.MinFunc(changed, func(a, b manager) int {
		return strings.Compare(a.operation+" "+a.name+" "+a.subresource, b.operation+" "+b.name+" "+b.subresource)
	})
}

func newest(managers []manager) []manager {
	var best []manager
	for _, m := range managers {
		if len(best) > 0 && m.at.After(best[0].at) {
			best = nil
		}
		if len(best) == 0 || m.at.Equal(best[0].at) {
			best = append(best, m)
		}
	}
	return best
}

// owners keeps those who own one of the changed fields, or all if none does.
func owners(managers []manager, diff []journal.Change) []manager {
	var owning []manager
	for _, m := range managers {
		if slices.ContainsFunc(diff, func(c journal.Change) bool { return owns(m.fields, c.Path) }) {
			owning = append(owning, m)
		}
	}
	if len(owning) == 0 {
		return managers
	}
	return owning
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// owns says whether a set of fields holds what a path leads to. Elements of
// lists are named by their keys there and not by their index, so a path into a
// list leads to the list.
func owns(fields map[string]any, path string) bool {
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if len(fields) == 0 {
			return true // a field that is owned as a whole
		}
		inner, ok := fields["f:"+unescape.Replace(segment)].(map[string]any)
		if !ok {
			return isIndex(segment)
		}
		fields = inner
	}
	return true
}

func isIndex(segment string) bool {
	return segment != "" && strings.Trim(segment, "0123456789") == ""
}
