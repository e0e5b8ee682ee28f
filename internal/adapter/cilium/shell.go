// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// ParseFrontends reads the table of `db/show frontends`.
func ParseFrontends(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: frontendsSource}
	for n, cells := range rows(&d, r) {
		fe, err := frontendRow(cells)
		if err != nil {
			d.Problemf(n, "%v", err)
			continue
		}
		fe.Line = n
		if !isWildcard(fe) {
			d.Frontends = append(d.Frontends, fe)
		}
	}
	d.Frontends = withScopes(d.Frontends)
	return d
}

// rows yields the rows of a table by their titles.
func rows(d *adapter.Dump, r io.Reader) func(func(int, map[string]string) bool) {
	return func(yield func(int, map[string]string) bool) {
		var t table
		for n, line := range d.Lines(r) {
			if n == 1 {
				t = newTable(line)
				continue
			}
			if strings.TrimSpace(line) == "" {
				continue
			}
			cells, err := t.cells(line)
			if err != nil {
				d.Problemf(n, "%v", err)
				continue
			}
			if !yield(n, cells) {
				return
			}
		}
	}
}

// moreBackends ends a cell that has no room for all backends.
var moreBackends = regexp.MustCompile(`\s*\+ (\d+) more \.\.\.$`)

func frontendRow(cells map[string]string) (adapter.Frontend, error) {
	fe, err := parseFrontend(cells["Address"])
	if err != nil {
		return fe, err
	}
	fe.Type, fe.PortName = cells["Type"], cells["PortName"]
	// A name of another form is that of a host port, or of another cluster.
	fe.Service, _ = adapter.ParseName(cells["ServiceName"])
	if to := cells["RedirectTo"]; to != "" {
		fe.Flags = append(fe.Flags, redirected)
	}
	if cells["Status"] != "" && cells["Status"] != "Done" {
		fe.Flags = append(fe.Flags, "status "+cells["Status"])
	}
	list := cells["Backends"]
	if more := moreBackends.FindStringSubmatch(list); more != nil {
		fe.More = number(more[1])
		list = strings.TrimSuffix(list, more[0])
	}
	for text := range strings.SplitSeq(list, ", ") {
		if text == "" {
			continue
		}
		address, _, err := parseL4(text)
		if err != nil {
			return fe, err
		}
		fe.Backends = append(fe.Backends, adapter.Backend{Address: address})
	}
	return fe, nil
}

// redirected flags a frontend that another Service's backends stand behind on
// purpose: a CiliumLocalRedirectPolicy.
const redirected = "redirected"

// ParseBackends reads the table of `db/show backends`: since 1.20 a row is a
// backend of one Service, before it is an address with all Services that it
// stands behind.
func ParseBackends(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: backendsSource, HasPools: true}
	p := pools{}
	for n, cells := range rows(&d, r) {
		if err := p.row(cells); err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	d.Pools = p.list()
	return d
}

type poolKey struct {
	service model.Name
	port    string
}

type pools map[poolKey][]adapter.Backend

func (p pools) row(cells map[string]string) error {
	address, _, err := parseL4(cells["Address"])
	if err != nil {
		return err
	}
	if cells["Service"] != "" {
		return p.add(adapter.Backend{Address: address}, cells["Service"], cells["State"], strings.Split(cells["PortNames"], ","))
	}
	for text := range strings.SplitSeq(cells["Instances"], ", ") {
		if text == "" {
			continue
		}
		parts := instance.FindStringSubmatch(text)
		if parts == nil {
			return fmt.Errorf("%q is no instance", text)
		}
		if err := p.add(adapter.Backend{Address: address}, parts[1], parts[2], strings.Fields(parts[3])); err != nil {
			return err
		}
	}
	return nil
}

// instance is "default/web [terminating] (http https)".
var instance = regexp.MustCompile(`^(\S+)(?: \[([^\]]*)\])?(?: \(([^)]*)\))?$`)

// add notes a backend of a Service's ports. A backend without a port name is
// that of the only port.
func (p pools) add(b adapter.Backend, service, state string, ports []string) error {
	name, ok := adapter.ParseName(service)
	if !ok {
		return nil // another cluster's, or no Service at all
	}
	var err error
	if b.State, err = parseState(state); err != nil {
		return err
	}
	if len(ports) == 0 {
		ports = []string{""}
	}
	for _, port := range ports {
		key := poolKey{name, strings.TrimSpace(port)}
		p[key] = append(p[key], b)
	}
	return nil
}

func (p pools) list() []adapter.Pool {
	var out []adapter.Pool
	for key, backends := range p {
		slices.SortFunc(backends, compareBackends)
		out = append(out, adapter.Pool{Service: key.service, PortName: key.port, Backends: backends})
	}
	slices.SortFunc(out, func(a, b adapter.Pool) int {
		return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.PortName, b.PortName))
	})
	return out
}

func compareBackends(a, b adapter.Backend) int { return model.CompareAddrPort(a.Address, b.Address) }
