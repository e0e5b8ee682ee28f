// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"strconv"
	"strings"
)

// Ports is a range of ports, both ends included.
type Ports struct{ First, Last uint16 }

// firstUnprivileged is the first port that is not for the node's own services.
const firstUnprivileged = 1024

// UnmarshalText reads FIRST-LAST.
func (p *Ports) UnmarshalText(text []byte) error {
	first, last, ok := strings.Cut(string(text), "-")
	low, lowErr := strconv.ParseUint(first, 10, 16)
	high, highErr := strconv.ParseUint(last, 10, 16)
	if !ok || lowErr != nil || highErr != nil {
		return fmt.Errorf("%q is no range of ports: give FIRST-LAST, such as 61000-65535", text)
	}
	if low < firstUnprivileged || high < low {
		return fmt.Errorf("%q: the first port must be at least %d, and the last no less than the first", text, firstUnprivileged)
	}
	*p = Ports{uint16(low), uint16(high)}
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (p Ports) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

func (p Ports) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

// Overlap is the part of the range that lies in the other one; ok is false if
// there is none.
func (p Ports) Overlap(o Ports) (both Ports, ok bool) {
	both = Ports{max(p.First, o.First), min(p.Last, o.Last)}
	return both, both.First <= both.Last
}
