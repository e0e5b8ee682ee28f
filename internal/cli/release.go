// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

func newRelease(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release [NAMESPACE/]NAME",
		Short: "Let a Service be as empty as the API says",
		Long: `End a retention: the agent keeps nothing any more of the backends that a Service had
before the API emptied it, or that the state file remembers of it. New connections to
the Service are rejected from then on, until it has endpoints again; connections that
are open go on. "fairlead status" shows what is retained.

A retention ends by itself when the Service has endpoints again, or when its time is
over. Release it before that if nobody should be sent to its old backends.`,
		Example: e.examples("fairlead release default/kubernetes", "fairlead release -n default kubernetes", "fairlead release default/kubernetes -o json"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return seeHelp(cmd, "release takes one Service, not %d", len(args))
		},
	}
	namespace := cmd.Flags().StringP("namespace", "n", "", "`NAMESPACE` of the Service")
	output, socket := outputFlag(cmd, "json", "yaml"), socketFlag(cmd)
	completeNames(cmd, namespace, socket, retainedNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		service, err := serviceName(*namespace, args[0])
		if err != nil {
			return err
		}
		released, err := api.NewClient(*socket).Release(cmd.Context(), service)
		if err != nil {
			return err
		}
		if output.data() {
			return e.printData(output, released)
		}
		return e.print(releasedText(released, e.colour))
	}
	return cmd
}

func releasedText(r api.Released, colour bool) string {
	return fmt.Sprintf("nothing is kept of %s any more; these sets were:\n\n", clean(r.Service)) + retainedTable(r.Retained).text(false, colour)
}

// retainedNames are those that can be released.
func retainedNames(ctx context.Context, client *api.Client) ([]string, error) {
	status, err := client.Status(ctx)
	var names []string
	for _, r := range status.Retained {
		names = append(names, r.Service)
	}
	return slices.Compact(names), err
}

// retainedTable shows the sets that go on with backends which the API has no
// more, or which it has not told of yet.
func retainedTable(sets []api.Retention) *table {
	t := &table{columns: columns("RETAINED", "PORTNAME", "SET", "SINCE", "UNTIL", "BACKENDS")}
	for _, r := range sets {
		t.add(r.Service, r.PortName, fmt.Sprintf("%s %s %s", r.Family, r.Protocol, r.Role), moment(r.Since), untilCell(r), backendCell(r.Backends, true))
	}
	return t
}

// untilCell says when a retention ends if nothing else ends it before.
func untilCell(r api.Retention) string {
	if r.Until == nil {
		return "the API is heard of"
	}
	return moment(*r.Until)
}
