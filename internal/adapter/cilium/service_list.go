// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// ParseServiceList reads the table of `cilium-dbg service list`.
func ParseServiceList(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: serviceListSource}
	var t table
	for n, line := range d.Lines(r) {
		if n == 1 {
			t = newTable(line)
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := serviceListRow(&d, t, n, line); err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	d.Frontends = withScopes(d.Frontends)
	return d
}

// serviceListRow reads a line: a frontend with its first backend, or one more
// backend of the frontend before.
func serviceListRow(d *adapter.Dump, t table, n int, line string) error {
	cells, err := t.cells(line)
	if err != nil {
		return err
	}
	if cells["ID"] != "" {
		fe, err := parseFrontend(cells["Frontend"])
		if err != nil {
			return err
		}
		fe.Line = n
		fe.Type, _, _ = strings.Cut(cells["Service Type"], " (")
		d.Frontends = append(d.Frontends, fe)
	}
	if cells["Backend"] == "" {
		return nil
	}
	if len(d.Frontends) == 0 {
		return fmt.Errorf("backend %q belongs to no frontend", cells["Backend"])
	}
	b, err := serviceListBackend(cells["Backend"])
	if err != nil {
		return err
	}
	fe := &d.Frontends[len(d.Frontends)-1]
	fe.Backends = append(fe.Backends, b)
	return nil
}

// serviceListBackend reads "1 => 10.0.0.1:80/TCP (active) (preferred)".
func serviceListBackend(text string) (adapter.Backend, error) {
	_, text, found := strings.Cut(text, "=> ")
	if !found {
		return adapter.Backend{}, fmt.Errorf("%q is no backend", text)
	}
	at, words, _ := strings.Cut(text, " ")
	address, _, err := parseL4(at)
	if err != nil {
		return adapter.Backend{}, err
	}
	state, _, _ := strings.Cut(strings.TrimPrefix(words, "("), ")")
	s, err := parseState(state)
	return adapter.Backend{Address: address, State: s}, err
}

// service is an element of `cilium-dbg service list -o json`. Realized is what
// the agent has put into force.
type service struct {
	Spec   spec `json:"spec"`
	Status struct {
		Realized *spec `json:"realized"`
	} `json:"status"`
}

type spec struct {
	Frontend struct {
		IP       string `json:"ip"`
		Port     uint16 `json:"port"`
		Protocol string `json:"protocol"`
		Scope    string `json:"scope"`
	} `json:"frontend-address"`
	Backends []struct {
		IP     string `json:"ip"`
		Port   uint16 `json:"port"`
		State  string `json:"state"`
		Weight *int   `json:"weight"`
	} `json:"backend-addresses"`
	Flags struct {
		Type      string `json:"type"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Cluster   string `json:"cluster"`
	} `json:"flags"`
}

// ParseServiceListJSON reads `cilium-dbg service list -o json`, one element at
// a time.
func ParseServiceListJSON(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: serviceListSource}
	decoder := json.NewDecoder(r)
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		d.Cut(1, "it is no list of services")
		return d
	}
	for i := 1; decoder.More(); i++ {
		var s service
		if err := decoder.Decode(&s); err != nil {
			d.Cut(1, "service %d of the list: %v", i, err)
			return d
		}
		if s.Status.Realized == nil {
			d.Oddf(1, "service %d of the list is not in force yet", i)
			continue
		}
		if err := s.add(&d); err != nil {
			d.Problemf(1, "service %d of the list: %v", i, err)
		}
	}
	d.Frontends = withScopes(d.Frontends)
	return d
}

func (s service) add(d *adapter.Dump) error {
	realized := s.Status.Realized
	address, err := joinAddress(realized.Frontend.IP, realized.Frontend.Port)
	if err != nil {
		return err
	}
	fe := adapter.Frontend{Address: address, Type: s.Spec.Flags.Type, Line: 1}
	if fe.Protocol, err = adapter.ParseProtocol(realized.Frontend.Protocol); err != nil {
		return err
	}
	if realized.Frontend.Scope == "internal" {
		fe.Scope = model.ScopeInternal
	}
	if s.Spec.Flags.Cluster == "" {
		fe.Service, _ = adapter.ParseName(s.Spec.Flags.Namespace + "/" + s.Spec.Flags.Name)
	}
	for _, b := range realized.Backends {
		at, err := joinAddress(b.IP, b.Port)
		if err != nil {
			return err
		}
		state, err := parseState(b.State)
		if err != nil {
			return err
		}
		backend := adapter.Backend{Address: at, State: state}
		if b.Weight != nil {
			backend.Weight = *b.Weight
		}
		fe.Backends = append(fe.Backends, backend)
	}
	d.Frontends = append(d.Frontends, fe)
	return nil
}

func joinAddress(ip string, port uint16) (netip.AddrPort, error) {
	return adapter.ParseAddress(net.JoinHostPort(ip, strconv.Itoa(int(port))))
}
