// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
)

func apiEndpoint(url, state string, sources ...string) api.APIEndpoint {
	return api.APIEndpoint{URL: url, State: state, Sources: sources, Error: "it is so"}
}

func TestStatusSaysHowTheAPIServerIsReached(t *testing.T) {
	const (
		a, b, service = "https://192.0.2.10:6443", "https://192.0.2.11:6443", "https://10.96.0.1:443"
		unheard       = ", what was known stays in force: see which endpoints `fairlead status` lists, check that one of them is up and can be reached from this node, or name another with --api-server"
	)
	answers, now := apiEndpoint(a, api.EndpointAnswers, "flag"), time.Now()
	for _, c := range []struct {
		name               string
		way                *api.APIServer
		troubles, findings []string
	}{
		{"a folder of manifests has no API server", nil, nil, nil},
		{"one that answers is enough",
			&api.APIServer{Current: a, Answered: now, Endpoints: []api.APIEndpoint{answers, apiEndpoint(b, api.EndpointSilent, "slices")}}, nil, nil},
		{"that none answers is a trouble, with the last answer",
			&api.APIServer{Current: a, Answered: at(5), Endpoints: []api.APIEndpoint{apiEndpoint(a, api.EndpointSilent, "flag")}},
			[]string{"no API server has answered since 2026-11-20T10:05:00Z" + unheard}, nil},
		{"that heartbeats hang is a trouble, although the last one was answered",
			&api.APIServer{Current: a, Answered: time.Unix(0, 0), Endpoints: []api.APIEndpoint{answers}},
			[]string{"no API server has answered since 1970-01-01T00:00:00Z" + unheard}, nil},
		{"that none ever did, too",
			&api.APIServer{Endpoints: []api.APIEndpoint{apiEndpoint(a, api.EndpointUntried, "flag")}},
			[]string{"no API server has answered since this agent started" + unheard}, nil},
		{"one that is not ready is used, and a trouble",
			&api.APIServer{Current: b, Answered: at(5), Endpoints: []api.APIEndpoint{apiEndpoint(a, api.EndpointSilent, "flag"), apiEndpoint(b, api.EndpointUnready, "flag")}},
			[]string{"no API server is ready, " + b + " is used all the same: what was known stays in force where it does not answer"}, nil},
		{"a Service address as the only way is worth knowing",
			&api.APIServer{Current: service, Answered: now, Endpoints: []api.APIEndpoint{apiEndpoint(service, api.EndpointAnswers, "pod")}},
			nil, []string{"the only known way to the API server is the Service address " + service + ": if that Service fails, nothing can tell this agent so; give --api-server"}},
		{"beside another it is not",
			&api.APIServer{Current: a, Answered: now, Endpoints: []api.APIEndpoint{answers, apiEndpoint(service, api.EndpointUntried, "pod")}}, nil, nil},
		{"a foreign one is worth knowing",
			&api.APIServer{Current: a, Answered: now, Endpoints: []api.APIEndpoint{answers, apiEndpoint(b, api.EndpointForeign, "slices", "file")}},
			nil, []string{b + " (known from slices, file) is something else than this cluster's API server, and is left alone until a source names it anew: it is so"}},
		{"a state file that cannot be written is a trouble",
			&api.APIServer{Current: a, Answered: now, Endpoints: []api.APIEndpoint{answers}, StateFile: "/var/lib/x", StateFileError: "no space left"},
			[]string{"what the next agent must know if no API server answers cannot be kept in /var/lib/x (--state-file): no space left"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s api.Status
			if diff := cmp.Diff(c.troubles, addAPIServer(&s, c.way)); diff != "" {
				t.Errorf("troubles: %s", diff)
			}
			if diff := cmp.Diff(c.findings, s.Findings); diff != "" {
				t.Errorf("findings: %s", diff)
			}
			if s.APIServer != c.way {
				t.Errorf("the status shows %+v", s.APIServer)
			}
		})
	}
}

func TestAMoveToAnotherEndpointIsToldOnce(t *testing.T) {
	agent := retainingAgent(t)
	events := agent.listening(t)
	hear := agent.endpointNews()
	way := func(current, state string) api.APIServer {
		return api.APIServer{Current: current, Endpoints: []api.APIEndpoint{apiEndpoint("a", state), apiEndpoint("b", state)}}
	}
	for _, step := range []struct {
		name string
		way  api.APIServer
		want string // "": nothing new
	}{
		{"nobody has answered yet", way("", api.EndpointUntried), ""},
		{"the first that answers", way("a", api.EndpointAnswers), "a is in use"},
		{"it goes on to", way("a", api.EndpointAnswers), ""},
		{"another one", way("b", api.EndpointAnswers), "b is in use, instead of a"},
		{"it falls silent", way("b", api.EndpointSilent), "no API server answers any more, what was known stays in force: b did last"},
		{"it comes back", way("b", api.EndpointUnready), "b answers again"},
		{"nothing is in use", way("", api.EndpointForeign), "no API server answers any more, what was known stays in force: b did last"},
		{"the first one does again", way("a", api.EndpointAnswers), "a is in use, instead of b"},
	} {
		hear(step.way)
		if step.want == "" {
			continue // An event would be taken for that of the next step.
		}
		e := next(t, events)
		if e.Event != api.EventEndpoint || e.Reason != step.want || e.Time.IsZero() {
			t.Errorf("%s: got %+v, want %q", step.name, e, step.want)
		}
	}
	if text := agent.scrape(); !strings.Contains(text, "\nfairlead_apiserver_moves_total 2\n") {
		t.Errorf("moves, want 2:\n%s", text)
	}
}
