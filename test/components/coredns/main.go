// SPDX-License-Identifier: Apache-2.0

// Command coredns is CoreDNS with the plugins that a test cluster's Corefiles
// name, its own and those that upstream's tests bring. The program that
// upstream ships links the clients of three clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// A query passes the plugins in this order.
	dnsserver.Directives = []string{"bind", "ready", "log", "errors", "cache", "hosts", "kubernetes"}
	coremain.Run()
}
