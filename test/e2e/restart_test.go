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
)

// The agent's end, however it comes, is no business of connections (R39).
func TestAgentKilledUnderLoad(t *testing.T) {
	const port = 30080
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	web := service{name: "web", vip: n.vip(), nodePort: port, spec: "type: NodePort"}
	n.serve(t, web, allReady(b...)...)
	place, _ := n.pod(t, "client")
	load := startLoad(t, place, append(at(web.vip, servicePort), target{ways[0], nodeAddrs, port})...)

	// What changes does so while the agent is being killed, while there is none,
	// or not at all.
	for i := range 6 {
		some := allReady(b[i%3:]...)
		if i%3 == 0 {
			n.write(t, "web.yaml", web.yaml(some))
		}
		n.agent.Kill()
		if i%3 == 1 {
			n.write(t, "web.yaml", web.yaml(some))
			n.write(t, "new.yaml", service{name: "new", vip: n.vip()}.yaml(some))
		}
		n.start(t)
		n.settle(t)
		n.serve(t, web, allReady(b...)...)
	}
	load.end()
}

func TestRestartChangesNothing(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b", "c")
	for i := range 3 {
		s := service{
			name: fmt.Sprint("web-", i), vip: n.vip(), nodePort: uint16(30080 + i), ingress: ingressOf(n.externalAddress(), ""),
			spec: `type: LoadBalancer, externalTrafficPolicy: Local, sessionAffinity: ClientIP, loadBalancerSourceRanges: ["10.0.1.0/24", "fd00:1::/64"]`,
		}
		for j := range 3 {
			n.serve(t, s, append(allReady(b[:j+1]...), terminating(b[2]))...)
		}
	}
	before := n.run(t, 0, "get", "kernel", "-o", "json")
	var kernel api.Kernel
	if err := json.Unmarshal([]byte(before), &kernel); err != nil || len(kernel.Entries) == 0 {
		t.Fatalf("the kernel holds %d entries, %v", len(kernel.Entries), err)
	}

	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(fmt.Sprintf("sets, owners, generations and extents are the same after %q and a start (R39)", signal), func(t *testing.T) {
			n.agent.Signal(signal)
			<-n.agent.Done()
			if diff := cmp.Diff(before, n.run(t, 0, "get", "kernel", "-o", "json")); diff != "" {
				t.Errorf("without an agent (-before +after):\n%s", diff)
			}
			n.start(t)
			n.settle(t)
			if diff := cmp.Diff(before, n.run(t, 0, "get", "kernel", "-o", "json")); diff != "" {
				t.Errorf("with the next agent (-before +after):\n%s", diff)
			}
		})
	}
}

func TestOneWriter(t *testing.T) {
	n := startNode(t)
	b := n.backends(t, "a", "b")
	web := service{name: "web", vip: n.vip()}
	n.serve(t, web, allReady(b[:1]...)...)
	place, _ := n.pod(t, "client")
	client := traffic.StartClient(t, place)
	load := startLoad(t, place, at(web.vip, servicePort)...)

	first := n.agent
	n.launch(t, "--manifests", n.manifests)
	second := n.agent
	t.Run("a second agent waits and says who is the writer", func(t *testing.T) {
		eventually(t, func() error {
			if said := second.Stderr(); !strings.Contains(said, fmt.Sprintf("process %d", first.PID())) {
				return fmt.Errorf("it says %q", said)
			}
			return nil
		})
		if got := n.status(t).PID; got != first.PID() {
			t.Errorf("process %d answers, want the first, %d", got, first.PID())
		}
		if out := n.place().Start(t, os.Getenv(programVariable), "cleanup", "--pin-path", n.pins); out.Wait() == nil {
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
			expect(t, client, w, web.vip, servicePort, "a")
		}
	})

	n.start(t)
	first = n.agent
	n.launch(t, "--manifests", n.manifests)
	t.Run("the second takes over when the first dies", func(t *testing.T) {
		eventually(t, func() error {
			if !strings.Contains(n.agent.Stderr(), "waiting") {
				return fmt.Errorf("the second says %q", n.agent.Stderr())
			}
			return nil
		})
		first.Kill()
		n.ready(t)
		n.serve(t, web, ready(b[1]))
		expect(t, client, ways[0], web.vip, servicePort, "b")
	})
	load.end()

	t.Run("cleanup takes programs and pins away once no agent runs", func(t *testing.T) {
		n.agent.Signal(syscall.SIGTERM)
		if err := n.agent.Wait(); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		n.run(t, 0, "cleanup")
		if _, err := os.Stat(n.pins); !os.IsNotExist(err) {
			t.Errorf("%s: %v, want it gone", filepath.Base(n.pins), err)
		}
		// The kernel drops a link with its last reference, in its own time.
		eventually(t, func() error {
			if reply := ways[0].ask(client, web.vip, servicePort); reply.Error != "ENETUNREACH" {
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
	kubernetes, intranet := service{name: "kubernetes", vip: n.vip()}, service{name: "kubernetes-intranet", vip: n.vip()}
	n.serve(t, kubernetes, ready(shared))
	n.serve(t, intranet, ready(shared))
	place, _ := n.pod(t, "client")
	load := startLoad(t, place, at(intranet.vip, servicePort)...)
	client := traffic.StartClient(t, place)

	for step, do := range []func(){
		func() { n.serve(t, kubernetes) },
		func() { n.restart(t) },
		func() { intranet.metadata = "labels: {touched: once}"; n.serve(t, intranet, ready(shared)) },
		func() { n.serve(t, kubernetes, ready(shared)) },
		func() { n.serve(t, kubernetes, notReady(shared)) },
		func() { intranet.metadata = "labels: {touched: twice}"; n.serve(t, intranet, ready(shared)) },
		func() { n.remove(t, "kubernetes") },
		func() { n.restart(t) },
		func() { intranet.metadata = ""; n.serve(t, intranet, ready(shared)) },
	} {
		do()
		if row := n.row(t, "kubernetes-intranet", intranet.vip.v6, servicePort, "TCP"); row.Action != "forward" || len(row.Backends) != 1 {
			t.Errorf("after step %d its row is %+v", step, row)
		}
		for _, w := range ways {
			expect(t, client, w, intranet.vip, servicePort, "shared")
		}
	}
	load.end()
}

// restart kills the agent and starts another one.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.agent.Kill()
	n.start(t)
	n.settle(t)
}
