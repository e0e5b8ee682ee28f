// SPDX-License-Identifier: Apache-2.0

// Package kube runs a real Kubernetes API for a test: etcd and one or more
// kube-apiservers, built from their own sources by test/components, with a
// real kubectl beside them.
//
// There are no controllers, nodes or pods: what a test wants to exist it
// creates, down to the EndpointSlices and Node objects. Each cluster is its
// test's own and goes away with it. The package knows nothing of Fairlead's
// own packages.
package kube

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

// The ranges from which Services get addresses, and the address of the Service
// default/kubernetes in the first of them.
const (
	ServiceCIDR4 = "10.96.0.0/16"
	ServiceCIDR6 = "fd00:10:96::/112"
	apiServiceIP = "10.96.0.1"
)

// unroutable is what servers on a loopback address advertise in
// default/kubernetes, where the API allows no loopback address. It is from a
// range for documentation: nothing answers there.
var unroutable = netip.MustParseAddr("192.0.2.1")

// Cluster is an etcd and the API servers in front of it. The embedded server
// is the first.
type Cluster struct {
	*APIServer

	t         testing.TB
	dir       string // files that all servers share
	bin       string // folder of the programs
	ns        *lab.NetNS
	bind      netip.Addr
	advertise netip.Addr
	shared    uint16            // the port of all servers; 0: each has its own
	audit     string            // the servers' audit policy
	tokens    map[string]string // by user
	ca        *x509.Certificate
	key       *ecdsa.PrivateKey
	etcd      *lab.Process
	etcdURL   string
	servers   []*APIServer
}

// Start starts a cluster on a loopback address of the test's own network
// namespace, and returns when it is ready.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return start(&Cluster{t: t, bind: netip.MustParseAddr("127.0.0.1"), advertise: unroutable})
}

// StartAuditedAt is StartAt with servers that note every request, without its
// objects: reads, what was refused, and what is no resource, too.
func StartAuditedAt(t testing.TB, ns *lab.NetNS, addr netip.Addr) *Cluster {
	t.Helper()
	return start(&Cluster{t: t, ns: ns, bind: addr, advertise: addr, audit: auditEverything})
}

// StartAt starts a cluster in a network namespace, at an address that the
// namespace has. The servers stand in default/kubernetes with that address, as
// on a real control-plane node; whoever has a way to it can use the API.
func StartAt(t testing.TB, ns *lab.NetNS, addr netip.Addr) *Cluster {
	t.Helper()
	return start(&Cluster{t: t, ns: ns, bind: addr, advertise: addr})
}

// StartShared starts a cluster whose servers all listen at one address and port
// of the namespace, and advertise it, as replicas do that a cloud puts behind
// one address: the kernel gives each connection to one of those that run.
func StartShared(t testing.TB, ns *lab.NetNS, at netip.AddrPort) *Cluster {
	t.Helper()
	// A server that stops leaves connections that it has not accepted to the
	// others; they would be reset.
	ns.Sysctl(t, "net.ipv4.tcp_migrate_req", "1")
	return start(&Cluster{t: t, ns: ns, bind: at.Addr(), advertise: at.Addr(), shared: at.Port()})
}

func start(c *Cluster) *Cluster {
	c.t.Helper()
	c.dir = c.t.TempDir()
	c.audit = cmp.Or(c.audit, auditWrites)
	var err error
	if c.bin, err = programs(); err != nil {
		c.t.Fatal(err)
	}
	if err := c.writeFiles(); err != nil {
		c.t.Fatalf("prepare a cluster: %v", err)
	}
	c.startEtcd()
	c.APIServer = c.AddAPIServer()
	return c
}

// Stop kills all servers, as a power cut would. The end of the test does the
// same.
func (c *Cluster) Stop() {
	for _, server := range c.servers {
		server.StopAPIServer()
	}
	c.etcd.Kill()
}

// AddAPIServer starts one more server on the same etcd. It advertises the same
// address as the others, and has a port of its own unless all share one.
func (c *Cluster) AddAPIServer() *APIServer {
	c.t.Helper()
	a := &APIServer{cluster: c, name: fmt.Sprintf("apiserver-%d", len(c.servers)+1)}
	c.servers = append(c.servers, a)
	port := c.shared
	if port == 0 {
		port = c.freePort()
	}
	if err := a.prepare(port); err != nil {
		c.t.Fatalf("prepare %s: %v", a.name, err)
	}
	a.StartAPIServer()
	return a
}

func (c *Cluster) place() lab.Place { return lab.Place{NetNS: c.ns} }

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) program(name string) string { return filepath.Join(c.bin, name) }

// Program is the path of a program that `test/components/build.sh cluster`
// built, besides those that a cluster runs itself.
func (c *Cluster) Program(name string) string {
	c.t.Helper()
	path := c.program(name)
	if _, err := os.Stat(path); err != nil {
		c.t.Fatalf("find %s: %v; build it with `test/components/build.sh cluster`", name, err)
	}
	return path
}

func (c *Cluster) startEtcd() {
	c.t.Helper()
	c.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", c.freePort())
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", c.freePort())
	c.etcd = c.place().Start(c.t, c.program("etcd"),
		"--data-dir="+c.file("etcd"),
		"--unsafe-no-fsync", // the data need not outlive the machine
		"--log-level=warn",
		"--listen-client-urls="+c.etcdURL,
		"--advertise-client-urls="+c.etcdURL,
		"--listen-peer-urls="+peerURL,
		"--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=default="+peerURL)
}
