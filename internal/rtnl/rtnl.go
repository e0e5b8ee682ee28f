// SPDX-License-Identifier: Apache-2.0

// Package rtnl lists what the kernel tells by rtnetlink, whole. It knows
// nothing of what is listed.
package rtnl

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// tries bound how often a list is asked for that changes all the time.
const tries = 5

// Whole asks again when something changed while the kernel answered: such an
// answer is neither what was nor what is. After some tries it returns
// netlink.ErrDumpInterrupted with the last one.
func Whole[T any](ask func() ([]T, error)) (answer []T, err error) {
	for range tries {
		if answer, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return answer, err
}
