// SPDX-License-Identifier: Apache-2.0

package packet_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// anyPacket draws a packet that Bytes can write.
func anyPacket(t *rapid.T) packet.Packet {
	size := rapid.SampledFrom([]int{4, 16}).Draw(t, "address size")
	endpoint := func(name string) netip.AddrPort {
		b := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, name)
		addr, _ := netip.AddrFromSlice(b)
		return netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, name+" port"))
	}
	p := packet.Packet{
		Source: endpoint("source"), Target: endpoint("target"),
		Protocol: rapid.SampledFrom([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP}).Draw(t, "protocol"),
		TTL:      rapid.Uint8Min(1).Draw(t, "ttl"), DontFragment: true,
		Payload: rapid.SliceOfN(rapid.Byte(), 1, 1500).Draw(t, "payload"), Checksum: packet.Right,
	}
	if size == 4 {
		p.DontFragment = rapid.Bool().Draw(t, "don't fragment")
		p.ID = uint32(rapid.Uint16().Draw(t, "id"))
	}
	if p.Protocol == unix.IPPROTO_TCP {
		p.Flags = rapid.Uint8().Draw(t, "flags")
		p.Seq, p.Ack = rapid.Uint32().Draw(t, "seq"), rapid.Uint32().Draw(t, "ack")
	}
	return p
}

func TestBytesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyPacket(t)
		got, err := packet.Parse(want.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, addresses); diff != "" {
			t.Errorf("read (-) otherwise than written (+):\n%s", diff)
		}
	})
}

var addresses = cmpopts.EquateComparable(netip.AddrPort{})

func TestAnyChangedByteIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPacket(t)
		b := p.Bytes()
		header := 20
		if !p.V4() {
			header = 40
		}
		i := rapid.IntRange(header, len(b)-1).Draw(t, "byte")
		b[i] ^= rapid.ByteMin(1).Draw(t, "by")
		got, err := packet.Parse(b)
		// Over IPv4 a datagram without a checksum is none that is wrong.
		if left := p.V4() && p.Protocol == unix.IPPROTO_UDP && b[header+6] == 0 && b[header+7] == 0; left {
			return
		}
		if err == nil && got.Checksum != packet.Wrong {
			t.Errorf("with byte %d changed to %#x the packet is read as %s", i, b[i], got)
		}
	})
}

