// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Features probes the running kernel for what the two paths use. A missing
// feature says what that costs; nothing is concluded from a version.
func Features() []api.Feature {
	helper := func(fn asm.BuiltinFunc) error { return features.HaveProgramHelper(ebpf.CGroupSockAddr, fn) }
	onWire := func(fn asm.BuiltinFunc) error { return features.HaveProgramHelper(ebpf.SchedCLS, fn) }
	probes := []struct {
		name string
		err  error
		cost string
	}{
		{"cgroup socket address programs", features.HaveProgramType(ebpf.CGroupSockAddr), "the socket path cannot work"},
		{"mappable arrays", features.HaveMapFlag(features.BPF_F_MMAPABLE), "backend sets cannot be published"},
		{"socket storage", errors.Join(features.HaveMapType(ebpf.SkStorage), helper(asm.FnSkStorageGet)), "the socket path cannot work"},
		{"namespace cookies", errors.Join(helper(asm.FnGetNetnsCookie), haveNetNSCookieOption()), "host and pods cannot be told apart"},
		{"ring buffer", features.HaveMapType(ebpf.RingBuf), "refusals cannot be monitored"},
		{"choosing the error of a refusal", haveSetRetval(), "a refused connect() says EPERM instead of ECONNREFUSED or EHOSTUNREACH"},
		{"finding the socket above an MPTCP subflow", haveMPTCP(), "getpeername() on an MPTCP socket shows the backend"},
		{"programs on the packets of sockets", haveSourceCheck(), "a pod's socket that is not bound to an address is refused where loadBalancerSourceRanges apply"},
		{"destroying sockets from programs", haveSocketDestroy(), "a connected UDP socket keeps a backend that is gone until its process closes it"},
		{"batched map writes", haveBatch(), "the agent cannot write the frontends map"},
		{"programs on devices", features.HaveProgramType(ebpf.SchedCLS), "the packet path cannot work"},
		{"TCX links", haveTCX(), "programs are attached to devices by filters on a clsact qdisc, where others can replace them"},
		{"routes for packets", onWire(asm.FnFibLookup), "the packet path cannot work"},
		{"sending to a neighbour that is not known yet", onWire(asm.FnRedirectNeigh), "the packet path cannot work"},
	}
	result := make([]api.Feature, 0, len(probes))
	for _, p := range probes {
		f := api.Feature{Name: p.name, Present: p.err == nil}
		if p.err != nil {
			f.Cost = p.cost
		}
		result = append(result, f)
	}
	return result
}

func haveNetNSCookieOption() error {
	_, err := NetNSCookie()
	return err
}

// haveSocketDestroy asks for the kernel function that bpf/release.c calls,
// once: the kernel's own list of its functions is long.
var haveSocketDestroy = sync.OnceValue(func() error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return err
	}
	var destroy *btf.Func
	return kernel.TypeByName("bpf_sock_destroy", &destroy)
})

func haveBatch() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "fairlead_probe", Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.BatchUpdate([]uint32{1}, []uint32{1}, nil)
	if errors.Is(err, unix.E2BIG) {
		return nil
	}
	return err
}
