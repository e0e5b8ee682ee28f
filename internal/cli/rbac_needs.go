// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/rbac"
	"github.com/fairlead-io/fairlead/internal/rights"
	"github.com/fairlead-io/fairlead/internal/rights/source"
)

// needsAnswer is the JSON of `rbac needs`.
type needsAnswer struct {
	SchemaVersion int             `json:"schemaVersion"`
	User          string          `json:"user"`
	Components    []componentText `json:"components"`
	Needs         []rights.Need   `json:"needs"`
}

// componentText is a component that is known to run as a user.
type componentText struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Source string `json:"source"`
}

type needsFlags struct {
	subject subjectFlags
	grants  grantFlags
	usage   usageFlags
	logs    []string
	output  *format
}

func newRBACNeeds(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "needs [NAMESPACE/]ACCOUNT|--user NAME",
		Short: "Show which rights a component needs, and where that is known from",
		Long: `Put together which verbs on which resources a service account, or another user, needs,
from all that is given:

  bindings       what binds it to roles: as the API server of --kubeconfig has it, as a
                 journal recorded it (--journal, --at), as a Helm release installed it
                 (--helm-release), or as manifests say (-f); if nothing is given, as the
                 API server has it that kubectl would ask
  audit log      what it used, and what it asked for and was refused (--audit-log)
  its log        what its own log says it was refused (--log)
  built-in data  what is known of components without which a cluster has no network

FROM shows which of them know of a right. What everybody may do is left out. -o yaml
prints roles that give exactly these rights: a ClusterRole, and a Role for each namespace
in which something is needed that is not needed everywhere.`,
		Example: e.examples(
			"fairlead rbac needs kube-system/cilium --kubeconfig ~/.kube/config",
			"fairlead rbac needs kube-system/cilium --journal journal.db --at 2026-11-20T10:00:05Z",
			"fairlead rbac needs kube-system/cilium --log cilium-agent.log --audit-log audit.log",
			"fairlead rbac needs web/backend --audit-log audit.log -o yaml > role.yaml",
			"fairlead rbac needs --user system:kube-controller-manager"),
	}
	f := &needsFlags{output: outputFlag(cmd, "json", "yaml")}
	f.subject.addTo(cmd)
	f.grants.addTo(cmd)
	f.usage.addTo(cmd)
	cmd.Flags().StringSliceVar(&f.logs, "log", nil, "the component's own log in `FILE`, - for standard input; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		user, err := f.subject.need(cmd, args)
		if err != nil {
			return err
		}
		if f.usage.policy != "" && len(f.usage.files) == 0 {
			return seeHelp(cmd, "--policy is about audit logs: give --audit-log too")
		}
		if err := f.grants.reach(f.grants.others() || len(f.usage.files) > 0 || len(f.logs) > 0); err != nil {
			return err
		}
		return e.rbacNeeds(cmd.Context(), f, user)
	}
	return cmd
}

func (e *env) rbacNeeds(ctx context.Context, f *needsFlags, user rbac.User) error {
	k, err := e.readGrants(ctx, &f.grants, user)
	if err != nil {
		return err
	}
	if k.unread != nil {
		e.warn("what binds it is not known: %v", k.unread)
	}
	needs := &rights.Needs{}
	answer := needsAnswer{SchemaVersion: api.SchemaVersion, User: user.Name, Components: []componentText{}}
	namespace, _ := rbac.AccountOf(user.Name)
	for _, c := range rights.ComponentsOf(user, k.pods) {
		needs.AddComponent(&c, namespace)
		answer.Components = append(answer.Components, componentText{c.ID, c.Title, c.Source})
	}
	lossy, err := e.addAsked(ctx, f, needs, user)
	if err != nil {
		return err
	}
	for _, g := range k.grants {
		access := rights.NewAccess(g.policy, user)
		if needs.AddAccess(g.source, access) == 0 {
			e.warn("%s give %s nothing", g.source, user.Name)
		}
		needs.Without(access)
	}
	if answer.Needs = needs.Rules(); len(answer.Needs) == 0 {
		return errors.New("find what " + user.Name + " needs: nothing that was asked knows of it; give --kubeconfig, --journal, --helm-release, -f, --audit-log or --log")
	}
	if err := e.printNeeds(f.output, answer, user); err != nil {
		return err
	}
	return lossy
}

// addAsked adds what the user asked for. It ends with what is to be told of logs
// that could not be read whole, once there is an answer.
func (e *env) addAsked(ctx context.Context, f *needsFlags, needs *rights.Needs, user rbac.User) (lossy, err error) {
	if len(f.usage.files) > 0 {
		u, err := e.readUsage(ctx, &f.usage, user.Name)
		if err != nil {
			return nil, err
		}
		needs.AddUses(u.Uses())
		e.warnOfUsage(u)
		lossy = e.reportLosses(u.losses)
	}
	others := 0
	for _, path := range f.logs {
		err := e.reading("the log", path, func(in io.Reader) error {
			return source.Denials(in, func(d rbac.Denial) {
				if d.User != user.Name {
					others++
					return
				}
				needs.AddDenial(d)
			})
		})
		if err != nil {
			return nil, err
		}
	}
	if others > 0 {
		e.warn("%d refusals in the logs are of other users than %s", others, user.Name)
	}
	return lossy, nil
}

func (e *env) printNeeds(output *format, answer needsAnswer, user rbac.User) error {
	switch output.value {
	case "json":
		return e.printData(output, answer)
	case "yaml":
		_, name := rbac.AccountOf(user.Name)
		if name == "" {
			name = user.Name
		}
		text, err := rights.Manifest(name, answer.Needs)
		if err != nil {
			return err
		}
		return e.print(text)
	}
	t := &table{columns: columns("RESOURCE", "VERBS", "NAMESPACE", "NAMES", "FROM")}
	for _, n := range answer.Needs {
		t.add(n.Target(), strings.Join(n.Verbs, ","), orAll(n.Namespace), orAll(strings.Join(n.Names, ",")), strings.Join(n.From, ", "))
	}
	return e.printTable(output, t)
}

// orAll is how a rule shows that it is not about one namespace, or one name.
func orAll(text string) string {
	if text == "" {
		return "*"
	}
	return text
}
