// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, fails string }{
		{"nothing was tried", `[]`, ""},
		{"a result", `[{"purpose":"peer","target":"10.0.0.1:80/TCP","from":"host","outcome":"ok"}]`, ""},
		{"no JSON is one clear line", `fairlead: command not found`, "read the results of a probe"},
		{"half an output is one clear line", `[{"purpose":"peer"`, "read the results of a probe"},
		{"a result without an outcome is none", `[{"purpose":"peer","target":"10.0.0.1:80/TCP","from":"host"}]`, "number 1 has no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("it says %v, want %q", err, c.fails)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`[{"purpose":"api-service","target":"10.96.0.1:443/TCP","from":"host","outcome":"refused","step":"connect","errno":"ECONNREFUSED","because":["it"]}]`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		results, err := Parse(text)
		if err != nil {
			return
		}
		Judge(results, Around{})
		again, err := json.Marshal(results)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Parse(again)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if diff := cmp.Diff(results, second); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzReadName(f *testing.F) {
	query := question(7, "kubernetes.default.svc.cluster.local")
	answered := bytes.Clone(query)
	answered[2] |= 0x80
	f.Add(answered)
	f.Add(query)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, answer []byte) {
		text, err := readName(answer, query)
		if (err == nil) != (text != "") {
			t.Errorf("%q, %v", text, err)
		}
	})
}

func FuzzReadNotice(f *testing.F) {
	f.Add([]byte{111, 0, 0, 0, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if text, sender := readNotice(b); text == "" && sender.IsValid() && len(b) < noticeSize {
			t.Errorf("a sender %s without a notice", sender)
		}
	})
}

func TestReadNotice(t *testing.T) {
	head := func(origin, kind, code byte) []byte {
		return []byte{111, 0, 0, 0, origin, kind, code, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	}
	v4 := []byte{2, 0, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	v6 := append([]byte{10, 0, 0, 0, 0, 0, 0, 0}, append(netip.MustParseAddr("2001:db8::1").AsSlice(), 0, 0, 0, 0)...)
	for _, c := range []struct {
		name         string
		data         []byte
		text, sender string
	}{
		{"a port that is unreachable by IPv4", append(head(2, 3, 3), v4...), portUnreachable, "192.0.2.1"},
		{"a port that is unreachable by IPv6", append(head(3, 1, 4), v6...), portUnreachable, "2001:db8::1"},
		{"a host that is unreachable by IPv6", append(head(3, 1, 3), v6...), hostUnreachable, "2001:db8::1"},
		{"another kind is given by its numbers", append(head(2, 11, 0), v4...), "type 11 code 0", "192.0.2.1"},
		{"an error of this machine is no notice", append(head(1, 0, 0), v4...), "", "invalid IP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if text, sender := readNotice(c.data); text != c.text || sender.String() != c.sender {
				t.Errorf("%q from %s, want %q from %s", text, sender, c.text, c.sender)
			}
		})
	}
}

func TestQuestion(t *testing.T) {
	want := append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, "\x03foo\x02ab\x00\x00\x01\x00\x01"...)
	if got := question(7, "foo.ab."); !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestPlan(t *testing.T) {
	addr := func(s string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(s)} }
	many := make([]netip.AddrPort, 20)
	for i := range many {
		many[i] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)
	}
	w := Wanted{
		API:      []Service{{Name: "default/kubernetes", Protocol: "TCP", Addresses: addr("10.96.0.1:443")}},
		DNS:      []Service{{Name: "kube-system/kube-dns", Protocol: "UDP", Addresses: addr("10.96.0.10:53"), Backends: addr("10.0.0.9:53")}},
		DNSLocal: addr("169.254.20.10:53"),
		Others: []Service{
			{Name: "default/empty", Protocol: "TCP", Addresses: addr("10.96.0.2:80")},
			{Name: "default/datagrams", Protocol: "UDP", Addresses: addr("10.96.0.3:80"), Backends: many},
			{Name: "default/web", Protocol: "TCP", Addresses: addr("10.96.0.4:80"), Backends: many},
		},
		Peers: many,
	}
	counts := map[Purpose]int{}
	for _, target := range Plan(w) {
		counts[target.Purpose]++
		if asks := strings.HasPrefix(string(target.Purpose), "dns-"); asks != (target.Name == "kubernetes.default.svc.cluster.local") {
			t.Errorf("%s is asked for %q", target.Purpose, target.Name)
		}
	}
	want := map[Purpose]int{
		Gateway: 1, APIService: 1, DNSService: 1, DNSDirect: 1, DNSLocal: 1,
		Frontend: 1, Backend: maxBackends, Peer: maxPeers,
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("a plan is bounded, and leaves out what nobody can answer: (- wanted, + planned)\n%s", diff)
	}
	if n := w.BackendCounts()["default/web"]; n != len(many) {
		t.Errorf("%d backends are counted, want those that are not tried, too", n)
	}
}
