// SPDX-License-Identifier: Apache-2.0

package datapath

import "testing"

func TestPruneThatFailedIsTakenUpWhereItWas(t *testing.T) {
	r := newRig(t, smallSizes())
	r.apply(threeServices...)
	r.attach()
	r.reopen()

	ranges := r.breakMap(mapRanges)
	if _, err := r.Prune(); err == nil {
		t.Error("no error although source ranges cannot be deleted")
	}
	r.current.maps[mapRanges] = ranges
	r.prune()

	// Each set is free once: one that is free twice would be given to two Services.
	r.reclaimAll(uint64(smallSizes().Backends-1), int(smallSizes().Sets))
	if n := len(r.rangesInKernel()); n != 0 {
		t.Errorf("%d source ranges are left", n)
	}
}

func TestASetThatIsReleasedTwiceIsFreeOnce(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	id := r.published("web")
	r.release(id)
	r.release(id)
	r.reclaimAll(uint64(smallSizes().Backends-1), int(smallSizes().Sets))
	r.release(id)
	r.reclaimAll(uint64(smallSizes().Backends-1), int(smallSizes().Sets))
	if api, web := r.published("api"), r.published("web"); api == web {
		t.Errorf("two Services have set %d", api)
	}
}
