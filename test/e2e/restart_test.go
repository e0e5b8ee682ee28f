// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The agent's end, however it comes, is no business of connections (R39).
func TestAgentKilledUnderLoad(t *testing.T) {
	const port = 30080
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: port, Spec: "type: NodePort"}
	n.Serve(t, web, rig.AllReady(b...)...)
	place, _ := n.pod(t, "client")
	load := startLoad(t, place, append(at(web.VIP, rig.ServicePort), target{ways[0], nodeAddrs, port})...)

	// What changes does so while the agent is being killed, while there is none,
	// or not at all.
	for i := range 6 {
		some := rig.AllReady(b[i%3:]...)
		if i%3 == 0 {
			n.Write(t, "web.yaml", web.YAML(some))
		}
		n.Process.Kill()
		if i%3 == 1 {
			n.Write(t, "web.yaml", web.YAML(some))
			n.Write(t, "new.yaml", rig.Service{Name: "new", VIP: n.vip()}.YAML(some))
		}
		n.Start(t)
		n.Settle(t)
		n.Serve(t, web, rig.AllReady(b...)...)
	}
	load.end()
}

func TestRestartChangesNothing(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	for i := range 3 {
		s := rig.Service{
			Name: fmt.Sprint("web-", i), VIP: n.vip(), NodePort: uint16(30080 + i), Ingress: rig.Ingress(n.externalAddress(), ""),
			Spec: `type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP, loadBalancerSourceRanges: ["10.0.1.0/24", "fd00:1::/64"]`,
		}
		for j := range 3 {
			n.Serve(t, s, append(rig.AllReady(b[:j+1]...), rig.Terminating(b[2]))...)
		}
	}
	before := n.Run(t, 0, "get", "kernel", "-o", "json")
	var kernel api.Kernel
	if err := json.Unmarshal([]byte(before), &kernel); err != nil || len(kernel.Entries) == 0 {
		t.Fatalf("the kernel holds %d entries, %v", len(kernel.Entries), err)
	}

	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(fmt.Sprintf("sets, owners, generations and extents are the same after %q and a start (R39)", signal), func(t *testing.T) {
			n.Process.Signal(signal)
			<-n.Process.Done()
			if diff := cmp.Diff(before, n.Run(t, 0, "get", "kernel", "-o", "json")); diff != "" {
				t.Errorf("without an agent (-before +after):\n%s", diff)
			}
			n.Start(t)
			n.Settle(t)
			if diff := cmp.Diff(before, n.Run(t, 0, "get", "kernel", "-o", "json")); diff != "" {
				t.Errorf("with the next agent (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOneWriter(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b")
	web := rig.Service{Name: "web", VIP: n.vip()}
	n.Serve(t, web, rig.AllReady(b[:1]...)...)
	place, _ := n.pod(t, "client")
	client := traffic.StartClient(t, place)
	load := startLoad(t, place, at(web.VIP, rig.ServicePort)...)

	first := n.Process
	n.Launch(t, "--manifests", n.Manifests)
	second := n.Process
	t.Run("a second agent waits and says who is the writer", func(t *testing.T) {
		rig.Eventually(t, func() error {
			if said := second.Stderr(); !strings.Contains(said, fmt.Sprintf("process %d", first.PID())) {
				return fmt.Errorf("it says %q", said)
			}
			return nil
		})
		if got := n.Status(t).PID; got != first.PID() {
			t.Errorf("process %d answers, want the first, %d", got, first.PID())
		}
		if out := n.Place().Start(t, rig.Program(), "cleanup", "--pin-path", n.Pins); out.Wait() == nil {
			t.Errorf("cleanup removed what an agent serves: %s", out.Stdout())
		}
	})

	t.Run("an agent that is asked to stop leaves everything in force (R39)", func(t *testing.T) {
		second.Kill()
		first.Signal(syscall.SIGTERM)
		if err := first.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		for _, w := range ways {
			rig.Expect(t, client, w, web.VIP, rig.ServicePort, "a")
		}
	})

	n.Start(t)
	first = n.Process
	n.Launch(t, "--manifests", n.Manifests)
	t.Run("the second takes over when the first dies", func(t *testing.T) {
		rig.Eventually(t, func() error {
			if !strings.Contains(n.Process.Stderr(), "waiting") {
				return fmt.Errorf("the second says %q", n.Process.Stderr())
			}
			return nil
		})
		first.Kill()
		n.Ready(t)
		n.Serve(t, web, rig.Ready(b[1]))
		rig.Expect(t, client, ways[0], web.VIP, rig.ServicePort, "b")
	})
	load.end()

	t.Run("cleanup takes programs and pins away once no agent runs", func(t *testing.T) {
		n.Process.Signal(syscall.SIGTERM)
		if err := n.Process.Wait(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		n.Run(t, 0, "cleanup")
		if _, err := os.Stat(n.Pins); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it gone", filepath.Base(n.Pins), err)
		}
		// The kernel drops a link with its last reference, in its own time.
		rig.Eventually(t, func() error {
			if reply := ways[0].Ask(client, web.VIP, rig.ServicePort); reply.Error != "ENETUNREACH" {
				return fmt.Errorf("%s, want it to go nowhere", reply)
			}
			return nil
		})
	})
}

// The first of the two incidents this proxy is about: Services that share an
// endpoint, one of them emptied, the other one touched.
func TestIncidentOfSharedEndpoints(t *testing.T) {
	n := startNode(t)
	shared := n.backend(t, "shared")
	// The name of the second begins with that of the first.
	kubernetes, intranet := rig.Service{Name: "kubernetes", VIP: n.vip()}, rig.Service{Name: "kubernetes-intranet", VIP: n.vip()}
	n.Serve(t, kubernetes, rig.Ready(shared))
	n.Serve(t, intranet, rig.Ready(shared))
	place, _ := n.pod(t, "client")
	load := startLoad(t, place, at(intranet.VIP, rig.ServicePort)...)
	client := traffic.StartClient(t, place)

	for step, do := range []func(){
		func() { n.Serve(t, kubernetes) },
		func() { n.Restart(t) },
		func() { intranet.Metadata = "labels: {touched: once}"; n.Serve(t, intranet, rig.Ready(shared)) },
		func() { n.Serve(t, kubernetes, rig.Ready(shared)) },
		func() { n.Serve(t, kubernetes, rig.NotReady(shared)) },
		func() { intranet.Metadata = "labels: {touched: twice}"; n.Serve(t, intranet, rig.Ready(shared)) },
		func() { n.Remove(t, "kubernetes") },
		func() { n.Restart(t) },
		func() { intranet.Metadata = ""; n.Serve(t, intranet, rig.Ready(shared)) },
	} {
		do()
		if row := n.Row(t, "kubernetes-intranet", intranet.VIP.V6, rig.ServicePort, "TCP"); row.Action != "forward" || len(row.Backends) != 1 {
			t.Errorf("after step %d its row is %+v", step, row)
		}
		for _, w := range ways {
			rig.Expect(t, client, w, intranet.VIP, rig.ServicePort, "shared")
		}
	}
	load.end()
}
