// SPDX-License-Identifier: Apache-2.0

package datapath

import "testing"

// BenchmarkLoadWire measures how long the kernel takes to accept the programs
// of the packet path, which every start of the agent waits for. The budget is
// half a second for both, and 100 000 instructions that the verifier looks at.
func BenchmarkLoadWire(b *testing.B) {
	r := newRig(b, smallSizes())
	for b.Loop() {
		programs, err := r.wirePrograms(false)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		verified := uint32(0)
		for _, p := range programs.Programs {
			info, err := p.Info()
			if err != nil {
				b.Fatal(err)
			}
			n, _ := info.VerifiedInstructions()
			verified += n
		}
		b.ReportMetric(float64(verified), "verified-instructions")
		programs.Close()
		delete(r.wire.programs, false)
		b.StartTimer()
	}
}
