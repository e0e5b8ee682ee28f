// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/api"
)

func web() api.Frontend {
	return api.Frontend{
		Address: "10.96.0.10", Port: 80, Protocol: "TCP", Scope: "all", Type: "ClusterIP",
		Service: "default/web", PortName: "http", Action: "forward",
		SourceRanges: []string{}, Draining: []api.Backend{},
		Backends: []api.Backend{
			{Address: "10.0.1.1", Port: 8080, State: "active"},
			{Address: "10.0.2.1", Port: 8080, State: "active"},
		},
	}
}

func changed(change func(*api.Frontend)) api.Frontend {
	row := web()
	change(&row)
	return row
}

// webDrift is the drift of web() in one field.
func webDrift(left, right, field, want, have string) api.Drift {
	return api.Drift{
		Address: "10.96.0.10", Port: 80, Protocol: "TCP", Scope: "all", Service: "default/web",
		Left: left, Right: right, Field: field, Want: want, Have: have,
	}
}

func TestRows(t *testing.T) {
	since, none := time.Unix(1, 0), ""
	between := func(field, want, have string) []api.Drift {
		return []api.Drift{webDrift(LayerAPI, LayerTables, field, want, have)}
	}
	both := "10.0.1.1:8080, 10.0.2.1:8080"
	tests := []struct {
		name string
		have []api.Frontend
		want []api.Drift
	}{
		{"equal rows are no drift", []api.Frontend{web()}, []api.Drift{}},
		{"what only an agent knows is no drift", []api.Frontend{changed(func(f *api.Frontend) {
			f.Status, f.Error, f.Since = api.StatusDone, &none, &since
		})}, []api.Drift{}},
		{"the order of backends is no drift", []api.Frontend{changed(func(f *api.Frontend) { slices.Reverse(f.Backends) })}, []api.Drift{}},
		{"a missing row", nil, between("frontend", "forward to "+both, None)},
		{"a lost backend", []api.Frontend{changed(func(f *api.Frontend) { f.Backends = f.Backends[:1] })},
			between("backends", both, "10.0.1.1:8080")},
		{"a backend kept for another reason than the API gives", []api.Frontend{changed(func(f *api.Frontend) { f.Backends[0].State = "retained" })},
			between("backends", both, "10.0.1.1:8080 (retained), 10.0.2.1:8080")},
		{"another action, and so no backends", []api.Frontend{changed(func(f *api.Frontend) { f.Action, f.Backends = "reject", nil })},
			append(between("action", "forward", "reject"), between("backends", both, None)...)},
		{"affinity", []api.Frontend{changed(func(f *api.Frontend) { f.AffinitySeconds = 60 })}, between("affinitySeconds", "0", "60")},
		{"source ranges", []api.Frontend{changed(func(f *api.Frontend) { f.SourceRanges = []string{"192.0.2.0/24"} })},
			between("sourceRanges", None, "192.0.2.0/24")},
		{"a draining backend", []api.Frontend{changed(func(f *api.Frontend) {
			f.Draining = []api.Backend{{Address: "fd00::1", Port: 80, State: "terminating"}}
		})}, between("draining", None, "[fd00::1]:80 (terminating)")},
		{"a row that nobody asked for", []api.Frontend{web(), changed(func(f *api.Frontend) { f.Service, f.Action = "default/other", "shadowed" })},
			[]api.Drift{{Address: "10.96.0.10", Port: 80, Protocol: "TCP", Scope: "all", Service: "default/other",
				Left: LayerAPI, Right: LayerTables, Field: "frontend", Want: None, Have: "shadowed"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Rows([]api.Frontend{web()}, test.have)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// kernelOf is a kernel that serves exactly these rows.
func kernelOf(rows []api.Frontend) api.Kernel {
	var k api.Kernel
	for i, row := range rows {
		if !inKernel(row) {
			continue
		}
		k.Entries = append(k.Entries, api.KernelEntry{
			Address: row.Address, Port: row.Port, Protocol: row.Protocol, Scope: kernelScope(row.Scope),
			Service: row.Service, PortName: row.PortName, Set: uint32(i), Action: row.Action,
			AffinitySeconds: row.AffinitySeconds, SourceRanges: row.SourceRanges,
			Backends: kernelBackends(row.Backends), Draining: kernelBackends(row.Draining),
		})
	}
	return k
}

func TestKernel(t *testing.T) {
	between := func(field, want, have string) []api.Drift {
		return []api.Drift{webDrift(LayerTables, LayerKernel, field, want, have)}
	}
	both := "10.0.1.1:8080, 10.0.2.1:8080"
	tests := []struct {
		name   string
		rows   []api.Frontend
		change func(*api.Kernel)
		want   []api.Drift
	}{
		{"rows that the kernel serves are no drift", []api.Frontend{web()}, func(*api.Kernel) {}, []api.Drift{}},
		{"a shadowed row is not in the kernel", []api.Frontend{web(), changed(func(f *api.Frontend) { f.Service, f.Action = "default/other", "shadowed" })},
			func(*api.Kernel) {}, []api.Drift{}},
		{"an unsupported row is not in the kernel (R28)", []api.Frontend{changed(func(f *api.Frontend) { f.Action, f.Protocol = "unsupported", "SCTP" })},
			func(*api.Kernel) {}, []api.Drift{}},
		{"the two scopes of an address are two entries (R14)", []api.Frontend{
			changed(func(f *api.Frontend) { f.Scope = "internal" }),
			changed(func(f *api.Frontend) { f.Scope, f.Action, f.Backends = "external", "drop", nil }),
		}, func(*api.Kernel) {}, []api.Drift{}},
		{"sets without a frontend are no drift", []api.Frontend{web()}, func(k *api.Kernel) { k.UnusedSets = k.Entries }, []api.Drift{}},
		{"a lost frontend", []api.Frontend{web()}, func(k *api.Kernel) { k.Entries = nil }, between("frontend", "forward to "+both, None)},
		{"emptied backends, as in the first incident", []api.Frontend{web()}, func(k *api.Kernel) {
			k.Entries[0].Action, k.Entries[0].Backends = "reject", nil
		}, append(between("action", "forward", "reject"), between("backends", both, None)...)},
		{"the set of another Service", []api.Frontend{web()}, func(k *api.Kernel) { k.Entries[0].Service = "default/other" },
			between("service", "default/web:http", "default/other:http")},
		{"an entry that is broken in itself", []api.Frontend{web()}, func(k *api.Kernel) {
			k.Entries[0].Problem, k.Entries[0].Backends = "set 4 belongs to another owner", nil
		}, between("frontend", "forward to "+both, "set 4 belongs to another owner")},
		{"affinity, ranges and draining", []api.Frontend{web()}, func(k *api.Kernel) {
			k.Entries[0].AffinitySeconds = 5
			k.Entries[0].SourceRanges = []string{"192.0.2.0/24"}
			k.Entries[0].Draining = []api.KernelBackend{{Address: "10.0.3.1", Port: 8080}}
		}, slices.Concat(between("affinitySeconds", "0", "5"), between("draining", None, "10.0.3.1:8080"), between("sourceRanges", None, "192.0.2.0/24"))},
		{"an entry that nobody wants", nil, func(k *api.Kernel) { *k = kernelOf([]api.Frontend{web()}) },
			[]api.Drift{{Address: "10.96.0.10", Port: 80, Protocol: "TCP", Scope: "internal", Service: "default/web",
				Left: LayerTables, Right: LayerKernel, Field: "frontend", Want: None, Have: "forward to " + both}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kernel := kernelOf(test.rows)
			test.change(&kernel)
			if diff := cmp.Diff(test.want, Kernel(test.rows, kernel)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSelections(t *testing.T) {
	drifted := func(want, have string) []api.Drift {
		d := webDrift(LayerTables, LayerKernel, "selection", want, have)
		d.Scope = "internal"
		return []api.Drift{d}
	}
	for _, test := range []struct {
		name   string
		want   string
		change func(*api.KernelEntry)
		drift  []api.Drift
	}{
		{"random in both is no drift", "random", func(*api.KernelEntry) {}, []api.Drift{}},
		{"Maglev in both is no drift", "maglev", func(e *api.KernelEntry) { e.MaglevEntries = 1021 }, []api.Drift{}},
		{"a kernel without the table", "maglev", func(*api.KernelEntry) {}, drifted("maglev", "random")},
		{"a kernel with a table that nobody asked for", "random", func(e *api.KernelEntry) { e.MaglevEntries = 251 }, drifted("random", "maglev")},
		{"of one backend nothing is chosen", "maglev", func(e *api.KernelEntry) { e.Backends = e.Backends[:1] }, []api.Drift{}},
		{"what is broken is told of as a problem", "maglev", func(e *api.KernelEntry) { e.Problem = "no header" }, []api.Drift{}},
		{"a Service that is not in the tables is told of as a frontend", "maglev", func(e *api.KernelEntry) { e.Service = "default/other" }, []api.Drift{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			kernel := kernelOf([]api.Frontend{web()})
			test.change(&kernel.Entries[0])
			found := Selections([]api.Service{{Service: "default/web", Selection: test.want}}, kernel)
			if diff := cmp.Diff(test.drift, found); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestARowDriftsWithTheSelectionOfItsService(t *testing.T) {
	kernel := kernelOf([]api.Frontend{web()})
	if found := Row(web(), "random", kernel); len(found) != 0 {
		t.Errorf("random in both: %v", found)
	}
	if found := Row(web(), "maglev", kernel); len(found) != 1 || found[0].Field != "selection" {
		t.Errorf("Maglev in the tables alone: %v", found)
	}
}

func TestLeftNamesTheLayer(t *testing.T) {
	found := Left(LayerAPI, Kernel([]api.Frontend{web()}, api.Kernel{}))
	want := []api.Drift{webDrift(LayerAPI, LayerKernel, "frontend", "forward to 10.0.1.1:8080, 10.0.2.1:8080", None)}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// genRows draws rows of distinct addresses, as Resolve leaves them.
var genRows = rapid.Custom(func(t *rapid.T) []api.Frontend {
	rows := make([]api.Frontend, rapid.IntRange(1, 8).Draw(t, "rows"))
	for i := range rows {
		rows[i] = web()
		rows[i].Address = fmt.Sprintf("10.96.0.%d", i)
		rows[i].Scope = rapid.SampledFrom([]string{"all", "internal", "external"}).Draw(t, "scope")
		rows[i].Action = rapid.SampledFrom([]string{"forward", "reject", "drop", "unsupported", "shadowed"}).Draw(t, "action")
		rows[i].Backends = genBackends.Draw(t, "backends")
		rows[i].Draining = genBackends.Draw(t, "draining")
	}
	return rows
})

var genBackends = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.Backend {
	return api.Backend{Address: fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 9).Draw(t, "host")), Port: 80, State: "active"}
}), 0, 4)

func TestALayerNeverDriftsFromItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := genRows.Draw(t, "rows")
		if found := Rows(rows, rapid.Permutation(rows).Draw(t, "shuffled")); len(found) != 0 {
			t.Errorf("rows: %v", found)
		}
		if found := Kernel(rows, kernelOf(rows)); len(found) != 0 {
			t.Errorf("kernel: %v", found)
		}
	})
}

func TestOneChangedRowIsDriftAtThatAddressOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := genRows.Draw(t, "rows")
		broken := slices.Clone(rows)
		i := rapid.IntRange(0, len(rows)-1).Draw(t, "broken")
		broken[i].AffinitySeconds++
		broken[i].Backends = nil
		expectOnly(t, rows[i].Address, Rows(rows, broken))
		if inKernel(rows[i]) {
			expectOnly(t, rows[i].Address, Kernel(rows, kernelOf(broken)))
		}
	})
}

func TestWhatOneSideLacksTheOtherHasTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left, right := genRows.Draw(t, "left"), genRows.Draw(t, "right")
		forth, back := Rows(left, right), Rows(right, left)
		if len(forth) != len(back) {
			t.Fatalf("%d differences one way, %d the other:\n%v\n%v", len(forth), len(back), forth, back)
		}
	})
}

func expectOnly(t *rapid.T, address string, found []api.Drift) {
	if len(found) == 0 {
		t.Fatalf("no drift at %s", address)
	}
	for _, d := range found {
		if d.Address != address {
			t.Fatalf("drift at %s, only %s differs", d.Address, address)
		}
	}
}
