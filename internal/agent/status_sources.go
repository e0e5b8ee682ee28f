// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// troubleOf returns what an API server's source says of a kind that is stale;
// nothing of one that is not, nor of a folder.
func troubleOf(state tables.SourceState) reflector.Trouble {
	if trouble, ok := errors.AsType[*reflector.Trouble](state.Stale); ok {
		return *trouble
	}
	return reflector.Trouble{}
}

// sourceStatus says how far a kind is followed, and why no further.
func sourceStatus(state tables.SourceState) api.SourceStatus {
	s := api.SourceStatus{Kind: state.Kind.String(), Synced: state.Listed, Objects: state.Count, Since: state.Since.UTC()}
	if state.Stale == nil {
		return s
	}
	trouble := troubleOf(state)
	s.Stale, s.Error = true, state.Stale.Error()
	s.Reason, s.Missing = string(trouble.Reason), trouble.Missing()
	return s
}

// staleFact is what the metrics say of a kind that cannot be followed.
func staleFact(state tables.SourceState) metrics.Stale {
	if state.Stale == nil {
		return metrics.Stale{}
	}
	trouble := troubleOf(state)
	return metrics.Stale{Since: state.Since, Reason: string(trouble.Reason), Verb: trouble.Verb, Resource: trouble.GroupResource()}
}

// remedy says what to do about a kind that is stale, where that is known, in
// words that follow its error.
func remedy(s api.SourceStatus) string {
	switch reflector.Reason(s.Reason) {
	case reflector.ReasonForbidden:
		return "; the ClusterRole or its binding is missing: kubectl apply -f deploy/rbac.yaml"
	case reflector.ReasonUnauthorized:
		return "; the token or client certificate is not accepted: renew the one that the kubeconfig names, or recreate the pod if its ServiceAccount was replaced"
	case reflector.ReasonUntrusted:
		return "; the certificate authority that the kubeconfig or the ServiceAccount names did not sign for this server: something else may answer there"
	}
	return ""
}
