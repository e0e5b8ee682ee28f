// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/adapter/fairlead"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

var rewrite = flag.Bool("rewrite", false, "write what a real agent says to the testdata of its adapter, and the table to the page")

// adapters is where the parsers have their testdata.
const adapters = "../../internal/adapter"

// objectsFile is what all data planes were given when they were recorded.
const objectsFile = "testdata/objects.yaml"

// newAgent starts a real agent that serves the objects.
func newAgent(t *testing.T) *rig.Agent {
	t.Helper()
	ns := lab.NewNetNS(t, "node")
	outside := lab.NewNetNS(t, "outside")
	lab.Veth(t, lab.End{NetNS: ns, Link: "eth0", Addrs: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		lab.End{NetNS: outside, Link: "eth0", Addrs: []string{"192.0.2.9/24", "2001:db8::9/64"}})
	a := rig.NewAgent(t, "node", ns, t.TempDir())
	objects, err := os.ReadFile(objectsFile)
	if err != nil {
		t.Fatal(err)
	}
	a.Write(t, "objects.yaml", string(objects))
	a.Start(t)
	a.Settle(t)
	return a
}

// TestTheAgentIsRead has the adapter read what a real agent and its maps say.
func TestTheAgentIsRead(t *testing.T) {
	a := newAgent(t)
	for file, what := range map[string]string{"frontends-json.txt": "frontends", "kernel-json.txt": "kernel"} {
		text := strings.ReplaceAll(a.Run(t, 0, "get", what, "-o", "json"), a.Pins, "/sys/fs/bpf/fairlead")
		if *rewrite {
			if err := os.WriteFile(filepath.Join(adapters, "fairlead", "testdata", file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		parse := fairlead.ParseFrontends
		if what == "kernel" {
			parse = fairlead.ParseKernel
		}
		d := parse(strings.NewReader(text))
		if d.Silent != "" || len(d.Problems) > 0 || len(d.Frontends) == 0 {
			t.Errorf("get %s: silent %q, problems %v, %d frontends", what, d.Silent, d.Problems, len(d.Frontends))
		}
	}
}
