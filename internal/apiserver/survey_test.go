// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
)

func TestSurvey(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	used, well, starting, other := ours.serve(serving{}), ours.serve(serving{}), ours.serve(serving{status: http.StatusInternalServerError}), theirs.serve(serving{})
	dead, service, old := nobody(t), ours.serve(serving{}), nobody(t)
	cfg := quick()
	cfg.Servers = []string{used.url()}
	c := ours.inPod(cfg, service.at)
	connect(t, c)
	c.Learn(Slices, append(at(well, starting, other), dead))
	c.Learn(File, []netip.AddrPort{old})
	asked := used.connections()
	drain(c)
	c.survey(t.Context())

	got := states(c)
	for _, want := range []struct{ name, url, state string }{
		{"the one in use is not asked", used.url(), api.EndpointAnswers},
		{"one that stands by is known to answer", well.url(), api.EndpointAnswers},
		{"one that is not ready is known to be so", starting.url(), api.EndpointUnready},
		{"one that is dead is known to be silent", "https://" + dead.String(), api.EndpointSilent},
		{"a stranger is known to be foreign", other.url(), api.EndpointForeign},
		{"a Service address is left alone", service.url(), api.EndpointUntried},
		{"a dead one that only an earlier run knew is forgotten", "https://" + old.String(), ""},
	} {
		if got[want.url] != want.state {
			t.Errorf("%s: it is %q, want %q", want.name, got[want.url], want.state)
		}
	}
	if current := c.Status().Current; current != used.url() || used.connections() != asked || service.connections() != 0 {
		t.Errorf("using %s, %d connections more, %d to the Service", current, used.connections()-asked, service.connections())
	}
	select {
	case <-c.Changed():
	default:
		t.Error("that Known is shorter was not told")
	}
	if slices.Contains(c.Known(), old) {
		t.Errorf("known is %v", c.Known())
	}
	strange := other.connections()
	c.survey(t.Context())
	if n := other.connections(); n != strange {
		t.Errorf("the stranger got %d more connections", n-strange)
	}
}
