// SPDX-License-Identifier: Apache-2.0

// Package fairlead reads what `fairlead get` prints as JSON of its own tables
// and maps, so that they are compared as those of any other proxy.
//
// README.md says how people record it. What a Service should have is not known
// here; nor is whether the two agree, which is for `fairlead diff` to say.
package fairlead

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"regexp"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// The commands that print what this package reads.
const (
	FrontendsSource = "fairlead get frontends"
	KernelSource    = "fairlead get kernel"
)

// Formats are the texts that this package reads.
func Formats() []adapter.Format {
	return []adapter.Format{
		{Source: FrontendsSource, Holds: frontendsBegin.Match, Parse: ParseFrontends},
		{Source: KernelSource, Holds: kernelBegins.Match, Parse: ParseKernel},
	}
}

// A table without rows is an empty list, which says nothing of where it comes
// from.
var (
	frontendsBegin = regexp.MustCompile(`^\s*\[\s*\{\s*"address":\s*"[^"]*",\s*"port":\s*\d+,\s*"protocol":\s*"[^"]*",\s*"scope":`)
	kernelBegins   = regexp.MustCompile(`^\s*\{\s*"schemaVersion":\s*\d+,\s*"pinPath":`)
)

// maxText bounds what is read: a hundred times the largest table that was seen.
const maxText = 1 << 30

// text is JSON that is being read, of which places can be said as lines.
type text struct {
	all     []byte
	decoder *json.Decoder
	lines   int // up to where they are counted
	counted int
}

func newText(r io.Reader) (text, error) {
	all, err := io.ReadAll(io.LimitReader(r, maxText))
	return text{all: all, decoder: json.NewDecoder(bytes.NewReader(all)), lines: 1}, err
}

// line is that of the next value.
func (t *text) line() int {
	at := int(t.decoder.InputOffset())
	for at < len(t.all) && bytes.IndexByte([]byte(" \t\r\n,:"), t.all[at]) >= 0 {
		at++
	}
	t.lines += bytes.Count(t.all[t.counted:at], []byte{'\n'})
	t.counted = at
	return t.lines
}

// each decodes the elements of the list that comes next, and says whether all
// of it could be read.
func each[T any](t *text, d *adapter.Dump, row func(line int, value T)) bool {
	if token, err := t.decoder.Token(); err != nil || token != json.Delim('[') {
		d.Cut(t.line(), "there is no list")
		return false
	}
	for t.decoder.More() {
		line := t.line()
		var value T
		if err := t.decoder.Decode(&value); err != nil {
			d.Cut(line, "%v", err)
			return false
		}
		row(line, value)
	}
	if _, err := t.decoder.Token(); err != nil {
		d.Cut(t.line(), "the list does not end: %v", err)
		return false
	}
	return true
}

// ParseFrontends reads `fairlead get frontends -o json`.
func ParseFrontends(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: FrontendsSource}
	t, err := newText(r)
	if err != nil {
		d.Cut(1, "%v", err)
		return d
	}
	each(&t, &d, func(line int, row api.Frontend) {
		fe, err := frontend(row.Address, row.Port, row.Protocol, row.Scope, row.Service)
		if err == nil {
			err = addRow(&fe, &row)
		}
		if err != nil {
			d.Problemf(line, "%v", err)
			return
		}
		fe.Line = line
		d.Frontends = append(d.Frontends, fe)
	})
	return d
}

// addRow adds what only the agent knows.
func addRow(fe *adapter.Frontend, row *api.Frontend) error {
	fe.Type, fe.PortName = row.Type, row.PortName
	switch row.Action {
	case "forward":
	case "reject":
		fe.Action = adapter.Reject
	case "drop":
		fe.Action = adapter.Drop
	case "shadowed", "unsupported":
		fe.Flags = append(fe.Flags, row.Action)
	default:
		return fmt.Errorf("its action is %q", row.Action)
	}
	if row.Status != "" && row.Status != api.StatusDone {
		fe.Flags = append(fe.Flags, "status "+row.Status)
	}
	for _, b := range row.Backends {
		state, known := map[string]adapter.State{
			"active": adapter.Active, "terminating": adapter.Terminating, "retained": adapter.Retained, "unverified": adapter.Retained,
		}[b.State]
		if !known {
			return fmt.Errorf("a backend's state is %q", b.State)
		}
		if err := addBackend(fe, b.Address, b.Port, state); err != nil {
			return err
		}
	}
	for _, b := range row.Draining {
		if err := addBackend(fe, b.Address, b.Port, adapter.Draining); err != nil {
			return err
		}
	}
	return nil
}

