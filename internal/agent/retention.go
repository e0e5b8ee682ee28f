// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Release ends the retention of a Service.
func (a *Agent) Release(_ context.Context, service string) (api.Released, error) {
	return api.Released{}, api.NotFound("nothing is retained for %s", service)
}
