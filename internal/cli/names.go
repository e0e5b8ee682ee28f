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

// completeServices lets the shell complete the names of Services.
func completeServices(cmd *cobra.Command, namespace, socket *string) {
	completeNames(cmd, namespace, socket, serviceNames)
}

func serviceNames(ctx context.Context, client *api.Client) ([]string, error) {
	found, err := client.Services(ctx)
	names := make([]string, len(found.Services))
	for i, service := range found.Services {
		names[i] = service.Service
	}
	return names, err
}

// completeNames lets the shell complete names of Services, as far as an agent
// answers.
func completeNames(cmd *cobra.Command, namespace, socket *string, ask func(context.Context, *api.Client) ([]string, error)) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		found, err := ask(ctx, api.NewClient(*socket))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		shown := filter{namespace: *namespace}
		var names []cobra.Completion
		for _, name := range found {
			if shown.matchesService(name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
