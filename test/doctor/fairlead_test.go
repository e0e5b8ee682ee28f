// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/checks"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/test/rig"
)

// TestFairlead has the doctor look at the real agent: well, with entries deleted
// behind its back, dead, and without an API server.
func TestFairlead(t *testing.T) {
	n, agent := withFairlead(t)
	if *update {
		n.keep(t, "fairlead", func(int) bool { return true })
	}
	n.serveAll()
	n.finds(t)

	t.Run("frontends deleted in the pinned maps are missing in the kernel", func(t *testing.T) {
		n.deleteFrontends(t, agent, n.clusterIP("cluster-ip", "web"))
		n.finds(t, says("frontend-missing", "cluster-ip/web"))
	})
	agent.Process.Kill()
	agent.Launch(t, "--kubeconfig", n.Kubeconfig)
	agent.Ready(t)
	n.finds(t)

	t.Run("what comes while no agent runs is missing in the kernel", func(t *testing.T) {
		agent.Process.Kill()
		n.create("cluster-ip", workload{name: "late", ready: 1})
		n.finds(t, "agent-down · kube-system/fairlead · layer agent · on "+here, "cluster-ip/late is not served at")
	})
	agent.Launch(t, "--kubeconfig", n.Kubeconfig)
	agent.Ready(t)
	n.finds(t)

	t.Run("an agent whose API server is gone is cut off, and a bundle of the node says so as well", func(t *testing.T) {
		n.StopAPIServer()
		const cutOff = "cut-off · kube-system/fairlead · layer connection · on " + here
		n.finds(t, cutOff)
		file := filepath.Join(t.TempDir(), "node.tar.gz")
		if printed, status := n.run(t, "bundle", "-o", file, "--node-name", here); status != 0 {
			t.Fatal(printed)
		}
		b, err := evidence.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		r := doctor.Examine(facts.Read(b), checks.All())
		if len(r.Causes) != 1 || r.Causes[0].Check != "cut-off" {
			t.Errorf("the bundle says\n%s", doctortest.Text(r))
		}
	})
}

// deleteFrontends takes all entries of an address out of the kernel's map, as
// only root with a tool of his own could.
func (n *node) deleteFrontends(t *testing.T, a *rig.Agent, address string) {
	t.Helper()
	frontends, err := ebpf.LoadPinnedMap(filepath.Join(a.Pins, "current", "fairlead_frontends"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer frontends.Close()
	// A key begins with the address, IPv4 mapped.
	prefix := netip.MustParseAddr(address).As16()
	var key, value []byte
	var found [][]byte
	for entries := frontends.Iterate(); entries.Next(&key, &value); {
		if bytes.HasPrefix(key, prefix[:]) {
			found = append(found, bytes.Clone(key))
		}
	}
	if len(found) == 0 {
		t.Fatalf("the kernel has no frontend at %s", address)
	}
	for _, key := range found {
		if err := frontends.Delete(key); err != nil {
			t.Fatal(err)
		}
	}
}
