// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/nftables"

	"github.com/fairlead-io/fairlead/test/lab"
)

// chainsOf adds chains to a namespace's nftables and returns what is found.
func chainsOf(t *testing.T, chains ...*nftables.Chain) (findings []string) {
	t.Helper()
	lab.NewNetNS(t, "node").Do(func() {
		c, err := nftables.New()
		if err != nil {
			t.Error(err)
			return
		}
		for _, chain := range chains {
			c.AddTable(chain.Table)
			c.AddChain(chain)
		}
		if err := c.Flush(); err != nil {
			t.Errorf("add chains: %v", err)
			return
		}
		findings = forwardFindings(readChains)
	})
	return findings
}

func TestForwardChainsThatDropAreFound(t *testing.T) {
	drop, accept := nftables.ChainPolicyDrop, nftables.ChainPolicyAccept
	filter := func(hook *nftables.ChainHook, policy *nftables.ChainPolicy) *nftables.Chain {
		return &nftables.Chain{
			Name: "FORWARD", Table: &nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4},
			Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter, Policy: policy,
		}
	}
	for name, c := range map[string]struct {
		chains []*nftables.Chain
		want   string
	}{
		"one that drops by policy":     {[]*nftables.Chain{filter(nftables.ChainHookForward, &drop)}, "chain FORWARD of the nftables table ip filter drops"},
		"one that accepts":             {[]*nftables.Chain{filter(nftables.ChainHookForward, &accept)}, ""},
		"one of another hook":          {[]*nftables.Chain{filter(nftables.ChainHookInput, &drop)}, ""},
		"one that no hook leads to":    {[]*nftables.Chain{{Name: "FORWARD", Table: filter(nil, nil).Table}}, ""},
		"a namespace without any rule": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(chainsOf(t, c.chains...), "\n")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}

	t.Run("what cannot be read is said", func(t *testing.T) {
		got := forwardFindings(func() ([]*nftables.Chain, error) { return nil, errors.New("not permitted") })
		if len(got) != 1 || !strings.Contains(got[0], "not permitted") {
			t.Errorf("found %q", got)
		}
	})
}
