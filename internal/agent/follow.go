// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// followBuffer holds the announcements of thousands of changes at once, as
// when a device goes that had many addresses.
const followBuffer = 1 << 20

// followRetry is how long to wait before changes are followed again.
const followRetry = time.Second

// followKernel calls changed once it can miss nothing more, and after every
// change that the kernel announces to the groups, with what it says, until ctx
// ends. An error says that changes may have been missed from here on, as when
// the kernel had more to tell than it could keep.
func followKernel(parent context.Context, changed func([]syscall.NetlinkMessage), groups ...uint) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return fmt.Errorf("ask the kernel to announce changes: %w", err)
	}
	context.AfterFunc(ctx, s.Close)
	// Beyond net.core.rmem_max.
	if err := s.SetReceiveBufferSize(followBuffer, true); err != nil {
		return fmt.Errorf("make room for what the kernel announces: %w", err)
	}
	changed(nil)
	for {
		messages, _, err := s.Receive()
		if parent.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("hear what the kernel announces: %w", err)
		}
		changed(messages)
	}
}

// keepFollowing follows until ctx ends. It tells heard of every change, with
// nil, and whenever changes may have been missed.
func keepFollowing(ctx context.Context, follow func(ctx context.Context, changed func()) error, heard func(error)) error {
	for {
		err := follow(ctx, func() { heard(nil) })
		if ctx.Err() != nil {
			return nil
		}
		heard(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followRetry):
		}
	}
}
