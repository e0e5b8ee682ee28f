// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/test/lab"
)

func TestBeforeTheFirstFillTheRowsAreExplainedWithoutTheKernel(t *testing.T) {
	a, _ := followingAgent(t)
	a.cfg.PinPath, a.reconciler = lab.NewBPFFS(t)+"/fairlead", &reconciler.Reconciler{}
	if _, err := a.Kernel(t.Context()); !errors.Is(err, errNotFilled) {
		t.Errorf("Kernel: %v, want %v", err, errNotFilled)
	}
	explained, err := a.Explain(t.Context(), "default/web")
	if err != nil || len(explained.Frontends) != 1 {
		t.Fatalf("%d frontends, %v", len(explained.Frontends), err)
	}
	f := explained.Frontends[0]
	if f.Kernel != nil || f.Verdict != errNotFilled.Error() || f.Address != "10.96.0.1" || len(f.Backends) != 1 {
		t.Errorf("got %+v", f)
	}

	a.reconciler.Stats.Filled.Store(true)
	if _, err := a.Explain(t.Context(), "default/web"); err == nil || !strings.Contains(err.Error(), "--pin-path") {
		t.Errorf("maps that are gone from under an agent that filled them: %v", err)
	}
}

func TestVerdictSaysWhatANewConnectionMeets(t *testing.T) {
	one := []api.Backend{{Address: "fd00::1", Port: 8080, State: "active"}}
	two := append(one, api.Backend{Address: "fd00::2", Port: 8080})
	for _, c := range []struct {
		name    string
		row     api.Frontend
		gone    bool // from the kernel
		packets bool // there is a packet path
		want    string
	}{
		{"one backend is named", api.Frontend{Action: "forward", Backends: one}, false, false, "a new connection goes to [fd00::1]:8080"},
		{"several are counted", api.Frontend{Action: "forward", Backends: two}, false, false, "a new connection goes to one of 2 backends"},
		{"a refusal has its reason", api.Frontend{Action: "reject", Reason: "no endpoint"}, false, true, "a new connection is refused (reject): no endpoint"},
		{"traffic from outside is nobody's without a packet path", api.Frontend{Action: "forward", Scope: "external", Backends: one}, false, false,
			"nothing on this node translates traffic from outside (--packet-path=off); the kernel holds the set"},
		{"nor is it refused", api.Frontend{Action: "drop", Scope: "external", Reason: "none is local"}, false, false,
			"nothing on this node translates traffic from outside (--packet-path=off); the kernel holds the set"},
		{"with one it is served", api.Frontend{Action: "forward", Scope: "external", Backends: one}, false, true, "a new connection goes to [fd00::1]:8080"},
		{"what is shadowed is not in the kernel", api.Frontend{Action: "shadowed", Scope: "external", Reason: "held by default/a"}, false, false,
			"not in the kernel (shadowed): held by default/a"},
		{"a difference goes before all else", api.Frontend{Action: "forward", Scope: "external", Backends: one}, true, false,
			"the kernel differs: frontend should be forward to [fd00::1]:8080 and is none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.row.Address, c.row.Port, c.row.Protocol, c.row.Service = "fd96::1", 80, "TCP", "default/web"
			var kernel api.Kernel
			if !c.gone {
				kernel.Entries = []api.KernelEntry{entryOf(c.row)}
			}
			if got := verdictOf(c.row, "random", c.packets, kernel); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestVerdictSaysThatTheKernelChoosesOtherwise(t *testing.T) {
	row := api.Frontend{
		Address: "10.96.0.1", Port: 80, Protocol: "TCP", Scope: "all", Service: "default/web", Action: "forward",
		Backends: []api.Backend{{Address: "10.0.1.1", Port: 80}, {Address: "10.0.1.2", Port: 80}},
	}
	entry := entryOf(row)
	const all, differs = "a new connection goes to one of 2 backends", "the kernel differs: selection should be maglev and is random"
	if got := verdictOf(row, "maglev", false, api.Kernel{Entries: []api.KernelEntry{entry}}); got != differs {
		t.Errorf("without a table: %s, want %s", got, differs)
	}
	entry.MaglevEntries = 1021
	if got := verdictOf(row, "maglev", false, api.Kernel{Entries: []api.KernelEntry{entry}}); got != all {
		t.Errorf("with a table: %s, want %s", got, all)
	}
}

// entryOf is what the kernel holds for a row when all is well.
func entryOf(row api.Frontend) api.KernelEntry {
	e := api.KernelEntry{
		Address: row.Address, Port: row.Port, Protocol: row.Protocol, Scope: "internal", Service: row.Service, Action: row.Action,
	}
	if row.Scope == "external" {
		e.Scope = row.Scope
	}
	for _, b := range row.Backends {
		e.Backends = append(e.Backends, api.KernelBackend{Address: b.Address, Port: b.Port})
	}
	return e
}