// ParseKernel reads `fairlead get kernel -o json`.
func ParseKernel(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: KernelSource}
	t, err := newText(r)
	if err != nil {
		d.Cut(1, "%v", err)
		return d
	}
	if token, err := t.decoder.Token(); err != nil || token != json.Delim('{') {
		d.Cut(1, "it is no object")
		return d
	}
	found := false
	for t.decoder.More() {
		key, err := t.decoder.Token()
		if err != nil {
			d.Cut(t.line(), "%v", err)
			return d
		}
		if key != "entries" {
			var skipped json.RawMessage
			err = t.decoder.Decode(&skipped)
		} else if found = each(&t, &d, func(line int, e api.KernelEntry) { addEntry(&d, line, &e) }); !found {
			return d
		}
		if err != nil {
			d.Cut(t.line(), "%v", err)
			return d
		}
	}
	if _, err := t.decoder.Token(); err != nil {
		d.Cut(t.line(), "it does not end: %v", err)
		return d
	}
	if !found {
		d.Cut(1, "it has no entries")
	}
	splitScopes(d.Frontends)
	return d
}

func addEntry(d *adapter.Dump, line int, e *api.KernelEntry) {
	fe, err := frontend(e.Address, e.Port, e.Protocol, e.Scope, e.Service)
	if err == nil {
		err = addSet(&fe, e)
	}
	if err != nil {
		d.Problemf(line, "%v", err)
		return
	}
	fe.Line, fe.PortName = line, e.PortName
	d.Frontends = append(d.Frontends, fe)
}

// addSet adds the backends of an entry. Programs refuse where the entry itself
// is broken, so then it leads nowhere.
func addSet(fe *adapter.Frontend, e *api.KernelEntry) error {
	if e.Problem != "" {
		fe.Flags = append(fe.Flags, "broken: "+e.Problem)
		return nil
	}
	switch e.Action {
	case "reject":
		fe.Action = adapter.Reject
	case "drop":
		fe.Action = adapter.Drop
	}
	if e.Action == "forward" {
		for _, b := range e.Backends {
			if err := addBackend(fe, b.Address, b.Port, adapter.Active); err != nil {
				return err
			}
		}
	}
	for _, b := range e.Draining {
		if err := addBackend(fe, b.Address, b.Port, adapter.Draining); err != nil {
			return err
		}
	}
	return nil
}

// splitScopes tells entries that serve all traffic from those that have a twin
// for what comes from outside.
func splitScopes(all []adapter.Frontend) {
	type spot struct {
		address  netip.AddrPort
		protocol model.Protocol
	}
	twins := map[spot]bool{}
	for _, fe := range all {
		if fe.Scope == model.ScopeExternal {
			twins[spot{fe.Address, fe.Protocol}] = true
		}
	}
	for i := range all {
		if fe := &all[i]; fe.Scope == model.ScopeInternal && !twins[spot{fe.Address, fe.Protocol}] {
			fe.Scope = model.ScopeAll
		}
	}
}

func frontend(address string, port uint16, protocol, scope, service string) (adapter.Frontend, error) {
	at, err := addrPort(address, port)
	if err != nil {
		return adapter.Frontend{}, err
	}
	fe := adapter.Frontend{Address: at}
	if fe.Protocol, err = model.ParseProtocol(protocol); err != nil {
		return fe, err
	}
	switch scope {
	case "all":
	case "internal":
		fe.Scope = model.ScopeInternal
	case "external":
		fe.Scope = model.ScopeExternal
	default:
		return fe, fmt.Errorf("its scope is %q", scope)
	}
	fe.Service, _ = adapter.ParseName(service) // an entry may be nobody's
	return fe, nil
}

func addBackend(fe *adapter.Frontend, address string, port uint16, state adapter.State) error {
	at, err := addrPort(address, port)
	if err != nil {
		return err
	}
	fe.Backends = append(fe.Backends, adapter.Backend{Address: at, State: state})
	return nil
}

func addrPort(address string, port uint16) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", address)
	}
	return netip.AddrPortFrom(a.Unmap(), port), nil
}
