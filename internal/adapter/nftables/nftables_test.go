// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/adapter/adaptertest"
	"github.com/fairlead-io/fairlead/internal/model"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRecorded reads what the real kube-proxy wrote; test/impl records it anew.
func TestRecorded(t *testing.T) {
	for _, file := range []string{"kube-proxy-v1.35.4-ipv4.txt", "kube-proxy-v1.35.4-ipv6.txt"} {
		t.Run(file, func(t *testing.T) { adaptertest.Golden(t, file, Parse, *update) })
	}
}

func TestWhatIsWritten(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"a machine without kube-proxy's table": {`{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "filter"}}]}`,
			"silent: there is no table kube-proxy"},
		"JSON that ends too early keeps what came before": {`{"nftables": [{"table": {"family": "ip", "name": "kube-proxy"}}, {"map": {"family": "ip", "table": "kube-proxy", "name": "no-endpoint-services", "elem": [[{"elem": {"val": {"concat": ["10.96.1.5", "tcp", 80]}, "comment": "shop/empty"}}, {"drop": null}]]}}, {"map": {"fam`,
			"1: 10.96.1.5:80/TCP all  shop/empty: drop ->\nproblem in line 1: element 3 of the list: unexpected EOF"},
		"an entry that is none": {`{"nftables": [{"map": {"family": "ip6", "table": "kube-proxy", "name": "service-ips", "elem": [[{"concat": ["fd00::1", "tcp", "http"]}, {"goto": {"target": "service-X-a/b/tcp/"}}], 7]}}]}`,
			"map service-ips, entry 1: http is no port"},
		"a list of something else": {`{"tables": []}`, "it is no list of nftables: tables stands where nftables should"},
	} {
		t.Run(name, func(t *testing.T) {
			if have := adaptertest.Text(Parse(strings.NewReader(test.text))); !strings.Contains(have, test.want) {
				t.Errorf("have\n%s\nwant in it\n%s", have, test.want)
			}
		})
	}
}

func TestAbsent(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []model.Family
	}{
		"a list of tables without kube-proxy's":              {`{"nftables": [{"metainfo": {}}, {"table": {"family": "inet", "name": "filter"}}]}`, []model.Family{model.IPv4, model.IPv6}},
		"a list of tables with one of kube-proxy's":          {`{"nftables": [{"table": {"family": "ip6", "name": "kube-proxy"}}]}`, []model.Family{model.IPv4}},
		"a list of one table with rules is not of the other": {`{"nftables": [{"table": {"family": "ip", "name": "kube-proxy"}}, {"map": {"family": "ip", "table": "kube-proxy", "name": "service-ips"}}]}`, nil},
		"a list that is cut off tells of nothing":            {`{"nftables": [{"table": {"family": "inet", "na`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := Parse(strings.NewReader(test.text))
			if !slices.Equal(d.Absent, test.want) {
				t.Errorf("absent are %v, want %v", d.Absent, test.want)
			}
			if len(test.want) > 0 && d.Silent == "" {
				t.Error("it tells of Services, and there is nothing of them")
			}
		})
	}
}

func FuzzParse(f *testing.F) { adaptertest.Fuzz(f, Parse) }
