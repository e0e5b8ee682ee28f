// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Retentions converts what the tables retain, in their order.
func Retentions(all []tables.Retained) []api.Retention {
	list := make([]api.Retention, len(all))
	for i, r := range all {
		list[i] = api.Retention{
			Service: r.Key.Service.String(), PortName: r.Key.PortName, Protocol: r.Key.Protocol.String(),
			Family: r.Key.Family.String(), Role: r.Key.Role.String(),
			Since: r.Since.UTC(), Restored: r.Restored, Backends: api.NewBackends(r.Backends),
		}
		if !r.Until.IsZero() {
			until := r.Until.UTC()
			list[i].Until = &until
		}
	}
	return list
}

// KeptText is what to say of a Service that a retention is about.
func KeptText(r api.Retention) string {
	backends := "backend"
	if n := len(r.Backends); n != 1 {
		backends = fmt.Sprintf("%d backends", n)
	}
	until := "the API is heard of"
	if r.Until != nil {
		until = r.Until.Format(time.RFC3339)
	}
	if r.Restored {
		return fmt.Sprintf("goes on since %s with the %s that the state file remembers (%s) until %s", r.Since.Format(time.RFC3339), backends, heard(r.Backends), until)
	}
	return fmt.Sprintf("has no endpoint in the API since %s and goes on with its last %s (%s) until %s", r.Since.Format(time.RFC3339), backends, heard(r.Backends), until)
}

// heard says what is known of backends that the API does not vouch for.
func heard(backends []api.Backend) string {
	answered := 0
	for _, b := range backends {
		if b.State == model.StateRetained.String() {
			answered++
		}
	}
	switch answered {
	case 0:
		return "unverified: no heartbeat was answered since"
	case len(backends):
		return "verified by heartbeats"
	}
	return fmt.Sprintf("%d verified by heartbeats", answered)
}

// KeptVerdict adds to what a new connection meets that nobody but this agent
// vouches for its backend.
func KeptVerdict(verdict string, f api.Frontend, kept []api.Retention, set model.SetKey) string {
	i := slices.IndexFunc(kept, func(r api.Retention) bool {
		return r.PortName == set.PortName && r.Protocol == set.Protocol.String() && r.Family == set.Family.String() && r.Role == set.Role.String()
	})
	if i < 0 || len(f.Backends) == 0 {
		return verdict
	}
	return verdict + "; the Service " + KeptText(kept[i])
}
