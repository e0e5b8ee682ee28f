// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
)

// The Go side writes memory that programs read: the compiled objects say how
// large each key and value is.
func TestGoLayoutsHaveTheSizeOfTheProgramsTypes(t *testing.T) {
	spec, err := loadSock()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ key, value uintptr }{
		mapFrontends: {unsafe.Sizeof(frontendKey{}), unsafe.Sizeof(frontend{})},
		mapSets:      {4, unsafe.Sizeof(setEntry{})},
		mapBackends:  {4, unsafe.Sizeof(slot{})},
		mapRanges:    {unsafe.Sizeof(rangeKey{}), 4},
		mapNodes:     {unsafe.Sizeof(address{}), 4},
		mapRefused:   {unsafe.Sizeof(refusalKey{}), 8},
		mapAffinity:  {24, 32},
		mapUDP:       {32, 24},
	} {
		m := spec.Maps[name]
		if uintptr(m.KeySize) != want.key || uintptr(m.ValueSize) != want.value {
			t.Errorf("%s: programs have key %d, value %d; Go has %d, %d", name, m.KeySize, m.ValueSize, want.key, want.value)
		}
	}
	if flags := spec.Maps[mapSets].Flags; flags == 0 {
		t.Error("the sets array is not mappable")
	}
	if spec.Maps[mapFrontends].Type != ebpf.Hash {
		t.Error("the frontends map is not a hash")
	}
}
