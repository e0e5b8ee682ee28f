// SPDX-License-Identifier: Apache-2.0

package rtnl

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

func TestWhole(t *testing.T) {
	failure := errors.New("not permitted")
	for name, c := range map[string]struct {
		answers []error
		asked   int
		err     error
	}{
		"a whole answer is taken":             {[]error{nil}, 1, nil},
		"an interrupted one is asked again":   {[]error{netlink.ErrDumpInterrupted, nil}, 2, nil},
		"a failure is told at once":           {[]error{failure}, 1, failure},
		"a list that never rests is an error": {[]error{tries - 1: netlink.ErrDumpInterrupted}, tries, netlink.ErrDumpInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			got, err := Whole(func() ([]int, error) {
				asked++
				answer := c.answers[asked-1]
				if len(c.answers) == tries {
					answer = netlink.ErrDumpInterrupted
				}
				return []int{asked}, answer
			})
			if asked != c.asked || !errors.Is(err, c.err) || got[0] != c.asked {
				t.Errorf("asked %d times, got %v, %v; want %d times and %v", asked, got, err, c.asked, c.err)
			}
		})
	}
}
