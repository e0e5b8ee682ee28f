// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

var errNoTable = errors.New("exit status 1: Error: No such file or directory list table ip kube-proxy")

func TestRules(t *testing.T) {
	const marked, bare, tables = ":KUBE-SERVICES - [0:0]\n", "*nat\nCOMMIT\n", `{"nftables": []}`
	for name, test := range map[string]struct {
		mode  string
		meant bool
		says  map[string]string // a command's output; those that are missing fail
		want  []string
	}{
		"rules tell their mode": {meant: true, says: map[string]string{"iptables-save": marked, "nft -j list tables": tables}, want: []string{"iptables-save"}},
		"a table tells it, and the list which of its family there are": {meant: true, says: map[string]string{"nft -j list table ip kube-proxy": "service-ips", "nft -j list tables": tables}, want: []string{"nft -j list table ip kube-proxy", "nft -j list tables"}},
		"where there should be rules, that there are none is read":     {meant: true, says: map[string]string{"iptables-save": bare, "nft -j list tables": tables}, want: []string{"nft -j list tables", "iptables-save"}},
		"where nobody is meant to be, nothing is":                      {says: map[string]string{"iptables-save": bare, "nft -j list tables": tables}},
		"a mode that is known is the only one":                         {mode: "nftables", meant: true, says: map[string]string{"iptables-save": marked, "nft -j list tables": tables}, want: []string{"nft -j list tables"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules{mode: test.mode, meant: test.meant, source: func(c command) source {
				line := strings.Join(c.argv, " ")
				return source{evidence.Record{Command: line}, func(context.Context) (output, error) {
					text, ok := test.says[line]
					if !ok {
						return output{}, errNoTable
					}
					return output{content: []byte(text)}, nil
				}}
			}}
			var have []string
			for _, s := range r.group() {
				if record, ok := s.run(t.Context(), 1); ok {
					have = append(have, record.Command)
				}
			}
			if !slices.Equal(have, test.want) {
				t.Errorf("records of %q, want %q", have, test.want)
			}
		})
	}
}

func TestWhoDoesNotAnswerIsNotAskedAgain(t *testing.T) {
	var silent error
	asked := 0
	answer := func(context.Context) (output, error) { asked++; return output{}, nil }
	if _, err := first(func(context.Context) (output, error) { return output{}, errNoMaps }, &silent)(t.Context()); !errors.Is(err, errNoMaps) {
		t.Error(err)
	}
	if _, err := unless(answer, &silent)(t.Context()); !errors.Is(err, errNoMaps) || asked > 0 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	silent = nil
	if _, err := unless(answer, &silent)(t.Context()); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
