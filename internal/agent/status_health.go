// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/healthcheck"
)

// addHealth says what others are told about this node, and what keeps them
// from being told.
func (a *Agent) addHealth(s *api.Status) (troubles []string) {
	signs, now := a.signs(), time.Now()
	s.Healthz = api.Healthz{
		Healthz: statusCode(signs.Healthy(now) && signs.NodeEligible), Livez: statusCode(signs.Live(now)),
		NodeEligible: signs.NodeEligible,
	}
	if waited := now.Sub(signs.Pending); !signs.Pending.IsZero() && waited >= healthcheck.PendingLimit {
		troubles = append(troubles, fmt.Sprintf("changes wait to be written since %s: the writer is stuck, see its log and restart the agent", signs.Pending.UTC().Format(time.RFC3339)))
	}
	if !signs.NodeEligible {
		s.Findings = append(s.Findings, "the node is gone or about to go: /healthz answers 503, so that load balancers leave it alone")
	}
	if a.healthz != nil {
		address, err := a.healthz.State()
		s.Healthz.Address = address
		if err != nil {
			s.Healthz.Error = err.Error()
			troubles = append(troubles, s.Healthz.Error+" (--healthz-bind-address)")
		}
	}
	if a.metricsServer != nil {
		address, err := a.metricsServer.State()
		s.MetricsAddress = address
		if err != nil {
			troubles = append(troubles, err.Error()+" (--metrics-bind-address)")
		}
	}
	return append(troubles, a.addHealthChecks(s)...)
}

func (a *Agent) addHealthChecks(s *api.Status) (troubles []string) {
	s.HealthChecks = []api.HealthCheck{}
	for _, state := range a.checks.States() {
		check := api.HealthCheck{
			Service: state.Service.String(), Port: state.Port, LocalEndpoints: state.LocalEndpoints,
			Status: statusCode(state.Well()), Listening: []string{}, Error: state.Error,
		}
		for _, at := range state.Listening {
			check.Listening = append(check.Listening, at.String())
		}
		if state.Error != "" {
			troubles = append(troubles, fmt.Sprintf("the health-check port of %s cannot be listened on, load balancers take this node for unhealthy: %s", check.Service, state.Error))
		}
		s.HealthChecks = append(s.HealthChecks, check)
	}
	return troubles
}

func statusCode(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
