// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/internal/rights"
)

// compareAnswer is the JSON of `rbac compare`.
type compareAnswer struct {
	SchemaVersion int    `json:"schemaVersion"`
	User          string `json:"user"`
	// Granted is where the bindings were read that are compared.
	Granted string          `json:"granted"`
	Servers []audit.Server  `json:"servers"`
	Losses  *audit.Losses   `json:"losses,omitempty"`
	Known   []componentText `json:"components"`
	rights.Comparison
}

func newRBACCompare(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare [NAMESPACE/]ACCOUNT|--user NAME",
		Short: "Show which rights of a component are too much, and which are too little",
		Long: `Compare what a service account, or another user, may do with what it used and needs.

What it may do are the bindings of the API server of --kubeconfig; without that those of
the journal, of the manifests, or else of the API server that kubectl would ask. Too little is what these do not give although

  - the audit logs show that it was refused, or that it used it when it still could
  - another source that is given has it: a journal, manifests, a Helm release
  - no version of the component can work without it, by the built-in data

Too much is what they give and the audit logs do not show in use, for the time that the
logs cover. A wildcard is shown with what it was used for. Where a log would not show
that a right is used, as its policy leaves such requests out, that is said; --policy
tells for certain. Never too much is what everybody may do, what no version of the
component can work without, and a list of what is watched.

Exit status: 0 nothing is too little, 1 something is, 2 it could not compare.`,
		Example: e.examples(
			"fairlead rbac compare kube-system/cilium --kubeconfig ~/.kube/config --audit-log audit.log",
			"fairlead rbac compare kube-system/cilium --kubeconfig ~/.kube/config --helm-release kube-system/cilium",
			"fairlead rbac compare web/backend -f roles.yaml --audit-log cp1/,cp2/ --policy policy.yaml -o json"),
	}
	f := &needsFlags{output: outputFlag(cmd, "json", "yaml")}
	f.subject.addTo(cmd)
	f.grants.addTo(cmd)
	f.usage.addTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		user, err := f.subject.need(cmd, args)
		if err != nil {
			return err
		}
		if err := f.grants.reach(f.grants.others()); err != nil {
			return err
		}
		if f.grants.api == nil && !f.grants.others() {
			return seeHelp(cmd, "say where its rights are to be read: give --kubeconfig, --journal or -f")
		}
		if f.usage.policy != "" && len(f.usage.files) == 0 {
			return seeHelp(cmd, "--policy is about audit logs: give --audit-log too")
		}
		return e.rbacCompare(cmd.Context(), f, user)
	}
	return cmd
}

func (e *env) rbacCompare(ctx context.Context, f *needsFlags, user rbac.User) error {
	k, err := e.readGrants(ctx, &f.grants, user)
	if err = cmp.Or(err, k.unread); err != nil {
		return err
	}
	answer := compareAnswer{SchemaVersion: api.SchemaVersion, User: user.Name, Granted: k.grants[0].source, Servers: []audit.Server{}, Known: []componentText{}}
	c := rights.Case{Needs: &rights.Needs{}}
	var u *usage
	if len(f.usage.files) > 0 {
		if u, err = e.readUsage(ctx, &f.usage, user.Name); err != nil {
			return err
		}
		user.Groups = union(user.Groups, u.Groups())
		c.Uses, c.Hidden = u.Uses(), u.Hidden(user, u.policy)
		answer.Servers, answer.Losses = u.summary.Servers(), &u.losses
	}
	c.Access = rights.NewAccess(k.grants[0].policy, user)
	if c.Access.Everything() {
		return errors.New("compare the rights of " + user.Name + ": it is in the group system:masters, to which the API server denies nothing, whatever roles there are")
	}
	for _, g := range k.grants[1:] {
		c.Needs.AddAccess(g.source, rights.NewAccess(g.policy, user))
	}
	for _, component := range rights.ComponentsOf(user, k.pods) {
		c.Needs.AddEssential(&component)
		answer.Known = append(answer.Known, componentText{component.ID, component.Title, component.Source})
	}
	answer.Comparison = rights.Compare(c)
	if u == nil {
		// Without a log nothing is known to be unused.
		answer.TooMuch = []rights.Excess{}
	}
	if err := e.printCompare(f.output, answer); err != nil {
		return err
	}
	return e.compared(u, answer)
}

// compared says what the answer rests on, and how the command ends.
func (e *env) compared(u *usage, answer compareAnswer) error {
	var lossy error
	if u == nil {
		e.warn("without --audit-log nothing is known to be too much")
	} else {
		e.warnOfUsage(u)
		lossy = e.reportLosses(u.losses)
	}
	if len(answer.TooLittle) > 0 {
		return errFindings
	}
	return lossy
}

func union(a, b []string) []string {
	out := append([]string{}, a...)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func (e *env) printCompare(output *format, answer compareAnswer) error {
	if output.data() {
		return e.printData(output, answer)
	}
	var tables []*table
	if len(answer.Servers) > 0 {
		tables = coverTables(auditAnswer{Servers: answer.Servers})
	}
	little := &table{columns: columns("TOO LITTLE", "VERBS", "NAMESPACE", "NAMES", "WHY", "LAST ASKED")}
	for _, l := range answer.TooLittle {
		last := ""
		if !l.Last.IsZero() {
			last = auditTime(l.Last)
		}
		little.add(l.Target(), strings.Join(l.Verbs, ","), orAll(l.Namespace), orAll(strings.Join(l.Names, ",")), strings.Join(l.Why, "; "), last)
	}
	much := &table{columns: columns("TOO MUCH", "VERBS", "NAMESPACE", "NAMES", "GRANTED BY", "USED")}
	for _, x := range answer.TooMuch {
		used := "no"
		switch {
		case x.UsedFor != "":
			used = "only for " + x.UsedFor
		case x.Hidden != "":
			used = "not known: " + x.Hidden
		}
		if x.Essential != "" {
			used += "; essential: " + x.Essential
		}
		much.add(x.Target(), strings.Join(x.Verbs, ","), orAll(x.Namespace), orAll(strings.Join(x.Names, ",")), fmt.Sprintf("%s by %s", x.Role, x.Binding), used)
	}
	for _, t := range []*table{little, much} {
		if len(t.rows) > 0 {
			tables = append(tables, t)
		}
	}
	if err := e.printTables(output, tables); err != nil {
		return err
	}
	if len(answer.TooLittle)+len(answer.TooMuch) == 0 {
		return e.print(fmt.Sprintf("the rights of %s (%s) fit\n", clean(answer.User), answer.Granted))
	}
	return nil
}
