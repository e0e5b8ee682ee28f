// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead-io/fairlead/internal/probe"
	"github.com/fairlead-io/fairlead/test/lab"
)

func TestPodNamespaces(t *testing.T) {
	const (
		plain = "0f9dd2a1-1c2b-4f6e-9f3a-5b1f7c3d9e10"
		slice = "7a6c1c55-8d8e-4b62-a5a0-0f3f6d1f2b34"
		host  = "3b0d5d10-2f7e-4c47-8f0c-94f1a2b3c4d5"
		gone  = "ffffffff-0000-4000-8000-000000000000"
	)
	node := lab.NewCgroup(t)
	plainPod, slicePod := lab.NewNetNS(t, "plain"), lab.NewNetNS(t, "slice")
	start := func(name string, ns *lab.NetNS) *lab.Process {
		return lab.Place{NetNS: ns, Cgroup: node.Child(t, name)}.Start(t, "sleep", "60")
	}
	inPlain := start("pod"+plain, plainPod)
	inSlice := start("kubepods-burstable-pod7a6c1c55_8d8e_4b62_a5a0_0f3f6d1f2b34.slice", slicePod)
	start("pod"+host, nil)

	got, err := probe.PodNamespaces("/proc", "/proc/self/ns/net", []string{plain, slice, host, gone, ""})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Errorf("found %v, want the two pods with a network of their own", got)
	}
	for uid, process := range map[string]*lab.Process{plain: inPlain, slice: inSlice} {
		want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", process.PID()))
		if err != nil {
			t.Fatal(err)
		}
		if at, err := os.Readlink(got[uid]); err != nil || at != want {
			t.Errorf("pod %s: %q is %s (%v), want %s", uid, got[uid], at, err, want)
		}
	}
}

func TestPodNamespacesWithoutProc(t *testing.T) {
	if _, err := probe.PodNamespaces(t.TempDir()+"/none", "/proc/self/ns/net", nil); err == nil {
		t.Error("a folder that is not there is taken for /proc")
	}
}
