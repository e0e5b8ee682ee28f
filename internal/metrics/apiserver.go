// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

var (
	retentionSteps = []string{api.EventRetained, api.EventRestored, api.EventVerified, api.EventForeign, api.EventEnded}
	endpointStates = []string{api.EndpointUntried, api.EndpointAnswers, api.EndpointUnready, api.EndpointSilent, api.EndpointForeign}
)

// apiServerFacts are about the way to the API server, and about what is
// retained while nothing better is known from there.
var apiServerFacts = []metric[Facts]{
	{
		Name: "fairlead_retained_backends", Type: gauge, Labels: []string{"service", "state"},
		Help: help("Backends that Services go on with although the API has them no more; retained: they answer, unverified: none was heard of"),
		Read: func(f Facts, emit func(float64, ...string)) {
			for k, n := range retainedBackends(f.Retained) {
				emit(float64(n), k.service, k.state)
			}
		},
	},
	{
		Name: "fairlead_retention_since_timestamp_seconds", Type: gauge, Labels: []string{"service"},
		Help: help("Since when a Service goes on with backends that the API has no more"),
		Read: func(f Facts, emit func(float64, ...string)) {
			for service, since := range retainedSince(f.Retained) {
				emit(seconds(since), service)
			}
		},
	},
	{
		Name: "fairlead_apiserver_endpoints", Type: gauge, Labels: []string{"state"},
		Help: help("Endpoints of the API server that the agent knows, by what was last found there"),
		Read: func(f Facts, emit func(float64, ...string)) {
			if f.APIServer == nil {
				return
			}
			count := map[string]int{}
			for _, e := range f.APIServer.Endpoints {
				count[e.State]++
			}
			for _, state := range endpointStates {
				emit(float64(count[state]), state)
			}
		},
	},
	timestamp("fairlead_apiserver_current_since_timestamp_seconds", help("Since when the agent uses the endpoint of the API server that it uses now"),
		func(f Facts) time.Time {
			if f.APIServer == nil || f.APIServer.Current == "" {
				return time.Time{}
			}
			return f.APIServer.Since
		}),
	timestamp("fairlead_apiserver_last_heartbeat_timestamp_seconds", help("When the API server last answered a heartbeat of the agent"),
		func(f Facts) time.Time {
			if f.APIServer == nil {
				return time.Time{}
			}
			return f.APIServer.Answered
		}),
}

type retainedKey struct{ service, state string }

// retainedBackends counts a backend of a Service port once, in however many
// sets it is.
func retainedBackends(all []api.Retention) map[retainedKey]int {
	type backend struct {
		retainedKey
		portName, protocol string
		address            string
		port               uint16
	}
	seen, count := map[backend]bool{}, map[retainedKey]int{}
	for _, r := range all {
		for _, b := range r.Backends {
			k := backend{retainedKey{r.Service, b.State}, r.PortName, r.Protocol, b.Address, b.Port}
			if !seen[k] {
				seen[k] = true
				count[k.retainedKey]++
			}
		}
	}
	return count
}

// retainedSince is the time of the set of a Service that was emptied first.
func retainedSince(all []api.Retention) map[string]time.Time {
	since := map[string]time.Time{}
	for _, r := range all {
		if first, there := since[r.Service]; !there || r.Since.Before(first) {
			since[r.Service] = r.Since
		}
	}
	return since
}
