// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
)

// annotate writes the manifest of shop/web with a selection, or with none.
func (s stage) annotate(t *testing.T, selection string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examplesDir, "clusterip.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	if selection != "" {
		manifest = strings.Replace(manifest, "metadata:\n  name: web\n",
			"metadata:\n  name: web\n  annotations: {fairlead.io/selection: "+selection+"}\n", 1)
	}
	if err := os.WriteFile(filepath.Join(s.manifests, "clusterip.yaml"), []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
}

// entries is how many entries the table of an address has in the kernel.
func (s stage) entries(t *testing.T, address string) uint32 {
	t.Helper()
	status, out, errOut := fairlead(t, "", "get", "kernel", "--pin-path", s.pinPath, "-o", "json", address)
	var kernel api.Kernel
	if err := json.Unmarshal([]byte(out), &kernel); err != nil || status != exitFine || len(kernel.Entries) != 1 {
		t.Fatalf("exit status %d, %v: %s%s", status, err, out, errOut)
	}
	if problem := kernel.Entries[0].Problem; problem != "" {
		t.Errorf("%s has the problem %q", address, problem)
	}
	return kernel.Entries[0].MaglevEntries
}

func TestAServiceGoesOverToMaglevByItsAnnotation(t *testing.T) {
	s := newStage(t)
	s.annotate(t, "maglev")
	agent := s.startAgent(t, "--maglev-table-size", "251")
	const web, other = "10.96.0.80:80/TCP", "10.96.0.10:53/UDP"
	if n := s.entries(t, web); n != 251 {
		t.Errorf("the annotated Service has a table of %d entries, want 251", n)
	}
	if n := s.entries(t, other); n != 0 {
		t.Errorf("another Service has a table of %d entries", n)
	}
	expect(t, exitFine, []string{"maglev"}, "get", "services", "shop/web", "-o", "wide")
	expect(t, exitFine, []string{"251 entries"}, "get", "kernel", "--pin-path", s.pinPath, web, "-o", "wide")
	expect(t, exitFine, []string{"packets choose among backends by Maglev", "Maglev table of 251 entries", "goes to one of 2 backends"}, "explain", "shop/web")
	expect(t, exitFine, []string{"only packets ask the Maglev table"}, "trace", "--from", "10.0.1.20", "--to", "10.96.0.80:80")
	expect(t, exitFine, []string{"no drift: api = tables = kernel ("}, "diff", "--pin-path", s.pinPath)

	s.annotate(t, "")
	eventually(t, "the Service is random again", func() bool { return s.entries(t, web) == 0 })
	expect(t, exitFine, []string{"selection maglev → random"}, "explain", "shop/web")

	s.annotate(t, "ring")
	eventually(t, "the status names the annotation that means nothing", func() bool {
		_, out, _ := fairlead(t, "", "status", "-o", "json")
		var status api.Status
		return json.Unmarshal([]byte(out), &status) == nil && slices.ContainsFunc(status.Problems, func(p string) bool {
			return strings.Contains(p, `Service shop/web: metadata.annotations[fairlead.io/selection]: ignored: "ring" is none of random, maglev`)
		})
	})
	expect(t, exitFine, []string{"10.0.1.7:8080,10.0.2.7:8080"}, "get", "frontends", "shop/web")
	agent.interrupt(t)
}

func TestTheOperatorChoosesForServicesThatSayNothing(t *testing.T) {
	s := newStage(t)
	s.annotate(t, "random")
	agent := s.startAgent(t, "--selection", "maglev")
	const web, other = "10.96.0.80:80/TCP", "10.96.0.10:53/UDP"
	if n := s.entries(t, web); n != 0 {
		t.Errorf("the Service that asks for random has a table of %d entries", n)
	}
	if n := s.entries(t, other); n != 1021 {
		t.Errorf("another Service has a table of %d entries, want 1021", n)
	}
	agent.interrupt(t)

	// A table of another size is written anew.
	s.startAgent(t, "--selection", "maglev", "--maglev-table-size", "2039").interrupt(t)
	if n := s.entries(t, other); n != 2039 {
		t.Errorf("after a restart the table has %d entries, want 2039", n)
	}
}

func TestCompileAndTraceTakeTheOperatorsSelection(t *testing.T) {
	file := filepath.Join(examplesDir, "clusterip.yaml")
	_, random, _ := fairlead(t, "", "compile", "-f", file, "--node-name", "n1", "-o", "json")
	status, byMaglev, errOut := fairlead(t, "", "compile", "-f", file, "--node-name", "n1", "-o", "json", "--selection", "maglev")
	if status != exitFine || byMaglev != random {
		t.Errorf("exit status %d: %s\nthe rows differ:\n%s\nand\n%s", status, errOut, random, byMaglev)
	}
	trace := []string{"trace", "-f", file, "--node-name", "n1", "--from", "192.0.2.99", "--to", "10.96.0.80:80"}
	expect(t, exitFine, []string{"chosen at random"}, trace...)
	expect(t, exitFine, []string{"the same on every node (Maglev)"}, append(trace, "--selection", "maglev")...)
}

func TestSelectionsAndTableSizesThatAreNoneAreRefusedInOneLine(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--selection", "ring", `"ring" is none of random, maglev`},
		{"--maglev-table-size", "1000", "use one of 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521"},
	} {
		status, _, errOut := fairlead(t, "", "agent", "--node-name", "n1", c.flag, c.value)
		if status != exitFailed || !strings.Contains(errOut, c.want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s %s: exit status %d: %s", c.flag, c.value, status, errOut)
		}
	}
}
