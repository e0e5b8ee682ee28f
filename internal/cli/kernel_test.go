// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

const kernelNode = "n1"

// everyExample is all objects of the examples folder, which do not contend.
func everyExample(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(examplesDir, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	return files
}

func compiled(t *testing.T, files []string) world {
	t.Helper()
	// A node without addresses of its own: several examples hold the Node.
	w, err := (&objectFlags{files: files, nodeName: kernelNode}).read(t.Context(), &env{in: strings.NewReader("")})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// writeKernel makes the pinned maps equal to what was compiled, as an agent
// does that then stops.
func writeKernel(t *testing.T, pinPath string, resolved []model.Candidate) {
	t.Helper()
	config := datapath.Config{PinPath: pinPath, SocketMode: datapath.SocketOff, Node: kernelNode, Sizes: datapath.DefaultSizes()}
	d, err := datapath.Open(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range resolved {
		for _, err := range d.InsertFrontends(writeSets(t, d, c)) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// Without programs this only makes the maps the current ones.
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
}

// writeSets publishes the sets of a Service and returns the frontends to write
// after them.
func writeSets(t *testing.T, d *datapath.Datapath, c model.Candidate) []datapath.Frontend {
	t.Helper()
	owners, ids := map[model.SetKey]uint32{}, make([]datapath.SetID, len(c.Compiled.Sets))
	for i := range c.Compiled.Sets {
		set := &c.Compiled.Sets[i]
		id, err := d.CreateSet(set.Key, ownerOf(d, owners, set.Key))
		if err == nil {
			_, err = d.Publish(id, set)
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = id
	}
	var frontends []datapath.Frontend
	for _, claim := range c.Compiled.Claims {
		if claim.Shadowed == "" && c.Compiled.Sets[claim.Set].Action != model.ActionUnsupported {
			frontends = append(frontends, datapath.Frontend{Key: claim.Key, Set: ids[claim.Set]})
		}
	}
	return frontends
}

// ownerOf: the sets of one Service port and family have one owner, whatever
// their role, which they keep over a restart.
func ownerOf(d *datapath.Datapath, owners map[model.SetKey]uint32, key model.SetKey) uint32 {
	key.Role = 0
	owner, known := owners[key]
	if !known {
		owner, known = d.ClaimOwner(key)
	}
	if !known {
		owner = d.NewOwner()
	}
	owners[key] = owner
	return owner
}

func diffArgs(t *testing.T, pinPath string, files []string) []string {
	t.Helper()
	args := []string{"diff", "--socket", filepath.Join(t.TempDir(), "no-agent"), "--pin-path", pinPath, "--node-name", kernelNode}
	for _, file := range files {
		args = append(args, "-f", file)
	}
	return args
}

func TestTheKernelIsReadWithoutAnAgent(t *testing.T) {
	pinPath := filepath.Join(lab.NewBPFFS(t), "fairlead")
	files := everyExample(t)
	w := compiled(t, files)
	writeKernel(t, pinPath, w.resolved)

	status, out, errOut := fairlead(t, "", "get", "kernel", "--pin-path", pinPath, "-o", "json")
	if status != exitFine {
		t.Fatalf("exit status %d: %s", status, errOut)
	}
	var kernel api.Kernel
	if err := json.Unmarshal([]byte(out), &kernel); err != nil {
		t.Fatal(err)
	}
	served := keep(w.frontends(), func(f api.Frontend) bool { return f.Action != "shadowed" && f.Action != "unsupported" })
	if len(kernel.Entries) != len(served) {
		t.Errorf("the kernel holds %d frontends, the objects ask for %d", len(kernel.Entries), len(served))
	}
	for _, entry := range kernel.Entries {
		if entry.Problem != "" {
			t.Errorf("%s: %s", target(entry.Address, entry.Port, entry.Protocol), entry.Problem)
		}
	}

	status, out, _ = fairlead(t, "", "get", "kernel", "--pin-path", pinPath, "shop/cart")
	fields := strings.Fields(strings.Split(out, "\n")[1])
	want := []string{"10.96.0.85:80/TCP", "internal", "shop/cart", "http", "forward", "10.0.1.12:8080,10.0.2.12:8080,10.0.3.12:8080"}
	if diff := cmp.Diff(want, fields[:len(want)]); status != exitFine || diff != "" {
		t.Errorf("exit status %d, %s", status, diff)
	}
}

func TestDiffComparesObjectsWithTheKernel(t *testing.T) {
	files := everyExample(t)
	tests := []struct {
		name  string
		spoil func([]model.Candidate) []model.Candidate
		want  []string // address, layers, field of each difference
	}{
		{"equal layers are no drift", func(all []model.Candidate) []model.Candidate { return all }, nil},
		{"a Service that was never written is drift", func(all []model.Candidate) []model.Candidate {
			return keep(all, func(c model.Candidate) bool { return c.Service.Name != "web" })
		}, []string{"10.96.0.80:80/TCP api/kernel frontend"}},
		{"a set that lost its backends is drift, as in the first incident", func(all []model.Candidate) []model.Candidate {
			return emptied(all, "web")
		}, []string{"10.96.0.80:80/TCP api/kernel action", "10.96.0.80:80/TCP api/kernel backends"}},
		{"a frontend that no object asks for is drift", func(all []model.Candidate) []model.Candidate {
			return append(all, stranger())
		}, []string{"192.0.2.200:80/TCP api/kernel frontend"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pinPath := filepath.Join(lab.NewBPFFS(t), "fairlead")
			writeKernel(t, pinPath, test.spoil(compiled(t, files).resolved))
			status, out, errOut := fairlead(t, "", diffArgs(t, pinPath, files)...)
			if test.want == nil {
				if status != exitFine || !strings.HasPrefix(out, "no drift: api = kernel (") {
					t.Errorf("exit status %d: %s%s", status, out, errOut)
				}
				return
			}
			var have []string
			for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
				have = append(have, strings.Join(strings.Fields(line)[:3], " "))
			}
			if diff := cmp.Diff(test.want, have); status != exitFindings || diff != "" {
				t.Errorf("exit status %d: %s%s", status, diff, errOut)
			}
		})
	}
}

func TestDiffGoesOnWithoutTheAPI(t *testing.T) {
	pinPath := filepath.Join(lab.NewBPFFS(t), "fairlead")
	w := compiled(t, everyExample(t))
	writeKernel(t, pinPath, w.resolved)
	folder := t.TempDir()
	for name, answer := range map[string]any{
		"status.json": api.Status{Node: kernelNode, Synced: true}, "frontends.json": w.frontends(), "services.json": api.Services{},
	} {
		text, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(folder, "agent.sock")
	listener, err := api.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: api.NewHandler(record(folder))}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	status, out, errOut := fairlead(t, "", "diff", "--socket", socket, "--pin-path", pinPath)
	if status != exitFine || !strings.HasPrefix(out, "no drift: tables = kernel (") {
		t.Errorf("exit status %d: %s", status, out)
	}
	if errOut != "fairlead: the API is not compared: the record holds no desired.json\n" {
		t.Errorf("stderr says %q", errOut)
	}
}

// emptied takes the backends from one Service.
func emptied(all []model.Candidate, service string) []model.Candidate {
	for i := range all {
		if all[i].Service.Name != service {
			continue
		}
		for j := range all[i].Compiled.Sets {
			all[i].Compiled.Sets[j].Action = model.ActionReject
			all[i].Compiled.Sets[j].Backends = nil
		}
	}
	return all
}

// stranger is a Service of nobody's.
func stranger() model.Candidate {
	to, protocol, err := api.ParseTarget("192.0.2.200:80")
	if err != nil {
		panic(err)
	}
	name := model.Name{Namespace: "default", Name: "stranger"}
	return model.Candidate{
		Contender: model.Contender{Service: name},
		Compiled: model.Compiled{
			Sets:   []model.Set{{Key: model.SetKey{Service: name, Protocol: protocol, Family: model.IPv4}, Action: model.ActionReject}},
			Claims: []model.Claim{{Key: model.FrontendKey{Address: to.Addr(), Port: to.Port(), Protocol: protocol}}},
		},
	}
}
