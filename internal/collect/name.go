// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"net"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nameHere finds out which node this is, unless that is known. A machine that is
// none of the cluster's nodes is not looked at.
func (c *collector) nameHere(ctx context.Context) {
	here := c.cfg.Here
	if here == nil || here.Node != "" {
		return
	}
	host, _ := os.Hostname() // then it has no name
	named := *here
	named.Node = strings.ToLower(host)
	c.cfg.Here = &named
	if c.api == nil {
		return
	}
	nodes, err := c.api.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	name, found := ownName(nodes.Items, named.Node, ownAddresses())
	named.Node = name
	if !found {
		c.cfg.Here = nil
	}
}

// ownName is the node that has one of our addresses, or our name.
func ownName(nodes []corev1.Node, host string, own map[string]bool) (name string, found bool) {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP && own[a.Address] {
				return n.Name, true
			}
		}
	}
	for _, n := range nodes {
		if n.Name == host || n.Labels[corev1.LabelHostname] == host {
			return n.Name, true
		}
	}
	return "", false
}

// ownAddresses are those of this machine's devices, but loopback.
func ownAddresses() map[string]bool {
	own := map[string]bool{}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() {
			own[ip.IP.String()] = true
		}
	}
	return own
}
