// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
)

func TestNodePortAddresses(t *testing.T) {
	node := &Node{Name: "n1", Addresses: addrs("192.168.0.1", "192.168.1.1", "fd01::1", "fd01::2", "127.0.0.1")}
	for _, c := range []struct {
		name   string
		values []string
		served string
	}{
		{"without values, every address of the node (R24)", nil, "192.168.0.1 192.168.1.1 fd01::1 fd01::2"},
		{"primary is the first address of each family (R24)", []string{"primary"}, "192.168.0.1 fd01::1"},
		{"a CIDR limits its own family only (R24)", []string{"192.168.1.0/24"}, "192.168.1.1 fd01::1 fd01::2"},
		{"each family has its own CIDRs (R24)", []string{"192.168.1.9/24", "fd01::2/128"}, "192.168.1.1 fd01::2"},
		{"a /0 CIDR is all of its family (R24)", []string{"0.0.0.0/0", "fd01::2/128"}, "192.168.0.1 192.168.1.1 fd01::2"},
		{"a CIDR of loopback serves nobody (R24)", []string{"127.0.0.0/8"}, "fd01::1 fd01::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := ParseNodePortAddresses(c.values)
			if err != nil {
				t.Fatal(err)
			}
			var served []string
			for _, a := range append(addrs("::1", "192.168.1.77"), node.Addresses...) {
				if n.Serve(node, a) {
					served = append(served, a.String())
				}
			}
			if got := strings.Join(served, " "); got != c.served {
				t.Errorf("served on %s, want %s", got, c.served)
			}
			again, err := ParseNodePortAddresses(strings.FieldsFunc(n.String(), func(r rune) bool { return r == ',' }))
			if err != nil || again.String() != n.String() {
				t.Errorf("%q is read back as %q, %v", n, again, err)
			}
		})
	}
	for _, values := range [][]string{{"10.0.0.1"}, {""}, {"primary", "10.0.0.0/8"}, {"::ffff:10.0.0.0/104"}} {
		t.Run("refuses "+strings.Join(values, ","), func(t *testing.T) {
			n, err := ParseNodePortAddresses(values)
			if err == nil || !strings.HasPrefix(err.Error(), "--nodeport-addresses: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("read as %q, error %v", n, err)
			}
		})
	}
}
