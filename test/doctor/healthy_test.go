// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

var update = flag.Bool("collect", false, "collect the bundles of healthy nodes anew")

// healthy is where they are: DATAPLANE/NUMBER-SET.tar.gz.
const healthy = "testdata/healthy"

// settle is longer than the doctor grants a proxy to follow a change: bundles
// that begin later say of all that it is right.
const settle = 6 * time.Second

// keep has the node serve each set that is named by itself, and keeps what was
// collected of it.
func (n *node) keep(t *testing.T, plane string, named func(i int) bool) {
	t.Helper()
	for i, s := range sets() {
		if !named(i) {
			continue
		}
		namespace := n.serve(s)
		n.finds(t)
		time.Sleep(settle)
		file := filepath.Join(healthy, plane, fmt.Sprintf("%02d-%s.tar.gz", i+1, s.name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if printed, status := n.run(t, "bundle", "-o", file, "--interval", "3s"); status != 0 {
			t.Fatal(printed)
		}
		n.remove(namespace)
	}
}

// serveAll has the node serve all sets at once.
func (n *node) serveAll() {
	for _, s := range sets() {
		n.serve(s)
	}
}

func TestHealthyBundles(t *testing.T) {
	for _, plane := range []string{"fairlead", "kube-proxy"} {
		found, err := filepath.Glob(healthy + "/" + plane + "/*.tar.gz")
		if err != nil || len(found) < len(sets()) {
			t.Errorf("there are %d bundles of %s, want one of each of %d sets (go test ./test/doctor -args -collect makes them): %v", len(found), plane, len(sets()), err)
		}
		for _, file := range found {
			t.Run("nothing is found in "+filepath.Base(file), func(t *testing.T) { isHealthy(t, file, plane) })
		}
	}
}

// isHealthy wants no finding in a bundle that could show one.
func isHealthy(t *testing.T, file, plane string) {
	b, err := evidence.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	c := facts.Read(b)
	for _, u := range c.Unread {
		t.Errorf("%s is not read: %s", u.Record.Path, u.Why)
	}
	if len(c.Samples) != 2 {
		t.Errorf("there are %d samples", len(c.Samples))
	}
	for _, s := range c.Samples {
		n := s.Node(here)
		if n == nil || !s.Objects.Complete("services") || !s.Objects.Complete("pods") {
			t.Fatalf("sample %d could show nothing", s.Number)
		}
		if plane == "fairlead" && (n.Fairlead == nil || n.Fairlead.Kernel == nil || n.Fairlead.Status == nil) || plane != "fairlead" && len(n.Dumps) == 0 {
			t.Errorf("sample %d holds nothing of %s", s.Number, plane)
		}
	}
	r := doctor.Examine(c, checks.All())
	for _, cause := range r.Causes {
		t.Errorf("%s %s: %s\n%s", cause.Check, cause.Subject, cause.Title, strings.Join(cause.Detail, "\n"))
	}
}
