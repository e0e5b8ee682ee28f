// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

// moment is how long each way is measured at a time.
const moment = 2 * time.Second

// Clock: what a client outside of the node gets through a NodePort, in one run
// and the same namespaces: past any Service, through kube-proxy's nftables
// rules, and through Fairlead. Bulk is one TCP connection that only sends;
// connections are made and closed one after the other.
//
// Budget: no way through Fairlead is slower than through kube-proxy.
func BenchmarkNodePort(b *testing.B) {
	for _, local := range []bool{true, false} {
		name, f := "remote", families[0]
		to := f.remote
		if local {
			name, to = "local", f.local
		}
		b.Run(name, func(b *testing.B) {
			w := newWire(b)
			at := lab.Place{NetNS: w.pod}
			if !local {
				at.NetNS = w.other
			}
			end := netip.AddrPortFrom(to, backend.Port())
			at.StartRole(b, "sink", end.String()).ReadLine()
			port := netip.AddrPortFrom(f.node, nodePort)
			b.Run("direct", func(b *testing.B) { w.compare(b, end) })
			// kube-proxy's rules, and then no rules.
			b.Run("kube-proxy", func(b *testing.B) {
				w.kubeProxy(b, f, end)
				w.compare(b, port)
			})
			lab.Place{NetNS: w.node}.Run(b, "nft", "flush", "ruleset")
			b.Run("fairlead", func(b *testing.B) {
				w.serve(b, local)
				w.compare(b, port)
			})
		})
	}
}

func (w *wire) compare(b *testing.B, to netip.AddrPort) {
	var bytes, connections float64
	for range b.N {
		bytes += w.count(b, "bulk", to)
		connections += w.count(b, "connections", to)
	}
	seconds := moment.Seconds() * float64(b.N)
	b.ReportMetric(bytes*8/1e9/seconds, "Gbit/s")
	b.ReportMetric(connections/seconds, "connections/s")
	b.ReportMetric(0, "ns/op")
}

// count runs a client for a moment and returns how much it got done.
func (w *wire) count(b *testing.B, role string, to netip.AddrPort) float64 {
	client := lab.Place{NetNS: w.client}.StartRole(b, role, to.String())
	if err := client.Wait(); err != nil {
		b.Fatalf("%v: %s", err, client.Stderr())
	}
	var n float64
	if _, err := fmt.Sscan(client.Stdout(), &n); err != nil {
		b.Fatalf("%v: %s", err, client.Stdout())
	}
	return n
}

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 1ms}
`

const nodePortObjects = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {type: NodePort, ports: [{port: 80, targetPort: %[2]d, nodePort: %[3]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [%[1]s], conditions: {ready: true}}]
---
apiVersion: v1
kind: Node
metadata: {name: node}
`

// kubeProxy runs the real one on the node, against a real API server, until it
// serves the NodePort.
func (w *wire) kubeProxy(b *testing.B, f family, backend netip.AddrPort) {
	cluster := kube.StartAt(b, w.node, f.node)
	cluster.Apply(fmt.Sprintf(nodePortObjects, backend.Addr(), backend.Port(), nodePort))
	// kube-proxy begins when its node has addresses.
	cluster.Kubectl("patch", "node", "node", "--subresource=status", "-p",
		fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, f.node))
	config := filepath.Join(b.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(kubeProxyConfig, cluster.Kubeconfig)), 0o600); err != nil {
		b.Fatal(err)
	}
	lab.Place{NetNS: w.node}.Start(b, cluster.Program("kube-proxy"), "--config="+config)
	client := lab.Place{NetNS: w.client}.StartRole(b, "ready", netip.AddrPortFrom(f.node, nodePort).String())
	if err := client.Wait(); err != nil {
		b.Fatalf("kube-proxy does not serve the NodePort: %s", client.Stderr())
	}
}

// sinkRole takes connections and what they send.
func sinkRole(args []string) error {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(io.Discard, conn)
		}()
	}
}

// bulkRole sends as much as it can, and prints how many bytes that was.
func bulkRole(args []string) error {
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(moment)); err != nil {
		return err
	}
	sent, b := 0, make([]byte, 128<<10)
	for {
		n, err := conn.Write(b)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Println(sent)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// connectionsRole connects and closes, and prints how often.
func connectionsRole(args []string) error {
	made := 0
	for end := time.Now().Add(moment); time.Now().Before(end); made++ {
		conn, err := net.Dial("tcp", args[0])
		if err != nil {
			return err
		}
		// No port stays behind in TIME_WAIT.
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
	fmt.Println(strconv.Itoa(made))
	return nil
}

// readyRole tries to connect until that goes well.
func readyRole(args []string) error {
	for end := time.Now().Add(25 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", args[0], time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}
