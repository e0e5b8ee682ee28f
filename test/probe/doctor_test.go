// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// TestDoctor runs the command as a user does, on a node whose API server is
// reached by a Service alone, and whose objects nobody can ask for: the
// addresses come from Fairlead's own tables.
func TestDoctor(t *testing.T) {
	ns := lab.NewNetNS(t, nodeName)
	agent := rig.NewAgent(t, nodeName, ns, t.TempDir())
	n := withNode(t, ns, agent.Cgroup)
	secure(t, n.other, "192.0.2.2:8080")
	secure(t, n.other, "[2001:db8::2]:8080")
	agent.Start(t)
	kubernetes := rig.Service{Name: "kubernetes", VIP: rig.ParsePair("10.96.0.1", "fd00:96::1"), Only: "TCP"}
	agent.Serve(t, kubernetes, rig.Ready(&rig.Backend{Name: "api", Node: "n2", Addrs: rig.ParsePair("192.0.2.2", "2001:db8::2")}))

	t.Run("a Service that leads to the API server is no finding", func(t *testing.T) {
		if found := n.doctor(t, agent); len(found) > 0 {
			t.Errorf("found %q", found)
		}
	})
	t.Run("an API server without a way to it is one, and the routing table is named", func(t *testing.T) {
		ns.Blackhole(t, netip.MustParsePrefix("192.0.2.2/32"))
		found := strings.Join(n.doctor(t, agent), "\n")
		for _, words := range []string{
			"warning default/kubernetes: the API server behind default/kubernetes is unreachable (no network) from the host",
			"the routing table says the same of the address", "The Service fails alike, at 10.96.0.1:80/TCP.",
		} {
			if !strings.Contains(found, words) {
				t.Errorf("%q is not among\n%s", words, found)
			}
		}
	})
	t.Run("without IPv6 as well, nothing is left", func(t *testing.T) {
		lab.Place{NetNS: ns}.Run(t, "ip", "-6", "route", "add", "unreachable", "2001:db8::2/128")
		found := strings.Join(n.doctor(t, agent), "\n")
		if words := "critical default/kubernetes: the API server behind default/kubernetes is unreachable (no network) from the host"; !strings.Contains(found, words) {
			t.Errorf("%q is not among\n%s", words, found)
		}
	})
}

// doctor returns what the check of connections finds.
func (n *node) doctor(t *testing.T, agent *rig.Agent) []string {
	t.Helper()
	process := agent.Place().Start(t, rig.Program(), "doctor", "--probe", "--check", "connectivity", "--samples", "1",
		"--node-name", nodeName, "--socket", agent.Socket, "--pin-path", agent.Pins, "-o", "json")
	var exit *exec.ExitError
	if err := process.Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, process.Stderr())
	}
	var report struct {
		Causes []finding `json:"causes"`
	}
	if err := json.Unmarshal([]byte(process.Stdout()), &report); err != nil {
		t.Fatalf("%v:\n%s", err, process.Stdout())
	}
	var found []string
	for _, f := range report.Causes {
		found = append(found, f.Severity+" "+f.Subject+": "+f.Title+"\n"+strings.Join(f.Detail, "\n"))
	}
	return found
}

// finding is what a finding has in JSON, as far as these tests care.
type finding struct {
	Severity string   `json:"severity"`
	Subject  string   `json:"subject"`
	Title    string   `json:"title"`
	Detail   []string `json:"detail"`
}
