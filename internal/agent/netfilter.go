// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/google/nftables"
)

// forwardFindings says which chains drop what nobody accepts on its way through
// the node, as Docker makes them: traffic to pods of this node passes them.
// Rules of the old iptables kernel modules are not seen here.
func forwardFindings(chains func() ([]*nftables.Chain, error)) []string {
	list, err := chains()
	if err != nil {
		return []string{fmt.Sprintf("whether netfilter forwards to pods cannot be told: %v", err)}
	}
	var findings []string
	for _, c := range list {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Policy == nil || *c.Policy != nftables.ChainPolicyDrop {
			continue
		}
		findings = append(findings, fmt.Sprintf(
			"chain %s of the nftables table %s %s drops what none of its rules accepts: traffic to pods of this node passes it, so the CNI or you must accept what goes to pods and what comes from them",
			c.Name, familyName(c.Table.Family), c.Table.Name))
	}
	return findings
}

func familyName(f nftables.TableFamily) string {
	switch f {
	case nftables.TableFamilyIPv4:
		return "ip"
	case nftables.TableFamilyIPv6:
		return "ip6"
	case nftables.TableFamilyINet:
		return "inet"
	}
	return fmt.Sprintf("family %d", f)
}

// readChains lists the chains of the calling thread's network namespace.
func readChains() ([]*nftables.Chain, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket to nftables: %w", err)
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	return chains, nil
}