func TestWhatKernelsSend(t *testing.T) {
	client, server := lab.NewNetNS(t, "client"), lab.NewNetNS(t, "server")
	lab.Veth(t,
		lab.End{NetNS: client, Link: "eth0", Addrs: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		lab.End{NetNS: server, Link: "eth0", Addrs: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	tap := packet.NewTap(t, server, "eth0")

	for _, c := range []struct {
		name      string
		offloads  lab.Offloads
		want      packet.Checksum
		fragments int
	}{
		{"checksums left to the device are told from wrong ones", lab.Offloads{Checksums: true, Segments: true}, packet.Unfinished, 0},
		{"checksums made by the sender are right", lab.Offloads{}, packet.Right, 0},
	} {
		for _, to := range []string{"192.0.2.2:9", "[2001:db8::2]:9"} {
			t.Run(c.name+": "+to, func(t *testing.T) {
				client.Offload(t, "eth0", c.offloads)
				tap.Forget()
				client.Do(func() {
					conn, err := net.Dial("udp", to)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if _, err := conn.Write([]byte("hello")); err != nil {
						t.Fatal(err)
					}
				})
				seen := tap.Packets()
				if len(seen) != 2 {
					t.Fatalf("on the wire are %v, want the datagram and an error", seen)
				}
				if p := seen[0]; p.Target != netip.MustParseAddrPort(to) || string(p.Payload) != "hello" || p.Checksum != c.want || p.Outgoing {
					t.Errorf("the datagram is %s", p)
				}
				// Nobody listens there.
				if p := seen[1]; p.Inner == nil || p.Inner.Source != seen[0].Source || p.Inner.Target != seen[0].Target || !p.Outgoing || p.Checksum != packet.Right {
					t.Errorf("the error is %s", p)
				}
			})
		}
	}

	t.Run("fragments are told", func(t *testing.T) {
		tap.Forget()
		payload := bytes.Repeat([]byte("x"), 4000)
		client.Do(func() {
			conn, err := net.Dial("udp", "192.0.2.2:9")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write(payload); err != nil {
				t.Fatal(err)
			}
		})
		length := 0
		for _, p := range tap.Packets() {
			if p.Outgoing {
				continue
			}
			if !p.Fragment() || p.Offset > 0 && p.Offset != length+8 {
				t.Errorf("%s after %d bytes", p, length)
			}
			length += len(p.Payload)
		}
		if length != len(payload) {
			t.Errorf("the fragments have %d bytes, want %d", length, len(payload))
		}
	})
}

func TestSenderIsAnybody(t *testing.T) {
	client, server := lab.NewNetNS(t, "client"), lab.NewNetNS(t, "server")
	lab.Veth(t,
		lab.End{NetNS: client, Link: "eth0", Addrs: []string{"192.0.2.1/24", "2001:db8::1/64"}},
		lab.End{NetNS: server, Link: "eth0", Addrs: []string{"192.0.2.2/24", "2001:db8::2/64"}})
	tap := packet.NewTap(t, server, "eth0")
	sender := packet.NewSender(t, client)
	for _, addrs := range [][2]string{
		{"203.0.113.7:1000", "192.0.2.2:9"},
		{"[2001:db8:7::7]:1000", "[2001:db8::2]:9"},
	} {
		want := packet.Packet{
			Source: netip.MustParseAddrPort(addrs[0]), Target: netip.MustParseAddrPort(addrs[1]),
			Protocol: unix.IPPROTO_TCP, TTL: 7, Flags: packet.SYN, Seq: 12345, Checksum: packet.Right,
		}
		t.Run("by route "+addrs[0], func(t *testing.T) {
			tap.Forget()
			sender.Send(want)
			expectOne(t, tap, want)
		})
		t.Run("on a device "+addrs[0], func(t *testing.T) {
			tap.Forget()
			packet.SendOn(t, client, "eth0", server.MAC(t, "eth0"), want)
			expectOne(t, tap, want)
		})
	}
}

// expectOne expects that one packet came in, with these fields.
func expectOne(t *testing.T, tap *packet.Tap, want packet.Packet) {
	t.Helper()
	seen := tap.Packets()
	if len(seen) == 0 {
		t.Fatal("nothing came")
	}
	ignore := cmpopts.IgnoreFields(packet.Packet{}, "ID", "DontFragment", "Payload")
	if diff := cmp.Diff(want, seen[0], addresses, ignore); diff != "" {
		t.Errorf("came otherwise (+) than sent (-):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, p := range []packet.Packet{
		{Source: netip.MustParseAddrPort("192.0.2.1:1"), Target: netip.MustParseAddrPort("192.0.2.2:2"), Protocol: unix.IPPROTO_TCP, Payload: []byte("abc")},
		{Source: netip.MustParseAddrPort("[2001:db8::1]:1"), Target: netip.MustParseAddrPort("[2001:db8::2]:2"), Protocol: unix.IPPROTO_UDP},
		{Source: netip.MustParseAddrPort("192.0.2.1:1"), Target: netip.MustParseAddrPort("192.0.2.2:2"), Protocol: unix.IPPROTO_ICMP, Payload: []byte{3, 4, 0, 0, 0, 0, 5, 0}},
	} {
		f.Add(p.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := packet.Parse(b)
		if err == nil && len(p.Payload) > len(b) {
			t.Errorf("%d bytes have a payload of %d", len(b), len(p.Payload))
		}
	})
}
