// SPDX-License-Identifier: Apache-2.0

// Package rbacmissing finds components of the network that the API server does
// not allow what they cannot do without.
package rbacmissing

import (
	_ "embed"
	"slices"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

//go:embed README.md
var page string

// Check finds permissions that are missing.
func Check() doctor.Check {
	return doctor.Check{
		ID: "rbac-missing", Title: "permissions that a component of the network cannot do without, and lacks", Rank: doctor.RankPermission,
		Page: page, Case: find,
	}
}

func find(c *facts.Case) []doctor.Finding {
	k := newKnown(c)
	var out []doctor.Finding
	done := map[string]bool{}
	for _, p := range k.parts {
		// Accounts that several workloads share are judged once for each component.
		if id := p.ID + " " + p.Name(); !done[id] {
			done[id] = true
			out = append(out, k.judge(&p)...)
		}
	}
	return out
}

// judge says what a part lacks, if it runs, and the API server knows it by its
// account.
func (k *known) judge(p *parts.Part) []doctor.Finding {
	if !p.OwnAccount || p.Wanted() == 0 && len(p.Pods) == 0 {
		return nil
	}
	var lacking []rbac.Request
	for _, r := range p.Requests() {
		if k.refused(p, r) {
			lacking = append(lacking, r)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return []doctor.Finding{k.finding(p, lacking)}
}

// known is what is known of permissions.
type known struct {
	*parts.Permissions
	c       *facts.Case
	parts   []parts.Part
	denials map[parts.Asked]denial
}

// denial is a refusal that a log shows, with the first line that does.
type denial struct {
	log     *facts.Log
	line    facts.Line
	missing []rbac.Ref // roles that the API server looked for in vain, of late
}

func newKnown(c *facts.Case) *known {
	k := &known{Permissions: parts.PermissionsOf(c), c: c, denials: map[parts.Asked]denial{}}
	k.parts = parts.Of(k.Objects)
	k.takeLogs()
	return k
}

// takeLogs takes what was refused of late. Who was refused without being among
// the objects is a component that runs nonetheless.
func (k *known) takeLogs() {
	for _, l := range k.c.Logs {
		lines, dated := parts.Recent(k.c, l)
		if !dated {
			continue
		}
		for _, line := range lines {
			d, found := rbac.ParseDenial(line.Text)
			if !found {
				continue
			}
			k.speaks(l, d.User)
			key := parts.Asked{User: d.User, Request: d.Request}
			seen, again := k.denials[key]
			if !again {
				seen = denial{log: l, line: line}
			}
			seen.missing = d.Missing
			k.denials[key] = seen
		}
	}
}

// speaks adds the component that a log shows, unless its account is known.
func (k *known) speaks(l *facts.Log, user string) {
	namespace, account := rbac.AccountOf(user)
	if account == "" || slices.ContainsFunc(k.parts, func(p parts.Part) bool { return p.Namespace == namespace && p.Account == account }) {
		return
	}
	if p, known := parts.Speaker(nil, l); known && p.Namespace == namespace {
		p.Account, p.OwnAccount, p.Record = account, true, l.Record
		k.parts = append(k.parts, p)
	}
}

// refused says whether a part may not do something, as far as is known.
func (k *known) refused(p *parts.Part, r rbac.Request) bool {
	if may, known := k.May(p.User(), r); known {
		return !may
	}
	_, denied := k.denials[parts.Asked{User: p.User().Name, Request: r}]
	return denied
}
