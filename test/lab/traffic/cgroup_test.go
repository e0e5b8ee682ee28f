// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestCgroupProgram(t *testing.T) {
	cgroup := lab.NewCgroup(t)
	refuseConnect(t, cgroup)
	ns := lab.NewNetNS(t, "node")
	server := Listen(t, ns, "web", TCP, "127.0.0.1:0").Addr().String()

	for name, c := range map[string]struct {
		place lab.Place
		err   string
	}{
		"a client in the cgroup meets its program":    {lab.Place{NetNS: ns, Cgroup: cgroup}, "EPERM"},
		"a client in a cgroup below meets it too":     {lab.Place{NetNS: ns, Cgroup: cgroup.Child(t, "pod")}, "EPERM"},
		"a client in another cgroup does not":         {lab.Place{NetNS: ns, Cgroup: lab.NewCgroup(t)}, ""},
		"a client where the test process is does not": {lab.Place{NetNS: ns}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := StartClient(t, c.place).Ask(TCP, server).Error; got != c.err {
				t.Errorf("error %q, want %q", got, c.err)
			}
		})
	}
}

// refuseConnect attaches a program that refuses every connection over IPv4.
func refuseConnect(t *testing.T, cgroup *lab.Cgroup) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.CGroupSockAddr,
		AttachType:   ebpf.AttachCGroupInet4Connect,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Apache-2.0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	attached, err := link.AttachCgroup(link.CgroupOptions{
		Path: cgroup.Path(), Attach: ebpf.AttachCGroupInet4Connect, Program: program,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attached.Close() })
}
