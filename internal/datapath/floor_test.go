// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Before Linux 6.1 the memory that a global function is given cannot be the key
// or the value of a map, so such a function copies first. These do.
var copying = map[string]bool{"select_once": true}

func TestGlobalFunctionsAreOnesThatOldKernelsAccept(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"sock": loadSock, "source": loadSource, "release": loadRelease, "wire": loadWire,
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for typ, err := range spec.Types.All() {
			if err != nil {
				t.Fatal(err)
			}
			f, ok := typ.(*btf.Func)
			if ok && f.Linkage == btf.GlobalFunc && spec.Programs[f.Name] == nil && !copying[f.Name] {
				expectNoMemory(t, name, f)
			}
		}
	}
}

// expectNoMemory expects that a function is given numbers, and the context of
// its program.
func expectNoMemory(t *testing.T, object string, f *btf.Func) {
	t.Helper()
	for _, p := range f.Type.(*btf.FuncProto).Params {
		pointer, ok := btf.UnderlyingType(p.Type).(*btf.Pointer)
		if !ok {
			continue
		}
		if to := btf.UnderlyingType(pointer.Target); to.TypeName() != "__sk_buff" {
			t.Errorf("%s of %s.c is global and is given memory (%s): before Linux 6.1 no map takes keys or values from there", f.Name, object, p.Name)
		}
	}
}
