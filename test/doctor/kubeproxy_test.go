// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/test/lab"
)

// TestKubeProxy has the doctor look at the real kube-proxy in each of its modes,
// well and with rules that somebody took away. Each fault stays: kube-proxy does
// not see it for an hour.
func TestKubeProxy(t *testing.T) {
	for i, mode := range []struct {
		name   string
		faults []fault
	}{{"iptables", iptablesFaults()}, {"nftables", nftablesFaults()}} {
		t.Run(mode.name, func(t *testing.T) {
			n := withKubeProxy(t, mode.name)
			if *update {
				// Each mode keeps every other set; it serves all of them below.
				n.keep(t, "kube-proxy", func(set int) bool { return set%2 == i })
			}
			n.serveAll()
			n.finds(t)
			for _, f := range mode.faults {
				t.Run(f.name, func(t *testing.T) {
					f.do(t, n)
					n.finds(t, f.finds)
				})
			}
		})
	}
}

// fault is what somebody does to a node, and what the doctor says then.
type fault struct {
	name  string
	do    func(*testing.T, *node)
	finds string
}

// says is the line of a finding in the kernel of the node.
func says(check, service string) string {
	return check + " · " + service + " · layer kernel · on " + here
}

func iptablesFaults() []fault {
	return []fault{
		{"a Service's chain is flushed", func(t *testing.T, n *node) {
			n.tool(t, "iptables", "-t", "nat", "-F", n.jump(t, "KUBE-SERVICES", `"cluster-ip/web:http cluster IP"`))
		}, says("backends-missing", "cluster-ip/web")},
		{"the rule of an address is deleted", func(t *testing.T, n *node) {
			number, _ := n.rule(t, "KUBE-SERVICES", `"cluster-ip/web-v2:http cluster IP"`)
			n.tool(t, "iptables", "-t", "nat", "-D", "KUBE-SERVICES", strconv.Itoa(number))
		}, says("frontend-missing", "cluster-ip/web-v2")},
		{"the rule of an endpoint is deleted", func(t *testing.T, n *node) {
			chain := n.jump(t, "KUBE-SERVICES", `"external-ip/mail:http cluster IP"`)
			number, _ := n.rule(t, chain, "--probability")
			n.tool(t, "iptables", "-t", "nat", "-D", chain, strconv.Itoa(number))
		}, says("backends-incomplete", "external-ip/mail")},
		{"an endpoint's rule leads to another address", func(t *testing.T, n *node) {
			chain := n.jump(t, n.jump(t, "KUBE-SERVICES", `"zones/far:http cluster IP"`), "--probability")
			number, _ := n.rule(t, chain, "DNAT")
			n.tool(t, "iptables", "-t", "nat", "-R", chain, strconv.Itoa(number), "-p", "tcp", "-j", "DNAT", "--to-destination", "10.244.9.9:8080")
		}, says("backends-stale", "zones/far")},
	}
}

func nftablesFaults() []fault {
	return []fault{
		{"a Service's chain is flushed", func(t *testing.T, n *node) {
			n.tool(t, "nft", "flush", "chain", "ip", "kube-proxy", n.chain(t, "service", "cluster-ip/web/tcp/http"))
		}, says("backends-missing", "cluster-ip/web")},
		{"the element of an address is deleted", func(t *testing.T, n *node) {
			n.tool(t, "nft", "delete", "element", "ip", "kube-proxy", "service-ips", "{ "+n.clusterIP("cluster-ip", "web-v2")+" . tcp . 80 }")
		}, says("frontend-missing", "cluster-ip/web-v2")},
		{"an endpoint's chain leads to another address", func(t *testing.T, n *node) {
			chain := n.chain(t, "endpoint", "external-ip/mail/tcp/http__10.244.")
			n.tool(t, "nft", "flush", "chain", "ip", "kube-proxy", chain)
			n.tool(t, "nft", "add", "rule", "ip", "kube-proxy", chain, "meta", "l4proto", "tcp", "dnat", "to", "10.244.9.9:8080")
		}, says("backends-stale", "external-ip/mail")},
	}
}

// tool runs a program on the node.
func (n *node) tool(t *testing.T, argv ...string) string {
	t.Helper()
	return lab.Place{NetNS: n.place.NetNS}.Run(t, argv[0], argv[1:]...)
}

// rule finds the first rule of a chain that holds a text, and its number.
func (n *node) rule(t *testing.T, chain, text string) (number int, rule string) {
	t.Helper()
	for line := range strings.Lines(n.tool(t, "iptables-save", "-t", "nat")) {
		if !strings.HasPrefix(line, "-A "+chain+" ") {
			continue
		}
		number++
		if strings.Contains(line, text) {
			return number, line
		}
	}
	t.Fatalf("no rule of %s has %q", chain, text)
	return 0, ""
}

// jump is the chain to which a rule leads.
func (n *node) jump(t *testing.T, chain, text string) string {
	t.Helper()
	_, rule := n.rule(t, chain, text)
	_, to, _ := strings.Cut(rule, " -j ")
	return strings.Fields(to)[0]
}

// chain is the chain of nftables whose name begins and goes on like this around
// its hash.
func (n *node) chain(t *testing.T, kind, name string) string {
	t.Helper()
	for line := range strings.Lines(n.tool(t, "nft", "list", "chains", "ip")) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "chain" && strings.HasPrefix(words[1], kind+"-") && strings.Contains(words[1], "-"+name) {
			return words[1]
		}
	}
	t.Fatalf("no chain of kube-proxy is %s-…-%s", kind, name)
	return ""
}

func (n *node) clusterIP(namespace, name string) string {
	service, err := n.client.CoreV1().Services(namespace).Get(n.ctx(), name, metav1.GetOptions{})
	n.must(err)
	return service.Spec.ClusterIP
}
