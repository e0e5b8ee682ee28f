// SPDX-License-Identifier: Apache-2.0

// Package nftables reads kube-proxy's Services out of what `nft -j list table
// ip kube-proxy` and its twin for ip6 print, or `nft -j list ruleset`.
//
// Only kube-proxy's own tables are looked at; what other tables do to the same
// packets is not known here.
package nftables

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

const source = "nft -j list table"

// Formats are the texts that this package reads.
func Formats() []adapter.Format {
	return []adapter.Format{
		{Source: source, Holds: func(json []byte) bool { return nftablesKey.Match(json) }, Parse: Parse},
		{Source: "nft list table", Begins: textLine.MatchString, Parse: parseText},
	}
}

var (
	nftablesKey = regexp.MustCompile(`^\s*\{\s*"nftables"\s*:`)
	textLine    = regexp.MustCompile(`^table (ip|ip6|inet|arp|bridge|netdev) \S+ \{`)
)

// parseText refuses nft's own language, of which nothing is lost in JSON.
func parseText(r io.Reader) adapter.Dump {
	_, _ = io.Copy(io.Discard, r)
	return adapter.Dump{Source: "nft list table", Silent: "record it as JSON: nft -j list table ip kube-proxy"}
}

// tableName is that of both of kube-proxy's tables.
const tableName = "kube-proxy"

// Parse reads the tables of both families, one element of the list at a time.
func Parse(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: source}
	rs := ruleset{d: &d, tables: map[model.Family]*table{}}
	decoder := json.NewDecoder(r)
	if err := open(decoder); err != nil {
		d.Cut(1, "it is no list of nftables: %v", err)
		return d
	}
	for i := 1; decoder.More(); i++ {
		var e element
		if err := decoder.Decode(&e); err != nil {
			d.Cut(1, "element %d of the list: %v", i, err)
			break
		}
		rs.add(e)
	}
	if d.Silent == "" {
		rs.judge()
	}
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		if t := rs.tables[family]; t != nil {
			d.Families = append(d.Families, family)
			d.Frontends = append(d.Frontends, t.frontends(&d)...)
		}
	}
	return d
}

// judge says what a list tells that has no content of a table of kube-proxy: one
// of tables only says which there are.
func (rs *ruleset) judge() {
	for _, t := range rs.tables {
		if t.told {
			return
		}
	}
	rs.d.Silent = "there is no table kube-proxy: kube-proxy does not run in nftables mode here"
	if len(rs.tables) > 0 {
		rs.d.Silent = "it names tables only: nft -j list table ip kube-proxy tells what is in one"
	}
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		if rs.tables[family] == nil {
			rs.d.Absent = append(rs.d.Absent, family)
		}
	}
}

// open reads up to the first element of {"nftables": [.
func open(decoder *json.Decoder) error {
	for _, want := range []json.Token{json.Delim('{'), "nftables", json.Delim('[')} {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		if token != want {
			return fmt.Errorf("%v stands where %v should", token, want)
		}
	}
	return nil
}

// element is one of the list: an object whose only key says what it is.
type element struct {
	Table *struct {
		Family string `json:"family"`
		Name   string `json:"name"`
	} `json:"table"`
	Map *struct {
		Family string            `json:"family"`
		Table  string            `json:"table"`
		Name   string            `json:"name"`
		Elem   []json.RawMessage `json:"elem"`
	} `json:"map"`
	Rule *struct {
		Family string            `json:"family"`
		Table  string            `json:"table"`
		Chain  string            `json:"chain"`
		Expr   []json.RawMessage `json:"expr"`
	} `json:"rule"`
}

type ruleset struct {
	d      *adapter.Dump
	tables map[model.Family]*table
}

// table is kube-proxy's table of one family.
type table struct {
	family model.Family
	maps   map[string][]verdict
	chains map[string][]rule
	told   bool // more than that it is there
}

// families are those of the tables that kube-proxy writes.
func familyOf(name string) (model.Family, bool) {
	switch name {
	case "ip":
		return model.IPv4, true
	case "ip6":
		return model.IPv6, true
	}
	return 0, false
}

func (rs *ruleset) table(family, name string) (*table, bool) {
	f, ok := familyOf(family)
	if !ok || name != tableName {
		return nil, false
	}
	if rs.tables[f] == nil {
		rs.tables[f] = &table{family: f, maps: map[string][]verdict{}, chains: map[string][]rule{}}
	}
	return rs.tables[f], true
}

func (rs *ruleset) add(e element) {
	switch {
	case e.Table != nil:
		rs.table(e.Table.Family, e.Table.Name)
	case e.Map != nil:
		if t, ok := rs.table(e.Map.Family, e.Map.Table); ok {
			t.told = true
			t.addMap(rs.d, e.Map.Name, e.Map.Elem)
		}
	case e.Rule != nil:
		if t, ok := rs.table(e.Rule.Family, e.Rule.Table); ok {
			t.told = true
			t.addRule(rs.d, e.Rule.Chain, e.Rule.Expr)
		}
	}
}

