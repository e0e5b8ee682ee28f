// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
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
		cells := columnGap.Split(strings.TrimRight(line, " "), 2)
		if len(cells) != 2 {
			d.Problemf(n, "%q has no backend address", line)
			continue
		}
		// A line without a key goes on with the one before.
		if cells[0] != "" {
			key = cells[0]
		}
		if err := entries.add(&d, n, key, cells[1]); err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	d.Frontends = entries.frontends()
	return d
}

// columnGap parts the columns of a table whose cells are never empty but the
// first.
var columnGap = regexp.MustCompile(`^\s+|\s{2,}`)

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
	lbKey     = regexp.MustCompile(`^(\S+?)(?: \((\d+)\))?$`)
	lbMaster  = regexp.MustCompile(`^\S+:0 \(\d+\) \(0\)(?: \[([^\]]*)\])?\s*(.*)$`)
	lbBackend = regexp.MustCompile(`^(\S+) \(\d+\)(?: \(\d+\))?(?: \[([^\]]*)\])?\s*$`)
	lbDangle  = regexp.MustCompile(`^backend (\d+) not found$`)
)

// add notes what stands in one slot of a frontend.
func (l lbEntries) add(d *adapter.Dump, line int, key, value string) error {
	parts := lbKey.FindStringSubmatch(key)
	if parts == nil {
		return fmt.Errorf("%q is no service address", key)
	}
	fe, known := l[parts[1]]
	if !known {
		parsed, err := parseFrontend(parts[1])
		if err != nil {
			return err
		}
		fe = &parsed
		fe.Line = line
		l[parts[1]] = fe
	}
	return lbSlot(d, line, fe, value)
}

// lbSlot reads the value of a slot: the flags of the frontend, a backend, or
// the number of one that is not there.
func lbSlot(d *adapter.Dump, line int, fe *adapter.Frontend, value string) error {
	value = strings.TrimSpace(value)
	if master := lbMaster.FindStringSubmatch(value); master != nil {
		if master[1] != "" {
			fe.Type, fe.Flags = flags(master[1], ",")
		}
		return nil
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
