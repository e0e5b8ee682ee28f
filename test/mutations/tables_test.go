// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// table is what a record is a table of, and how it is edited.
type table struct {
	layer facts.Layer
	edit  func(content []byte, f *fault) ([]byte, error)
}

// tableOf knows the tables of the healthy bundles by their files' names.
func tableOf(r *evidence.Record) table {
	name := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
	switch {
	case r.Kind == evidence.FairleadFrontends:
		return table{facts.Frontends, editFairleadFrontends}
	case r.Kind == evidence.FairleadKernel:
		return table{facts.Kernel, editFairleadKernel}
	case strings.Contains(name, "cilium-frontends"):
		return table{facts.Frontends, editCiliumFrontends}
	case strings.Contains(name, "cilium-backends"):
		return table{facts.Backends, editCiliumBackends}
	case strings.Contains(name, "cilium-maps"):
		return table{facts.Kernel, editCiliumMaps}
	case strings.HasPrefix(name, "dump-nftables"):
		return table{facts.Kernel, editNftables}
	case strings.HasPrefix(name, "dump-ip"):
		return table{facts.Kernel, editIptables}
	}
	return table{}
}

// entry is a frontend of a table, whatever the format.
type entry struct {
	at       netip.AddrPort
	protocol string
	backends []netip.AddrPort
	source   any // what it was made of
	changed  bool
}

// apply makes the fault in all entries of its Service.
func (f *fault) apply(all []entry) []entry {
	var out []entry
	for _, e := range all {
		if !f.service.holds(e.at, e.protocol) {
			out = append(out, e)
			continue
		}
		clusterIP := e.at.Addr().String() == f.service.object.Spec.ClusterIP
		before := e.backends
		e.backends = slices.Clone(e.backends)
		switch at := slices.Index(e.backends, f.backend); f.change {
		case drop:
			if at >= 0 {
				e.backends = slices.Delete(e.backends, at, at+1)
			}
		case empty:
			e.backends = nil
		case swap:
			if at >= 0 {
				e.backends[at] = f.other
			}
		case add:
			if at >= 0 {
				e.backends = append(e.backends, f.other)
			}
		case remove:
			if clusterIP {
				continue
			}
		case extra:
			if clusterIP {
				twin := e
				twin.changed = true
				twin.at = netip.AddrPortFrom(f.other.Addr(), e.at.Port())
				out = append(out, twin)
			}
		}
		e.changed = !slices.Equal(before, e.backends)
		out = append(out, e)
	}
	return out
}

func editFairleadFrontends(content []byte, f *fault) ([]byte, error) {
	var rows []api.Frontend
	if err := json.Unmarshal(content, &rows); err != nil {
		return nil, err
	}
	var all []entry
	for _, row := range rows {
		e := entry{at: at(row.Address, row.Port), protocol: row.Protocol, source: row}
		for _, b := range row.Backends {
			e.backends = append(e.backends, at(b.Address, b.Port))
		}
		all = append(all, e)
	}
	rows = nil
	for _, e := range f.apply(all) {
		row := e.source.(api.Frontend)
		row.Address = e.at.Addr().String()
		if e.changed {
			row.Backends = []api.Backend{}
		}
		for _, b := range e.backends {
			if !e.changed {
				break
			}
			row.Backends = append(row.Backends, api.Backend{Address: b.Addr().String(), Port: b.Port(), State: "active", Slices: []string{}})
		}
		rows = append(rows, row)
	}
	return json.MarshalIndent(rows, "", "  ")
}

func at(address string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(address), port)
}

func editFairleadKernel(content []byte, f *fault) ([]byte, error) {
	var kernel api.Kernel
	if err := json.Unmarshal(content, &kernel); err != nil {
		return nil, err
	}
	var all []entry
	for _, row := range kernel.Entries {
		e := entry{at: at(row.Address, row.Port), protocol: row.Protocol, source: row}
		for _, b := range row.Backends {
			e.backends = append(e.backends, at(b.Address, b.Port))
		}
		all = append(all, e)
	}
	kernel.Entries = nil
	for _, e := range f.apply(all) {
		row := e.source.(api.KernelEntry)
		row.Address, row.Backends = e.at.Addr().String(), []api.KernelBackend{}
		for _, b := range e.backends {
			row.Backends = append(row.Backends, api.KernelBackend{Address: b.Addr().String(), Port: b.Port()})
		}
		kernel.Entries = append(kernel.Entries, row)
	}
	return json.MarshalIndent(kernel, "", "  ")
}

// columns takes a table of Cilium's shell apart: titles, then rows by title.
func columns(content []byte) (titles []string, rows []map[string]string) {
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	begins := regexp.MustCompile(`\S+`).FindAllStringIndex(lines[0], -1)
	for _, b := range begins {
		titles = append(titles, lines[0][b[0]:b[1]])
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, b := range begins {
			end := len(line)
			if i+1 < len(begins) {
				end = min(end, begins[i+1][0])
			}
			if b[0] < len(line) {
				row[titles[i]] = strings.TrimSpace(line[b[0]:end])
			}
		}
		rows = append(rows, row)
	}
	return titles, rows
}

