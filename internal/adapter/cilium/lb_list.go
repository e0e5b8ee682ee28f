// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
)

// ParseLBList reads the table of `cilium-dbg bpf lb list`.
func ParseLBList(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: lbListSource}
	entries := lbEntries{}
	key := ""
	for n, line := range d.Lines(r) {
		if n == 1 || strings.TrimSpace(line) == "" {
			continue
		}
		first, value, found := twoColumns(strings.TrimRight(line, " "))
		if !found {
			d.Problemf(n, "%q has no backend address", line)
			continue
		}
		// A line without a key goes on with the one before.
		if first != "" {
			key = first
		}
		if err := entries.add(&d, n, key, value); err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	d.Frontends = entries.frontends()
	return d
}

// twoColumns parts a line of two cells, of which only the first may be empty, at
// its first gap: in the beginning any blank is one, and later two are. A large
// cluster has a hundred thousand lines on each node, so no pattern is tried here.
func twoColumns(line string) (first, second string, found bool) {
	const blanks = " \t\f\r"
	blank := func(at int) bool { return at < len(line) && strings.IndexByte(blanks, line[at]) >= 0 }
	for i := range line {
		if blank(i) && (i == 0 || blank(i+1)) {
			return line[:i], strings.TrimLeft(line[i:], blanks), true
		}
	}
	return line, "", false
}

// ParseLBListJSON reads `cilium-dbg bpf lb list -o json`.
func ParseLBListJSON(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: lbListSource}
	var list map[string][]string
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		d.Cut(1, "it is no map of addresses: %v", err)
		return d
	}
	entries := lbEntries{}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		for _, value := range list[key] {
			if err := entries.add(&d, 1, key, value); err != nil {
				d.Problemf(1, "%s: %v", key, err)
			}
		}
	}
	d.Frontends = entries.frontends()
	return d
}

// lbEntries are frontends by their address as it is written. Each slot of a
// frontend is an entry of the list, and they come in any order.
type lbEntries map[string]*adapter.Frontend

var (
	lbMaster  = regexp.MustCompile(`^\S+:0 \(\d+\) \(0\)(?: \[([^\]]*)\])?\s*(.*)$`)
	lbBackend = regexp.MustCompile(`^(\S+) \(\d+\)(?: \(\d+\))?(?: \[([^\]]*)\])?\s*$`)
	lbDangle  = regexp.MustCompile(`^backend (\d+) not found$`)
)

// add notes what stands in one slot of a frontend.
func (l lbEntries) add(d *adapter.Dump, line int, key, value string) error {
	address, slot, numbered := strings.Cut(key, " ")
	if address == "" || numbered && !isSlot(slot) {
		return fmt.Errorf("%q is no service address", key)
	}
	fe, known := l[address]
	if !known {
		parsed, err := parseFrontend(address)
		if err != nil {
			return err
		}
		fe = &parsed
		fe.Line = line
		l[address] = fe
	}
	return lbSlot(d, line, fe, value)
}

// isSlot says whether a text is the number of a slot, as "(3)".
func isSlot(text string) bool {
	text, opens := strings.CutPrefix(text, "(")
	text, closes := strings.CutSuffix(text, ")")
	_, err := strconv.ParseUint(text, 10, 32)
	return opens && closes && err == nil
}

// lbSlot reads the value of a slot: the flags of the frontend, a backend, or
// the number of one that is not there.
func lbSlot(d *adapter.Dump, line int, fe *adapter.Frontend, value string) error {
	value = strings.TrimSpace(value)
	if strings.Contains(value, ":0 (") {
		if master := lbMaster.FindStringSubmatch(value); master != nil {
			if master[1] != "" {
				fe.Type, fe.Flags = flags(master[1], ",")
			}
			return nil
		}
	}
	if dangle := lbDangle.FindStringSubmatch(value); dangle != nil {
		d.Oddf(line, "a slot of %s names backend %s, which is not in the map", fe.Address, dangle[1])
		return nil
	}
	backend := lbBackend.FindStringSubmatch(value)
	if backend == nil {
		return fmt.Errorf("%q is no backend", value)
	}
	address, _, err := parseL4(backend[1])
	if err != nil {
		return err
	}
	if backend[2] != "" {
		fe.Type, fe.Flags = flags(backend[2], ",")
	}
	fe.Backends = append(fe.Backends, adapter.Backend{Address: address})
	return nil
}

func (l lbEntries) frontends() []adapter.Frontend {
	var out []adapter.Frontend
	for _, fe := range l {
		if isWildcard(*fe) {
			continue
		}
		slices.SortFunc(fe.Backends, compareBackends)
		out = append(out, *fe)
	}
	slices.SortFunc(out, compareFrontends)
	return withScopes(out)
}
