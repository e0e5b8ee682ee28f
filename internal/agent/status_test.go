// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

func TestStatusSaysWhyFrontendsAreNotWritten(t *testing.T) {
	a := tracingAgent(t, datapath.SocketAll)
	a.report(t, map[model.FrontendKey]error{
		{Address: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}: errors.New("no room in fairlead_frontends"),
	})
	var s api.Status
	want := []string{"1 frontends could not be written (see `fairlead get frontends -o wide`), first 10.96.0.1:80/TCP of default/web: no room in fairlead_frontends"}
	if got := a.addRows(&s, a.tables.Snapshot()); !slices.Equal(got, want) || s.Errors != 1 || s.Frontends != 1 || s.Services != 1 {
		t.Errorf("got %q of %+v, want %q", got, s, want)
	}
	a.report(t, nil)
	s = api.Status{}
	if got := a.addRows(&s, a.tables.Snapshot()); len(got) != 0 || s.Errors != 0 {
		t.Errorf("healed, and yet %q", got)
	}
}

func TestATroubleIsAFindingAndUnhealthy(t *testing.T) {
	for _, c := range []struct {
		name     string
		troubles []string
		healthy  bool
	}{
		{"without troubles all is well", nil, true},
		{"each trouble is a sentence of its own", []string{"addresses cannot be read", "sockets cannot be read"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := api.Status{Healthy: true, Synced: true, SocketPath: string(datapath.SocketOff)}
			judge(&s, datapath.HookCount, c.troubles)
			if s.Healthy != c.healthy || !slices.Equal(s.Findings, c.troubles) {
				t.Errorf("healthy: %v, findings %q; want %q", s.Healthy, s.Findings, c.troubles)
			}
		})
	}
}

func TestAStaleKindIsAFindingThatSaysWhatToDo(t *testing.T) {
	since := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	trouble := func(reason reflector.Reason) error {
		return &reflector.Trouble{Verb: "list", Resource: "endpointslices", Group: "discovery.k8s.io", Reason: reason, Err: errors.New("so it is")}
	}
	for name, c := range map[string]struct {
		err                   error
		reason, missing, says string
	}{
		"a permission is missing (R31)": {trouble(reflector.ReasonForbidden), "Forbidden", "list endpointslices.discovery.k8s.io",
			"list endpointslices.discovery.k8s.io: so it is; the ClusterRole or its binding is missing: kubectl apply -f deploy/rbac.yaml"},
		"nobody knows us any more (R31)": {trouble(reflector.ReasonUnauthorized), "Unauthorized", "",
			"list endpointslices.discovery.k8s.io: so it is; the token or client certificate is not accepted: renew "},
		"another answers (R31)":                      {trouble(reflector.ReasonUntrusted), "Untrusted", "", "so it is; the certificate authority"},
		"nobody answers (R31)":                       {trouble(reflector.ReasonUnreachable), "Unreachable", "", "list endpointslices.discovery.k8s.io: so it is"},
		"a folder has no verbs and no reasons (R31)": {errors.New("no such folder"), "", "", "no such folder"},
	} {
		t.Run(name, func(t *testing.T) {
			s := api.Status{Healthy: true, Synced: true, SocketPath: string(datapath.SocketOff)}
			s.SourceState = []api.SourceStatus{
				sourceStatus(tables.SourceState{Kind: reflector.KindService, Listed: true, Since: since, Count: 3}),
				sourceStatus(tables.SourceState{Kind: reflector.KindEndpointSlice, Listed: true, Since: since, Count: 4, Stale: c.err}),
			}
			want := []api.SourceStatus{
				{Kind: "Service", Synced: true, Objects: 3, Since: since},
				{Kind: "EndpointSlice", Synced: true, Objects: 4, Since: since, Stale: true, Reason: c.reason, Missing: c.missing, Error: c.err.Error()},
			}
			if !slices.Equal(s.SourceState, want) {
				t.Errorf("got %+v, want %+v", s.SourceState, want)
			}
			judge(&s, 0, nil)
			begins := "EndpointSlice is stale since 2026-11-20T10:00:00Z, what was known stays in force: "
			if s.Healthy || len(s.Findings) != 1 || !strings.HasPrefix(s.Findings[0], begins) || !strings.Contains(s.Findings[0], c.says) {
				t.Errorf("healthy: %v, findings %q; want one with %q", s.Healthy, s.Findings, c.says)
			}
		})
	}
}

func TestSocketsThatCannotBeReleasedAreAFinding(t *testing.T) {
	s := api.Status{Healthy: true, Synced: true, SocketPath: string(datapath.SocketOff), SocketsReleased: 5, SocketsStranded: 2}
	judge(&s, 0, nil)
	if s.Healthy || len(s.Findings) != 1 || !strings.Contains(s.Findings[0], "2 connected UDP sockets") || !strings.Contains(s.Findings[0], "hostPID") {
		t.Errorf("healthy: %v, findings %q; want one that counts the sockets and says what helps (R35)", s.Healthy, s.Findings)
	}
	s.Healthy, s.Findings, s.SocketsStranded = true, nil, 0
	if judge(&s, 0, nil); !s.Healthy || len(s.Findings) != 0 {
		t.Errorf("healthy: %v, findings %q, although all were released", s.Healthy, s.Findings)
	}
}

func TestStatusTellsWhatTheNodeListensOn(t *testing.T) {
	all := []model.Listener{
		listener(model.TCP, "[::]:22"), listener(model.TCP, "10.0.0.1:6443"), listener(model.UDP, "127.0.0.53:53"),
		listener(model.TCP, "10.0.0.1:6443"), // a second socket on the same port
	}
	texts := listeningOn(all)
	if want := []string{"10.0.0.1:6443/TCP", "127.0.0.53:53/UDP", "[::]:22/TCP"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	for _, text := range texts {
		at, protocol, err := api.ParseTarget(text)
		if err != nil || !slices.Contains(all, model.Listener{AddrPort: at, Protocol: protocol}) {
			t.Errorf("%q is read back as %v %v, %v", text, at, protocol, err)
		}
	}
	if none := listeningOn(nil); none == nil || len(none) != 0 {
		t.Errorf("a node that listens on nothing has %v, which must be an empty list", none)
	}
}
