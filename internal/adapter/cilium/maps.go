// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
)

// ParseMaps reads what `lb/maps-dump` prints: a line per entry of the eBPF
// maps, with its fields as KEY=VALUE.
func ParseMaps(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: mapsSource}
	m := mapsDump{backends: map[string]adapter.Backend{}, frontends: map[string]*mapsFrontend{}}
	for n, line := range d.Lines(r) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch kind {
		case "BE":
			err = m.backend(fields(rest))
		case "SVC":
			err = m.slot(n, fields(rest))
		case "REV", "AFF", "SRCRANGE", "MAGLEV", "":
		default:
			err = fmt.Errorf("%q is no entry of a map", line)
		}
		if err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	d.Frontends = m.list(&d)
	return d
}

// mapsDump joins slots with backends, which come in any order.
type mapsDump struct {
	backends  map[string]adapter.Backend // by ID
	frontends map[string]*mapsFrontend   // by address, as written
}

type mapsFrontend struct {
	adapter.Frontend
	usable int // how many slots take new connections: the first ones
	slots  []mapsSlot
}

type mapsSlot struct {
	slot    int
	backend string // its ID
	line    int
}

// fields takes KEY=VALUE pairs apart. Only the last value, the flags, may hold
// spaces, as "check source-range" does.
func fields(text string) map[string]string {
	out := map[string]string{}
	text, flags, found := strings.Cut(text, "FLAGS=")
	if found {
		out["FLAGS"] = flags
	}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		out[key] = value
	}
	return out
}

func (m *mapsDump) backend(f map[string]string) error {
	address, _, err := parseL4(f["ADDR"])
	if err != nil {
		return err
	}
	state, err := parseState(f["STATE"])
	if err != nil {
		return err
	}
	m.backends[f["ID"]] = adapter.Backend{Address: address, State: state}
	return nil
}

func (m *mapsDump) slot(line int, f map[string]string) error {
	fe, known := m.frontends[f["ADDR"]]
	if !known {
		parsed, err := parseFrontend(f["ADDR"])
		if err != nil {
			return err
		}
		parsed.Line = line
		fe = &mapsFrontend{Frontend: parsed}
		m.frontends[f["ADDR"]] = fe
	}
	if slot := number(f["SLOT"]); slot > 0 {
		fe.slots = append(fe.slots, mapsSlot{slot, f["BEID"], line})
		return nil
	}
	fe.usable = number(f["COUNT"])
	fe.Type, fe.Flags = flags(f["FLAGS"], "+")
	return nil
}

// slotState is whether new connections go to a backend: those in the first slots
// get them whatever the map of backends says, those after the count do not.
func slotState(state adapter.State, usable bool) adapter.State {
	if usable {
		return adapter.Active
	}
	if state == adapter.Active {
		return adapter.Unusable
	}
	return state
}

// list joins the slots with their backends.
func (m *mapsDump) list(d *adapter.Dump) []adapter.Frontend {
	var out []adapter.Frontend
	for _, fe := range m.frontends {
		if isWildcard(fe.Frontend) {
			continue
		}
		slices.SortFunc(fe.slots, func(a, b mapsSlot) int { return a.slot - b.slot })
		for _, s := range fe.slots {
			b, found := m.backends[s.backend]
			if !found {
				d.Oddf(s.line, "slot %d of %s names backend %s, which is not in the map", s.slot, fe.Address, s.backend)
				continue
			}
			b.State = slotState(b.State, s.slot <= fe.usable)
			fe.Backends = append(fe.Backends, b)
		}
		slices.SortFunc(fe.Backends, compareBackends)
		out = append(out, fe.Frontend)
	}
	slices.SortFunc(out, compareFrontends)
	slices.SortFunc(d.Problems, func(a, b adapter.Problem) int { return a.Line - b.Line })
	return withScopes(out)
}
