// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestSocketPathModes(t *testing.T) {
	const port = 30080
	n := newNode(t)
	b := n.backend(t, "web")
	web := rig.Service{Name: "web", VIP: n.vip(), NodePort: port, Spec: "type: NodePort"}
	n.Write(t, "web.yaml", web.YAML(rig.AllReady(b)))
	pod, _ := n.client(t, "client")
	host := n.host(t)

	// The last one shows that a mode is left as well as it is entered.
	for _, c := range []struct {
		mode       string
		host, pods bool
	}{{"all", true, true}, {"host", true, false}, {"off", false, false}, {"all", true, true}} {
		t.Run("--socket-path="+c.mode, func(t *testing.T) {
			n.Start(t, "--socket-path", c.mode)
			n.Settle(t)
			defer n.Process.Kill()
			for _, from := range []struct {
				client *traffic.Client
				served bool
			}{{host, c.host}, {pod, c.pods}} {
				for _, w := range ways {
					if from.served {
						rig.Expect(t, from.client, w, web.VIP, rig.ServicePort, "web")
						rig.Expect(t, from.client, w, nodeAddrs, port, "web")
						continue
					}
					expectUntouched(t, from.client, w, web.VIP, rig.ServicePort)
					expectClosed(t, from.client, w, nodeAddrs, port)
				}
			}
			status := n.Status(t)
			atSockets := func(a api.Attachment) bool { return a.Device == "" }
			if attached := slices.ContainsFunc(status.Attachments, atSockets); attached != (c.host || c.pods) {
				t.Errorf("attached are %+v", status.Attachments)
			}
			if !status.Healthy || status.SocketPath != c.mode {
				t.Errorf("healthy: %v, socket path: %s, findings: %q", status.Healthy, status.SocketPath, status.Findings)
			}
		})
	}
}

func TestProgramsOfOthers(t *testing.T) {
	const guardedPort = 9
	n := newNode(t)
	attachGuard(t, n.Cgroup.Path(), guardedPort)
	n.Start(t)
	b := n.backend(t, "web")
	web := rig.Service{Name: "web", VIP: n.vip()}
	n.Serve(t, web, rig.Ready(b))
	pod, _ := n.client(t, "client")
	check := func(t *testing.T) {
		t.Helper()
		rig.ExpectError(t, pod, ways[0], b.Addrs, guardedPort, "EPERM")
		if !slices.ContainsFunc(n.Status(t).Attachments, func(a api.Attachment) bool {
			return a.Hook == "connect4" && a.Program == guardName && !a.Ours
		}) {
			t.Errorf("status lists %+v, want the guard among them", n.Status(t).Attachments)
		}
	}

	t.Run("they go on beside ours, and status lists them", func(t *testing.T) {
		check(t)
		for _, w := range ways {
			rig.Expect(t, pod, w, web.VIP, rig.ServicePort, "web")
		}
	})
	t.Run("they go on when the agent starts again, and after a cleanup", func(t *testing.T) {
		n.Restart(t)
		check(t)
		n.Process.Kill()
		n.Run(t, 0, "cleanup")
		rig.ExpectError(t, pod, ways[0], b.Addrs, guardedPort, "EPERM")
	})
}

const guardName = "guard"

// attachGuard attaches a program that refuses connections to one port over
// IPv4, as some other agent of the node might.
func attachGuard(t *testing.T, cgroup string, port uint16) {
	t.Helper()
	const userPort = 24 // offset in struct bpf_sock_addr; in network byte order
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: guardName, Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, userPort, asm.Word),
			asm.HostTo(asm.BE, asm.R2, asm.Half),
			asm.Mov.Imm(asm.R0, 1),
			asm.JNE.Imm(asm.R2, int32(port), "out"),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return().WithSymbol("out"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	attached, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupInet4Connect, Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attached.Close() })
}
