// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/tables"
)

func TestACauseThatIsNoObject(t *testing.T) {
	got := causeRef(tables.Cause{Other: "a heartbeat"})
	if want := (api.ObjectRef{Name: "a heartbeat"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestVerdictIsWhatANewConnectionMeets(t *testing.T) {
	one := []api.Backend{{Address: "fd00::1", Port: 8080}}
	for _, c := range []struct {
		name string
		row  api.Frontend
		want string
	}{
		{"one backend is named", api.Frontend{Action: "forward", Backends: one}, "a new connection goes to [fd00::1]:8080"},
		{"several are counted", api.Frontend{Action: "forward", Backends: append(one, one...)}, "a new connection goes to one of 2 backends"},
		{"a refusal has its reason (R13)", api.Frontend{Action: "reject", Reason: "no endpoint"}, "a new connection is refused (reject): no endpoint"},
		{"what another Service holds is not served (R27)", api.Frontend{Action: "shadowed", Reason: "held by default/a"}, "not served (shadowed): held by default/a"},
		{"nor is what no datapath can (R28)", api.Frontend{Action: "unsupported", Reason: "SCTP"}, "not served (unsupported): SCTP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Verdict(c.row); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
