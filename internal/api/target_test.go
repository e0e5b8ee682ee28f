// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
)

func TestParseTarget(t *testing.T) {
	tests := []struct {
		in       string
		target   string
		protocol model.Protocol
	}{
		{"10.96.0.10:53", "10.96.0.10:53", model.TCP},
		{"10.96.0.10:53/UDP", "10.96.0.10:53", model.UDP},
		{"10.96.0.10:53/udp", "10.96.0.10:53", model.UDP},
		{"[fd00::10]:80/SCTP", "[fd00::10]:80", model.SCTP},
		{"[::ffff:10.96.0.10]:80", "10.96.0.10:80", model.TCP},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			target, protocol, err := ParseTarget(test.in)
			if err != nil || target.String() != test.target || protocol != test.protocol {
				t.Errorf("got %v %v %v", target, protocol, err)
			}
		})
	}
	for _, in := range []string{"", "10.96.0.10", "10.96.0.10:0", "10.96.0.10:65536", "fd00::10:80", "[fe80::1%eth0]:80", "web:80", "10.96.0.10:80/", "10.96.0.10:80/ICMP", ":80"} {
		t.Run(fmt.Sprintf("%q is refused", in), func(t *testing.T) {
			if target, protocol, err := ParseTarget(in); err == nil {
				t.Errorf("read as %v %v", target, protocol)
			}
		})
	}
}

func TestParseTargetSaysWhereThePortGoes(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3.4":         `"1.2.3.4" has no port: write ADDR:PORT[/PROTO], for example 1.2.3.4:80`,
		"1.2.3.4/UDP":     `"1.2.3.4/UDP" has no port: write ADDR:PORT[/PROTO], for example 1.2.3.4:80`,
		"fd00::10":        `"fd00::10" has no port: write ADDR:PORT[/PROTO], for example [fd00::10]:80`,
		"fe80::1%e\x1b[m": `"fe80::1%e\x1b[m" has no port: write ADDR:PORT[/PROTO], for example [fe80::1]:80`,
	} {
		if _, _, err := ParseTarget(in); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", in, err, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"10.96.0.10:53/UDP", "[fd00::10]:80", "[::ffff:1.2.3.4]:1", "x/y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		target, protocol, err := ParseTarget(in)
		if err != nil {
			return
		}
		if target.Addr().Is4In6() || !target.IsValid() || target.Port() == 0 {
			t.Fatalf("%q was read as %v", in, target)
		}
		written := fmt.Sprintf("%s/%s", netip.AddrPortFrom(target.Addr(), target.Port()), protocol)
		again, protocolAgain, err := ParseTarget(written)
		if err != nil || again != target || protocolAgain != protocol {
			t.Fatalf("%q was written as %q, which reads as %v %v %v", in, written, again, protocolAgain, err)
		}
	})
}
