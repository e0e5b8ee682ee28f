// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// closeWait is how many seconds the kernel's connection tracking keeps a TCP
// connection that one side has ended. By default that is a minute: behind a
// node that rewrites addresses, what the other side sends later is lost.
const closeWait = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"

// closeWaitRefresh is how often the setting is looked at: it appears when
// somebody's rules first need connection tracking.
const closeWaitRefresh = 10 * time.Second

const closeWaitShort trouble = "connections that one side has ended may be forgotten early"

// keepCloseWait sees to it that the setting in a file is at least as long, until
// ctx ends; 0 leaves it alone. kube-proxy does so, and a node must not lose it
// with kube-proxy.
func keepCloseWait(ctx context.Context, file string, least time.Duration, t *troubles) {
	if least == 0 {
		return
	}
	tick := time.NewTicker(closeWaitRefresh)
	defer tick.Stop()
	for {
		before, err := raiseCloseWait(file, least)
		t.note(closeWaitShort, err)
		if before != 0 {
			t.log.Info("connections that one side has ended are kept for longer", "before", before, "now", least,
				"setting", "net.netfilter.nf_conntrack_tcp_timeout_close_wait")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// raiseCloseWait returns what the setting was if it was shorter, else 0. A
// kernel that tracks no connections has no such file.
func raiseCloseWait(file string, least time.Duration) (before time.Duration, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read how long connections are kept: %w", err)
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read how long connections are kept: %w", err)
	}
	have := time.Duration(seconds) * time.Second
	if have >= least {
		return 0, nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(int(least/time.Second))), 0); err != nil {
		return 0, fmt.Errorf("set how long connections are kept: %w (set net.netfilter.nf_conntrack_tcp_timeout_close_wait to %d yourself, or give --conntrack-tcp-timeout-close-wait=0)", err, int(least/time.Second))
	}
	return have, nil
}
