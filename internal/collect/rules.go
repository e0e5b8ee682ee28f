// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"strings"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// rules are those of a kube-proxy on a node. Which command shows them depends on
// its mode, and that there are none is a fact, too, where there should be some.
type rules struct {
	mode   string // "": not known
	meant  bool   // to be there: a kube-proxy runs
	source func(command) source
}

// dump is where a kube-proxy's rules are in one of its modes, and the mark by
// which they are known.
type dump struct {
	command
	mode, mark string
}

func kubeProxyDumps() []dump {
	rules := func(mode, file, mark string, argv ...string) dump {
		return dump{command{file: file, kind: evidence.Dump, argv: argv}, mode, mark}
	}
	return []dump{
		rules("iptables", "dump-iptables.txt", "KUBE-SERVICES", "iptables-save"),
		rules("iptables", "dump-ip6tables.txt", "KUBE-SERVICES", "ip6tables-save"),
		rules("nftables", "dump-nftables.json", "service-ips", "nft", "-j", "list", "table", "ip", "kube-proxy"),
		rules("nftables", "dump-nftables6.json", "service-ips", "nft", "-j", "list", "table", "ip6", "kube-proxy"),
		rules("ipvs", "dump-ipvs.txt", "-A", "ipvsadm", "-Sn"),
	}
}

// nftTables are the names of all tables: it succeeds where there is none of
// kube-proxy's, which to list is a failure.
var nftTables = command{file: "dump-nft-tables.json", kind: evidence.Dump, argv: []string{"nft", "-j", "list", "tables"}}

// group reads the rules. Where nobody says which mode it is, the rules do, and
// where there are none, what tells so of each mode is read.
func (r rules) group() (all group) {
	found := map[string]bool{}
	for _, d := range kubeProxyDumps() {
		s := r.source(d.command)
		switch {
		case r.mode == "":
			s.read = d.onlyMarked(s.read, found)
		case r.mode != d.mode:
			continue
		case d.mode == "nftables":
			s.read = withTable(s.read)
		}
		all = append(all, s)
	}
	if !r.meant {
		return all
	}
	tables := r.source(nftTables)
	tables.read = onlyIf(tables.read, func() bool { return r.mode == "nftables" || r.mode == "" && (found["nftables"] || len(found) == 0) })
	all = append(all, tables)
	if r.mode == "" {
		for _, d := range kubeProxyDumps()[:2] {
			s := r.source(d.command)
			s.read = onlyIf(s.read, func() bool { return len(found) == 0 })
			all = append(all, s)
		}
	}
	return all
}

// onlyMarked has a source not be there unless it holds the mark of its mode.
func (d dump) onlyMarked(read reader, found map[string]bool) reader {
	return absent(func(ctx context.Context) (output, error) {
		out, err := read(ctx)
		if err == nil && !bytes.Contains(out.content, []byte(d.mark)) {
			err = errNothing
		}
		if err == nil {
			found[d.mode] = true
		}
		return out, err
	})
}

// withTable has a source not be there if its table is not: the list of tables
// says that.
func withTable(read reader) reader {
	return func(ctx context.Context) (output, error) {
		out, err := read(ctx)
		if err != nil && strings.Contains(err.Error(), "No such file or directory") {
			return output{}, errNothing
		}
		return out, err
	}
}

// onlyIf has a source not be there unless something is so when it is its turn,
// or if its program is not there.
func onlyIf(read reader, so func() bool) reader {
	return absent(func(ctx context.Context) (output, error) {
		if !so() {
			return output{}, errNothing
		}
		return read(ctx)
	})
}
