// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"encoding/json"
	"net"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// tellServers passes on where the API servers say that they are: a recorder that
// reached them through a Service would lose its way when that Service does,
// which is what it is there to record.
func (f *follower) tellServers(o object) {
	if f.servers == nil || f.target.Group != discoveryv1.GroupName || o.namespace != "default" {
		return
	}
	meta, _ := o.content["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	if text(labels, discoveryv1.LabelServiceName) != "kubernetes" {
		return
	}
	if at := addressesOf(o.content); len(at) > 0 {
		f.servers(at)
	}
}

// addressesOf are those of an EndpointSlice's endpoints that are not said to be
// unready, at each of its ports.
func addressesOf(content map[string]any) (all []netip.AddrPort) {
	endpoints, _ := content["endpoints"].([]any)
	ports, _ := content["ports"].([]any)
	for _, e := range endpoints {
		endpoint, _ := e.(map[string]any)
		conditions, _ := endpoint["conditions"].(map[string]any)
		if ready, said := conditions["ready"].(bool); said && !ready {
			continue
		}
		addresses, _ := endpoint["addresses"].([]any)
		for _, a := range addresses {
			for _, p := range ports {
				if at, ok := addressOf(a, p); ok {
					all = append(all, at)
				}
			}
		}
	}
	return all
}

func addressOf(address, port any) (netip.AddrPort, bool) {
	host, _ := address.(string)
	fields, _ := port.(map[string]any)
	number, _ := fields["port"].(json.Number)
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, number.String()))
	return at, err == nil
}
