// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// manifests are a Service and a slice in a file each, and one more Service.
var manifests = map[string]string{
	"web.yaml":   "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n",
	"other.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: other}\nspec: {clusterIP: 10.96.0.2, ports: [{port: 80}]}\n",
	"slice.yaml": "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" +
		"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.0.1.1]}]\n",
}

// followingAgent is an agent that has read the manifests of a folder.
func followingAgent(t *testing.T) (a *Agent, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range manifests {
		write(t, dir, name, text)
	}
	made, err := tables.New()
	if err != nil {
		t.Fatal(err)
	}
	a = &Agent{source: reflector.NewFolder(dir, "n1", slog.New(slog.DiscardHandler)), tables: made, node: &nodeTracker{node: model.Node{Name: "n1"}}}
	objects, problems, err := a.source.List(t.Context())
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	w := tables.NewWriter(made, model.Node{Name: "n1"}, a.options())
	w.Retain(tables.Retention{Services: []model.Name{{Namespace: "default", Name: "web"}}, Limit: time.Hour})
	a.writer = w
	for _, s := range objects.Services {
		w.Events([]reflector.Event{{Kind: reflector.KindService, Name: s.Name, Service: s}})
	}
	for _, s := range objects.Slices {
		w.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: s.Name, Slice: s}})
	}
	for kind := reflector.KindService; kind <= reflector.KindNode; kind++ {
		w.Listed(kind)
	}
	w.Flush()
	return a, dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDesired(t *testing.T) {
	for _, c := range []struct {
		name     string
		file     string
		old, new string
		want     []string // differences between what is desired and the rows
		err      string
	}{
		{name: "what did not change is what the rows hold"},
		{name: "a change that was not taken yet is a difference", file: "other.yaml", old: "10.96.0.2", new: "10.96.0.3",
			want: []string{"10.96.0.2 frontend", "10.96.0.3 frontend"}},
		{name: "a Service that cannot be read is wanted as it was (R31)", file: "web.yaml", old: "port: 80", new: "port: 80000"},
		{name: "a slice that cannot be read is wanted as it was (R31)", file: "slice.yaml", old: "10.0.1.1", new: "10.0.1.300"},
		{name: "a problem that leaves the object of use changes nothing", file: "web.yaml", old: "ports:", new: "prots: 1, ports:"},
		{name: "a file without meaning is an error that names it", file: "web.yaml", old: "spec: {", new: "spec: {{",
			err: "web.yaml:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, dir := followingAgent(t)
			if c.file != "" {
				write(t, dir, c.file, strings.Replace(manifests[c.file], c.old, c.new, 1))
			}
			wanted, err := a.Desired(t.Context())
			if c.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "read "+dir+" afresh: ") || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want one of reading %s that says %q", err, dir, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rows, err := a.Frontends(t.Context())
			if err != nil || len(rows) != 2 {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			var got []string
			for _, d := range drift.Rows(wanted, rows) {
				got = append(got, d.Address+" "+d.Field)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("differences %v, want %v", got, c.want)
			}
		})
	}
}

// What a Service under retention keeps is no drift, though no source has it (R40).
func TestDesiredHasWhatIsRetained(t *testing.T) {
	a, dir := followingAgent(t)
	write(t, dir, "slice.yaml", strings.Replace(manifests["slice.yaml"], "endpoints: [{addresses: [10.0.1.1]}]", "endpoints: []", 1))
	objects, problems, err := a.source.List(t.Context())
	if err != nil || len(problems) > 0 || len(objects.Slices) != 1 {
		t.Fatal(objects, problems, err)
	}
	emptied := objects.Slices[0]
	a.writer.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: emptied.Name, Slice: emptied}})
	a.writer.Flush()
	wanted, err := a.Desired(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := a.Frontends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found := drift.Rows(wanted, rows); len(found) > 0 {
		t.Errorf("drift: %+v", found)
	}
	if b := wanted[0].Backends; len(b) != 1 || b[0].State != model.StateUnverified.String() {
		t.Errorf("wanted is %+v", wanted[0])
	}
}
