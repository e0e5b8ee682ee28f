// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"flag"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/adapter/adaptertest"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRecorded reads what the real kube-proxy wrote; test/impl records it anew.
func TestRecorded(t *testing.T) {
	for _, file := range []string{"kube-proxy-v1.35.4-ipv4.txt", "kube-proxy-v1.35.4-ipv6.txt"} {
		t.Run(file, func(t *testing.T) { adaptertest.Golden(t, file, Parse, *update) })
	}
}

func TestWhatIsWritten(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"before Kubernetes 1.24 a NodePort led to KUBE-XLB": {`*nat
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m comment --comment "shop/local" -m tcp --dport 30443 -j KUBE-XLB-4MOXV5YISAWHCCOH
-A KUBE-SVC-4MOXV5YISAWHCCOH -j KUBE-SEP-A
-A KUBE-SVC-4MOXV5YISAWHCCOH -j KUBE-SEP-B
-A KUBE-XLB-4MOXV5YISAWHCCOH -s 10.244.0.0/16 -m comment --comment "Redirect pods" -j KUBE-SVC-4MOXV5YISAWHCCOH
-A KUBE-XLB-4MOXV5YISAWHCCOH -m addrtype --src-type LOCAL -j KUBE-SVC-4MOXV5YISAWHCCOH
-A KUBE-XLB-4MOXV5YISAWHCCOH -m comment --comment "Balancing rule 0" -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.3:8443
-A KUBE-SEP-B -p tcp -m tcp -j DNAT --to-destination 10.244.2.3:8443
COMMIT
`, `iptables-save [IPv4]
4: 0.0.0.0:30443/TCP internal NodePort shop/local: -> 10.244.1.3:8443=active 10.244.2.3:8443=active
4: 0.0.0.0:30443/TCP external NodePort shop/local: -> 10.244.1.3:8443=active
`},
		"in IPVS mode iptables hold no Services": {`*nat
:KUBE-SERVICES - [0:0]
-A KUBE-SERVICES -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
COMMIT
`, "iptables-save [IPv4]\nsilent: kube-proxy runs in IPVS mode: record `ipvsadm -Sn` instead\n"},
		"the other iptables hold nothing": {`*nat
:PREROUTING ACCEPT [0:0]
COMMIT
`, "iptables-save [IPv4]\nsilent: there are no rules in KUBE-SERVICES: kube-proxy may use another mode, or the other of iptables-nft-save and iptables-legacy-save\n"},
		"without nat there is nothing to see": {"*filter\nCOMMIT\n",
			"iptables-save [IPv4]\nsilent: there is no table nat: record `iptables-save` without -t\n"},
		"a rule that an older iptables cannot write down is no backend": {`*nat
-A KUBE-SERVICES -d 10.96.1.1/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT [unsupported revision]
COMMIT
`, `iptables-save [IPv4]
2: 10.96.1.1:80/TCP all ClusterIP default/web:http ->
problem in line 4: the rule has no address to go to: "-A KUBE-SEP-A -p tcp -m tcp -j DNAT [unsupported revision]"
problem in line 3: KUBE-SVC-X jumps to KUBE-SEP-A, which leads nowhere
`},
		"a chain that leads nowhere is named": {`*nat
-A KUBE-SERVICES -d 10.96.1.1/32 -p tcp -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-SVC-X
-A KUBE-SVC-X -j KUBE-SEP-GONE
-A KUBE-SVC-X -m comment --comment "open
COMMIT
`, `iptables-save [IPv4]
2: 10.96.1.1:80/TCP all ClusterIP default/web:http ->
problem in line 4: the rule cannot be read: "-A KUBE-SVC-X -m comment --comment \"open"
problem in line 3: KUBE-SVC-X jumps to KUBE-SEP-GONE, which leads nowhere
`},
	} {
		t.Run(name, func(t *testing.T) {
			if have := adaptertest.Text(Parse(strings.NewReader(test.text))); have != test.want {
				t.Errorf("have\n%s\nwant\n%s", have, test.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) { adaptertest.Fuzz(f, Parse) }
