// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// node is one on which an API server and a Service proxy run.
type node struct {
	*kube.Cluster
	*objects
	place lab.Place
	flags []string // by which the program finds the proxy
}

// newNode makes a node with addresses, and an API server on it.
func newNode(t *testing.T) *node {
	t.Helper()
	ns := lab.NewNetNS(t, here)
	outside := lab.NewNetNS(t, "outside")
	lab.Veth(t, lab.End{NetNS: ns, Link: "eth0", Addrs: []string{here4 + "/24", here6 + "/64"}},
		lab.End{NetNS: outside, Link: "eth0", Addrs: []string{"192.0.2.9/24", "2001:db8::9/64"}})
	n := &node{Cluster: kube.StartAt(t, ns, netip.MustParseAddr(here4)), place: lab.Place{NetNS: ns}}
	n.objects = &objects{t: t, client: n.Client}
	n.nodes()
	return n
}

const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: ` + here + `
detectLocalMode: ClusterCIDR
clusterCIDR: 10.244.0.0/16,fd00:10:244::/48
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// withKubeProxy has the real kube-proxy serve a node, in one of its modes.
func withKubeProxy(t *testing.T, mode string) *node {
	t.Helper()
	n := newNode(t)
	config := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, mode, n.Kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	n.place.Start(t, n.Program("kube-proxy"), "--config="+config)
	nowhere := filepath.Join(t.TempDir(), "none")
	n.flags = []string{"--socket", nowhere, "--pin-path", nowhere}
	return n
}

// withFairlead has the real agent serve a node.
func withFairlead(t *testing.T) (*node, *rig.Agent) {
	t.Helper()
	n := newNode(t)
	a := rig.NewAgent(t, here, n.place.NetNS, "")
	n.place = a.Place()
	a.Launch(t, "--kubeconfig", n.Kubeconfig)
	a.Ready(t)
	n.flags = []string{"--socket", a.Socket, "--pin-path", a.Pins}
	return n, a
}

// run runs the program on the node, and returns what it printed and its status.
func (n *node) run(t *testing.T, args ...string) (printed string, status int) {
	t.Helper()
	// What is said last of a flag holds, so that args may say another interval.
	args = slices.Concat(args[:1], []string{"--probe=false", "--interval", "500ms", "--kubeconfig", n.Kubeconfig}, n.flags, args[1:])
	p := n.place.Start(t, rig.Program(), args...)
	err := p.Wait()
	if exit, ended := errors.AsType[*exec.ExitError](err); ended {
		status, err = exit.ExitCode(), nil
	}
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return p.Stdout() + p.Stderr(), status
}

// finds wants a doctor on the node to say something, or, for "", that all is
// well. What a proxy has yet to do takes a moment.
func (n *node) finds(t *testing.T, wants ...string) {
	t.Helper()
	rig.Eventually(t, func() error {
		printed, status := n.run(t, "doctor")
		want := 1
		if len(wants) == 0 {
			want = 0
		}
		if status != want {
			return fmt.Errorf("the status is %d, not %d:\n%s", status, want, printed)
		}
		for _, want := range wants {
			if !strings.Contains(printed, want) {
				return fmt.Errorf("it does not say %q:\n%s", want, printed)
			}
		}
		return nil
	})
}

// serve makes the objects of a set the only ones, and returns once the API has
// them.
func (n *node) serve(s set) (namespace string) {
	n.namespace(s.name)
	for _, w := range s.workloads {
		n.create(s.name, w)
	}
	return s.name
}