// verdict is an entry of a map: where packets to an address go.
type verdict struct {
	address  netip.Addr // not valid in the maps of NodePorts
	protocol model.Protocol
	port     uint16
	target   target
	comment  string
}

// target is a verdict of a rule or map: a chain, or the end of the packet.
type target struct {
	chain string
	drop  bool
}

func (t *target) UnmarshalJSON(text []byte) error {
	var v struct {
		Goto *struct{ Target string } `json:"goto"`
		Jump *struct{ Target string } `json:"jump"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	t.drop = bytes.Contains(text, []byte(`"drop"`))
	if v.Goto != nil {
		t.chain = v.Goto.Target
	}
	if v.Jump != nil {
		t.chain = v.Jump.Target
	}
	return nil
}

// isServiceMap says whether a map leads from addresses to Services.
func isServiceMap(name string) bool {
	switch name {
	case "service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports":
		return true
	}
	return false
}

func (t *table) addMap(d *adapter.Dump, name string, elements []json.RawMessage) {
	if !isServiceMap(name) {
		return
	}
	for i, text := range elements {
		v, err := parseVerdict(text)
		if err != nil {
			d.Problemf(1, "map %s, entry %d: %v", name, i+1, err)
			continue
		}
		t.maps[name] = append(t.maps[name], v)
	}
}

// parseVerdict reads [{"concat": ["10.0.0.1", "tcp", 80]}, {"goto": …}]. A key
// with a comment is wrapped once more.
func parseVerdict(text []byte) (v verdict, err error) {
	var entry [2]json.RawMessage
	if err := json.Unmarshal(text, &entry); err != nil {
		return v, err
	}
	var key struct {
		Concat []any
		Elem   struct {
			Val     struct{ Concat []any }
			Comment string
		}
	}
	if err := json.Unmarshal(entry[0], &key); err != nil {
		return v, err
	}
	parts := key.Concat
	if parts == nil {
		parts = key.Elem.Val.Concat
	}
	v.comment = key.Elem.Comment
	if err := json.Unmarshal(entry[1], &v.target); err != nil {
		return v, err
	}
	return v, v.key(parts)
}

// key reads the address, if there is one, the protocol and the port.
func (v *verdict) key(parts []any) (err error) {
	if len(parts) == 3 {
		text, _ := parts[0].(string)
		if v.address, err = netip.ParseAddr(text); err != nil {
			return fmt.Errorf("%q is no address", text)
		}
		parts = parts[1:]
	}
	if len(parts) != 2 {
		return fmt.Errorf("its key has %d parts", len(parts))
	}
	protocol, _ := parts[0].(string)
	if v.protocol, err = adapter.ParseProtocol(protocol); err != nil {
		return err
	}
	port, ok := parts[1].(float64)
	if !ok || port < 1 || port > 65535 {
		return fmt.Errorf("%v is no port", parts[1])
	}
	v.port = uint16(port)
	return nil
}

// rule is what matters of a rule of a chain.
type rule struct {
	matches     bool // it is for some packets only
	targets     []string
	destination netip.AddrPort // of dnat
}

func (t *table) addRule(d *adapter.Dump, chain string, expressions []json.RawMessage) {
	if !slices.ContainsFunc([]string{"service-", "local-", "external-", "endpoint-"}, func(p string) bool { return strings.HasPrefix(chain, p) }) {
		return
	}
	r, err := parseRule(expressions)
	if err != nil {
		d.Problemf(1, "chain %s: %v", chain, err)
		return
	}
	t.chains[chain] = append(t.chains[chain], r)
}

func parseRule(expressions []json.RawMessage) (r rule, err error) {
	for _, text := range expressions {
		var e struct {
			Match *json.RawMessage `json:"match"`
			Vmap  *struct {
				Data struct {
					Set [][2]json.RawMessage `json:"set"`
				} `json:"data"`
			} `json:"vmap"`
			Dnat *struct {
				Addr string `json:"addr"`
				Port uint16 `json:"port"`
			} `json:"dnat"`
		}
		// Other statements have other types below these keys: no fault.
		if err := json.Unmarshal(text, &e); err != nil && !isTypeError(err) {
			return r, err
		}
		r.matches = r.matches || e.Match != nil
		var to target
		if err := json.Unmarshal(text, &to); err == nil && to.chain != "" {
			r.targets = append(r.targets, to.chain)
		}
		if e.Vmap != nil {
			for _, entry := range e.Vmap.Data.Set {
				if err := json.Unmarshal(entry[1], &to); err == nil && to.chain != "" {
					r.targets = append(r.targets, to.chain)
				}
			}
		}
		if e.Dnat != nil {
			if r.destination, err = joinAddress(e.Dnat.Addr, e.Dnat.Port); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