// aligned lays a table out as Cilium's shell does.
func aligned(titles []string, rows []map[string]string) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 5, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(titles, "\t"))
	for _, row := range rows {
		var cells []string
		for _, title := range titles {
			cells = append(cells, row[title])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	return b.Bytes()
}

// l4 reads ADDRESS:PORT/PROTOCOL[/i].
func l4(text string) (address netip.AddrPort, protocol, rest string) {
	where, rest, _ := strings.Cut(text, "/")
	protocol, rest, _ = strings.Cut(rest, "/")
	return netip.MustParseAddrPort(where), protocol, rest
}

func editCiliumFrontends(content []byte, f *fault) ([]byte, error) {
	titles, rows := columns(content)
	var all []entry
	for _, row := range rows {
		e := entry{source: row}
		e.at, e.protocol, _ = l4(row["Address"])
		for text := range strings.SplitSeq(row["Backends"], ", ") {
			if text != "" && !strings.Contains(text, "more ...") {
				b, _, _ := l4(text)
				e.backends = append(e.backends, b)
			}
		}
		if strings.Contains(row["Backends"], "more ...") {
			return nil, errUnchanged // it does not say all
		}
		all = append(all, e)
	}
	rows = nil
	for _, e := range f.apply(all) {
		row := map[string]string{}
		for title, cell := range e.source.(map[string]string) {
			row[title] = cell
		}
		_, _, scope := l4(row["Address"])
		row["Address"] = strings.TrimSuffix(e.at.String()+"/"+e.protocol+"/"+scope, "/")
		var texts []string
		for _, b := range e.backends {
			texts = append(texts, b.String()+"/"+e.protocol)
		}
		row["Backends"] = strings.Join(texts, ", ")
		rows = append(rows, row)
	}
	return aligned(titles, rows), nil
}

// editCiliumBackends only takes backends away: what else is wrong with an agent
// shows in its frontends.
func editCiliumBackends(content []byte, f *fault) ([]byte, error) {
	if f.change != drop && f.change != empty {
		return nil, nil
	}
	titles, rows := columns(content)
	name := f.service.name().String()
	gone := func(row map[string]string) bool {
		b, _, _ := l4(row["Address"])
		return f.change == empty || b == f.backend
	}
	var kept []map[string]string
	for _, row := range rows {
		if row["Service"] == name && gone(row) {
			continue
		}
		if instances := row["Instances"]; instances != "" && gone(row) {
			list := slices.DeleteFunc(strings.Split(instances, ", "), func(text string) bool { return strings.HasPrefix(text, name+" ") || text == name })
			if len(list) == 0 {
				continue
			}
			row["Instances"] = strings.Join(list, ", ")
		}
		kept = append(kept, row)
	}
	return aligned(titles, kept), nil
}

var (
	mapsBackend = regexp.MustCompile(`^BE: ID=(\d+) ADDR=(\S+)`)
	mapsService = regexp.MustCompile(`^SVC: ID=(\d+) ADDR=(\S+) SLOT=(\d+) (?:BEID=(\d+) )?(.*?)COUNT=(\d+)(.*)$`)
)

// slots are the lines of a frontend in the maps, and the first one's parts.
type slots struct {
	head  []string
	lines []string
}

// editCiliumMaps takes the dump of the maps apart and writes the slots anew.
func editCiliumMaps(content []byte, f *fault) ([]byte, error) {
	var out, tail strings.Builder
	ids := map[netip.AddrPort]int{}
	addresses := map[string]netip.AddrPort{}
	var all []entry
	index := map[string]int{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		if m := mapsBackend.FindStringSubmatch(line); m != nil {
			a, _, _ := l4(m[2])
			id, _ := strconv.Atoi(m[1])
			ids[a], addresses[m[1]] = id, a
		}
		m := mapsService.FindStringSubmatch(line)
		if m == nil || strings.Contains(m[2], ":0/") {
			fmt.Fprintln(&out, line)
			continue
		}
		if m[3] == "0" {
			e := entry{source: slots{m, []string{line + "\n"}}}
			e.at, e.protocol, _ = l4(m[2])
			index[m[2]] = len(all)
			all = append(all, e)
			continue
		}
		e := &all[index[m[2]]]
		e.backends = append(e.backends, addresses[m[4]])
		e.source = slots{e.source.(slots).head, append(e.source.(slots).lines, line+"\n")}
	}
	for _, e := range f.apply(all) {
		m := e.source.(slots).head
		if !e.changed {
			tail.WriteString(strings.Join(e.source.(slots).lines, ""))
			continue
		}
		_, _, scope := l4(m[2])
		address := strings.TrimSuffix(e.at.String()+"/"+e.protocol+"/"+scope, "/")
		fmt.Fprintf(&tail, "SVC: ID=%s ADDR=%s SLOT=0 %sCOUNT=%d%s\n", m[1], address, m[5], len(e.backends), m[7])
		for i, b := range e.backends {
			if ids[b] == 0 {
				ids[b] = 1000 + len(ids)
				fmt.Fprintf(&out, "BE: ID=%d ADDR=%s/%s STATE=active\n", ids[b], b, e.protocol)
			}
			fmt.Fprintf(&tail, "SVC: ID=%s ADDR=%s SLOT=%d BEID=%d COUNT=0%s\n", m[1], address, i+1, ids[b], m[7])
		}
	}
	return []byte(out.String() + tail.String()), nil
}
