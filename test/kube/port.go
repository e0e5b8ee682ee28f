// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
)

// Servers get ports from a range that is neither that of NodePorts nor the one
// from which the kernel gives ports to clients, so that a stopped server finds
// its port free again.
const (
	firstPort = 20000
	lastPort  = 29999
	portTries = 100
)

// freePort returns a port on which nothing listens at present.
func (c *Cluster) freePort() uint16 {
	c.t.Helper()
	for range portTries {
		port := uint16(firstPort + rand.IntN(lastPort-firstPort+1))
		if c.isFree(port) {
			return port
		}
	}
	c.t.Fatalf("none of %d ports from %d to %d is free", portTries, firstPort, lastPort)
	return 0
}

// isFree tries the port on every address, since some of the servers listen on
// one of their own and some on loopback.
func (c *Cluster) isFree(port uint16) (free bool) {
	try := func() {
		listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp",
			netip.AddrPortFrom(netip.IPv6Unspecified(), port).String())
		if err != nil {
			return
		}
		listener.Close()
		free = true
	}
	if c.ns == nil {
		try()
		return free
	}
	c.ns.Do(try)
	return free
}
