// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// addAPIServer says how the agent reaches the API server, and what is wrong or
// risky about it. It is nil where the source is a folder.
func addAPIServer(s *api.Status, way *api.APIServer) (troubles []string) {
	if way == nil {
		return nil
	}
	s.APIServer = way
	if trouble := unanswered(*way); trouble != "" {
		troubles = append(troubles, trouble)
	}
	if way.StateFileError != "" {
		troubles = append(troubles, fmt.Sprintf("what the next agent must know if no API server answers cannot be kept in %s (--state-file): %s", way.StateFile, way.StateFileError))
	}
	if url, only := onlyByService(way.Endpoints); only {
		s.Findings = append(s.Findings, fmt.Sprintf("the only known way to the API server is the Service address %s: if that Service fails, nothing can tell this agent so; give --api-server", url))
	}
	for _, e := range way.Endpoints {
		if e.State == api.EndpointForeign {
			s.Findings = append(s.Findings, fmt.Sprintf("%s (known from %s) is something else than this cluster's API server, and is left alone until a source names it anew: %s",
				e.URL, strings.Join(e.Sources, ", "), e.Error))
		}
	}
	return troubles
}

// lateAnswer is after how long without an answered heartbeat it no longer counts
// what the last one said: heartbeats may hang with a credential plugin.
const lateAnswer = time.Minute

// unanswered says what it means that no endpoint answers as it should, and
// since when; "" if one does.
func unanswered(way api.APIServer) string {
	has := func(state string) bool {
		return slices.ContainsFunc(way.Endpoints, func(e api.APIEndpoint) bool { return e.State == state })
	}
	switch {
	case has(api.EndpointAnswers) && time.Since(way.Answered) < lateAnswer:
		return ""
	case has(api.EndpointUnready) && !has(api.EndpointAnswers):
		return fmt.Sprintf("no API server is ready, %s is used all the same: what was known stays in force where it does not answer", way.Current)
	}
	since := "since this agent started"
	if !way.Answered.IsZero() {
		since = "since " + way.Answered.UTC().Format(time.RFC3339)
	}
	return "no API server has answered " + since + ", what was known stays in force: see which endpoints `fairlead status` lists, " +
		"check that one of them is up and can be reached from this node, or name another with --api-server"
}

// onlyByService returns the one address that the pod's environment gives, if
// no other is known. It is a Service's, which this agent itself may serve.
func onlyByService(endpoints []api.APIEndpoint) (url string, only bool) {
	for _, e := range endpoints {
		if !slices.Equal(e.Sources, []string{"pod"}) {
			return "", false
		}
		url = e.URL
	}
	return url, url != ""
}

// endpointNews returns what hears, from one goroutine, how the agent reaches
// the API server, whenever that may have changed. It tells those who watch, and
// counts the moves.
func (a *Agent) endpointNews() func(api.APIServer) {
	told, last := "", ""
	return func(way api.APIServer) {
		current := inUse(way)
		if current == told {
			return
		}
		text := current + " is in use"
		switch {
		case current == "":
			text = "no API server answers any more, what was known stays in force: " + last + " did last"
		case current == last:
			text = current + " answers again"
		case last != "":
			text += ", instead of " + last
			a.metrics.Moved()
		}
		told = current
		if current != "" {
			last = current
		}
		a.refusals.send(api.Event{Event: api.EventEndpoint, Refusal: api.Refusal{SchemaVersion: api.SchemaVersion, Time: time.Now().UTC(), Reason: text}})
	}
}

// inUse is the endpoint at which the agent talks to the API server, "" if that
// does not answer there.
func inUse(way api.APIServer) string {
	for _, e := range way.Endpoints {
		if e.URL == way.Current && (e.State == api.EndpointSilent || e.State == api.EndpointForeign) {
			return ""
		}
	}
	return way.Current
}
