// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// requests are those that may have led to an event, by somebody unknown.
func requests(e journal.Event) []audit.Record {
	verbs := []string{"update", "patch"}
	switch e.Type {
	case journal.Added:
		verbs = []string{"create"}
	case journal.Deleted, journal.Absent:
		verbs = []string{"delete"}
	}
	sub := ""
	if managerOf(e) != "" {
		sub = e.Subresource
	}
	var out []audit.Record
	for _, verb := range verbs {
		out = append(out, audit.Record{Verb: verb, Namespace: e.Namespace, Name: e.Name,
			Resource: audit.Resource{Group: e.Kind.Group, Version: e.Kind.Version, Resource: e.Kind.Resource, Subresource: sub}})
	}
	return out
}

// silence says which rule notes no end of a request, if one does.
func silence(p audit.Policy, rule int) (text string, silent bool) {
	switch {
	case rule == 0:
		return "no rule of the policy is about it, so it is not noted", true
	case p.Rules[rule-1].Level == audit.None:
		return fmt.Sprintf("rule %d of the policy notes nothing of it", rule), true
	case p.Omits(rule, audit.ResponseComplete):
		return fmt.Sprintf("rule %d of the policy leaves out the stage %s", rule, audit.ResponseComplete), true
	}
	return "", false
}

// byPolicy is a rule that notes nothing of it, whoever asked, or by whom it is
// known that he writes under the event's manager.
func (j *judge) byPolicy(m missed) (Reason, bool) {
	if j.policy == nil {
		return Reason{}, false
	}
	for _, r := range requests(m.event) {
		rules := j.policy.Possible(r)
		if text, silent := silence(*j.policy, rules[0]); silent && len(rules) == 1 {
			return Reason{Code: ReasonPolicy, Text: text, Evidence: []string{fmt.Sprintf("%s of %s by anybody", r.Verb, r.Resource)}}, true
		}
	}
	for _, who := range j.askers(managerOf(m.event)) {
		for _, r := range requests(m.event) {
			r.User, r.Groups = who.user, strings.Split(who.groups, "\n")
			_, rule := j.policy.Level(r)
			if text, silent := silence(*j.policy, rule); silent {
				return Reason{Code: ReasonPolicy, Text: "likely " + text, Evidence: []string{
					fmt.Sprintf("%s of %s by %s, who writes as %s", r.Verb, r.Resource, who.user, m.event.Manager)}}, true
			}
		}
	}
	return Reason{}, false
}

// askers are the users who may write under a manager. An API server's own are
// known without a record of them.
func (j *judge) askers(manager string) []asker {
	known := j.users[manager]
	if manager == apiServerManager {
		return append(known[:len(known):len(known)], asker{apiServerUser, "system:masters\nsystem:authenticated"})
	}
	return known
}

// maybePolicy is a rule that notes nothing of it if some users asked.
func (j *judge) maybePolicy(m missed) (Reason, bool) {
	if j.policy == nil {
		return Reason{}, false
	}
	for _, r := range requests(m.event) {
		for _, rule := range j.policy.Possible(r) {
			text, silent := silence(*j.policy, rule)
			if !silent {
				continue
			}
			who := "all others"
			if rule > 0 {
				who = whose(j.policy.Rules[rule-1])
			}
			return Reason{Code: ReasonPolicy, Text: fmt.Sprintf("%s, if it is of %s; the journal does not say who asked", text, who),
				Evidence: j.coverage(m.event.Time)}, true
		}
	}
	return Reason{}, false
}

// whose says for whom a rule is.
func whose(rule audit.Rule) string {
	var parts []string
	if len(rule.Users) > 0 {
		parts = append(parts, "users "+strings.Join(rule.Users, ", "))
	}
	if len(rule.UserGroups) > 0 {
		parts = append(parts, "groups "+strings.Join(rule.UserGroups, ", "))
	}
	if len(parts) == 0 {
		return "others than the rules before name"
	}
	return strings.Join(parts, " in ")
}
