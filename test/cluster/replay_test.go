// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/cluster/judge"
)

func TestKubeletsOfTheReplayReachTheServersByServices(t *testing.T) {
	nodes := machines()
	for name, c := range map[string]struct {
		replay bool
		user   string
		want   string
	}{
		"the first by default/kubernetes":     {true, nodeUser(nodes[0]), apiServiceIP + ":443"},
		"the second by the load balancer":     {true, nodeUser(nodes[1]), intranetIP + ":443"},
		"the third past every Service":        {true, nodeUser(nodes[2]), controlAddress},
		"proxies past every Service":          {true, "proxy", controlAddress},
		"without a replay all past a Service": {false, nodeUser(nodes[0]), controlAddress},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{replay: replayOptions{on: c.replay}}
			if got := o.serverAddress(c.user); got != c.want {
				t.Errorf("told %s, want %s", got, c.want)
			}
		})
	}
}

func TestWhatIsSeen(t *testing.T) {
	row := func(kind string, states ...string) api.Frontend {
		f := api.Frontend{Service: "default/kubernetes", Type: kind}
		for _, state := range states {
			f.Backends = append(f.Backends, api.Backend{State: state})
		}
		return f
	}
	other := api.Frontend{Service: "default/kubernetes-intranet", Type: "ClusterIP"}
	for name, c := range map[string]struct {
		rows []api.Frontend
		want judge.Saw
	}{
		"no row yet":                      {[]api.Frontend{other, row("NodePort", "active")}, judge.SawNothing},
		"endpoints of the API":            {[]api.Frontend{other, row("ClusterIP", "active")}, judge.SawForwarding},
		"endpoints that are kept":         {[]api.Frontend{row("ClusterIP", "active", "retained")}, judge.SawRetained},
		"endpoints that nobody heard of":  {[]api.Frontend{row("ClusterIP", "unverified")}, judge.SawUnverified},
		"nowhere to go, by any other row": {[]api.Frontend{row("NodePort", "active"), row("ClusterIP")}, judge.SawRefusing},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whatIsSeen(c.rows); got != c.want {
				t.Errorf("saw %s, want %s", got, c.want)
			}
		})
	}
}
