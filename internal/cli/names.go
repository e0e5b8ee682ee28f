// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

// completionPatience bounds how long a shell waits for names.
const completionPatience = 2 * time.Second

// completeServices lets the shell complete the names of Services, as far as an
// agent answers.
func completeServices(cmd *cobra.Command, namespace, socket *string) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		found, err := api.NewClient(*socket).Services(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		shown := filter{namespace: *namespace}
		var names []cobra.Completion
		for _, service := range found.Services {
			if shown.matchesService(service.Service) {
				names = append(names, service.Service)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
