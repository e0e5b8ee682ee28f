// SPDX-License-Identifier: Apache-2.0

package impl

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

var update = flag.Bool("update", false, "write what was recorded to the testdata of the adapters")

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: node
detectLocalMode: ClusterCIDR
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// addresses of the node, and of the balancer in front of shop/local.
const (
	node4, node6         = "192.0.2.1", "2001:db8::1"
	balancer4, balancer6 = "203.0.113.10", "2001:db8:9::10"
)

// proxied is a node on which a real kube-proxy serves the objects.
type proxied struct {
	*kube.Cluster
	node   *lab.NetNS
	events []journal.Event // the objects, once they were asked for
}

func newProxied(t *testing.T, mode string) *proxied {
	t.Helper()
	node := lab.NewNetNS(t, "node")
	outside := lab.NewNetNS(t, "outside")
	lab.Veth(t, lab.End{NetNS: node, Link: "eth0", Addrs: []string{node4 + "/24", node6 + "/64"}},
		lab.End{NetNS: outside, Link: "eth0", Addrs: []string{"192.0.2.9/24", "2001:db8::9/64"}})
	p := &proxied{Cluster: kube.StartAt(t, node, netip.MustParseAddr(node4)), node: node}
	objects, err := os.ReadFile("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p.Kubectl("create", "namespace", "shop")
	p.Apply(string(objects))
	p.status("node/node", fmt.Sprintf(`{"addresses":[{"type":"InternalIP","address":%q},{"type":"InternalIP","address":%q}]}`, node4, node6))
	p.status("service/local", fmt.Sprintf(`{"loadBalancer":{"ingress":[{"ip":%q},{"ip":%q}]}}`, balancer4, balancer6))
	config := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, mode, p.Kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	lab.Place{NetNS: node}.Start(t, p.Program("kube-proxy"), "--config="+config)
	return p
}

func (p *proxied) status(object, status string) {
	p.Kubectl("patch", object, "--namespace=shop", "--subresource=status", "-p", `{"status":`+status+`}`)
}

// record runs a command on the node until its output holds the address of a
// Service's endpoint: kube-proxy writes all Services at once.
func (p *proxied) record(t *testing.T, endpoint string, command ...string) string {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		process := lab.Place{NetNS: p.node}.Start(t, command[0], command[1:]...)
		err := process.Wait()
		if text := process.Stdout(); err == nil && strings.Contains(text, endpoint) {
			return text
		}
		if time.Now().After(deadline) {
			t.Fatalf("kube-proxy has not written %s: %v %s", endpoint, err, process.Stderr())
		}
		time.Sleep(100 * time.Millisecond)
	}
}
