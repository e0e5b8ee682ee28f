// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

// The recordings are of Cilium's own load balancer on real maps: test/cilium
// makes them.
var ciliumVersions = []string{"1.18.5", "1.20.2"}

// TestHealthyCilium wants no finding in clusters of ten shapes, under each
// version.
func TestHealthyCilium(t *testing.T) {
	for _, version := range ciliumVersions {
		files, err := filepath.Glob(filepath.Join(healthy, "cilium-"+version, "*.txtar"))
		if err != nil || len(files) < 10 {
			t.Fatalf("there are %d recordings of Cilium %s, want 10: %v", len(files), version, err)
		}
		for _, file := range files {
			name := fmt.Sprintf("nothing is found in %s under Cilium %s", strings.TrimSuffix(filepath.Base(file), ".txtar"), version)
			t.Run(name, func(t *testing.T) {
				c := recordedCase(t, file)
				if len(c.Samples) != 2 {
					t.Errorf("there are %d samples, want 2", len(c.Samples))
				}
				for _, s := range c.Samples {
					showsAll(t, s, version)
				}
				silent(t, doctor.Examine(c, checks.All()))
			})
		}
	}
}

// recordedCase reads a recording, of which all must be readable.
func recordedCase(t *testing.T, file string) *facts.Case {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := doctortest.Bundle(archive)
	if err != nil {
		t.Fatal(err)
	}
	c := facts.Read(bundle)
	for _, u := range c.Unread {
		t.Errorf("%s is not read: %s", u.Record.Path, u.Why)
	}
	return c
}

// showsAll wants a sample with every layer, so that silence means something.
func showsAll(t *testing.T, s *facts.Sample, version string) {
	t.Helper()
	for _, resource := range []string{"services", "endpointslices.discovery.k8s.io", "nodes"} {
		if !s.Objects.Complete(resource) {
			t.Errorf("sample %d does not have all %s", s.Number, resource)
		}
	}
	if len(s.Nodes) != 1 || s.Nodes[0].Cilium == nil || s.Nodes[0].Cilium.Version != version {
		t.Fatalf("sample %d is not of one node with Cilium %s", s.Number, version)
	}
	var layers []facts.Layer
	for _, d := range s.Nodes[0].Dumps {
		layers = append(layers, d.Layer)
		if len(d.Frontends) == 0 && len(d.Pools) == 0 {
			t.Errorf("sample %d: %s is empty", s.Number, d.Source)
		}
	}
	if want := []facts.Layer{facts.Backends, facts.Frontends, facts.Kernel}; !slices.Equal(layers, want) {
		t.Errorf("sample %d has the layers %v, want %v", s.Number, layers, want)
	}
}

// silent wants nothing that changes the exit status.
func silent(t *testing.T, r doctor.Report) {
	t.Helper()
	for _, cause := range r.Causes {
		if len(cause.Consequences) > 0 || cause.Severity != doctor.Info {
			t.Errorf("false finding: %s", doctortest.Text(doctor.Report{Causes: []*doctor.Node{cause}}))
		}
	}
}
