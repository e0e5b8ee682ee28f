// SPDX-License-Identifier: Apache-2.0

package packet_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/test/lab/packet"
)

func parsed(t *rapid.T, b []byte) packet.Packet {
	t.Helper()
	p, err := packet.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestShapedPacketsAreStillRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyPacket(t)
		b := want.Bytes()
		if want.V4() {
			options := bytes.Repeat([]byte{1}, 4*rapid.IntRange(1, 10).Draw(t, "words of options"))
			got := parsed(t, packet.WithOptions(b, options))
			if got.Target != want.Target || !bytes.Equal(got.Payload, want.Payload) || got.Checksum != packet.Right {
				t.Errorf("with options %s is read as %s", want, got)
			}
		} else if got := packet.WithExtension(b, unix.IPPROTO_DSTOPTS, make([]byte, 14)); len(got) != len(b)+16 || got[40] != want.Protocol || got[6] != unix.IPPROTO_DSTOPTS || got[41] != 1 {
			t.Errorf("the extension header is %v", got[:56])
		}
		quoting := parsed(t, packet.Error(want.Target.Addr(), want.Source.Addr(), 3, 4, 1400, b))
		if quoting.Checksum != packet.Right || quoting.MTU != 1400 || quoting.Inner == nil || quoting.Inner.Source != want.Source {
			t.Errorf("the error about %s is read as %s", want, quoting)
		}
	})
}

func TestFragmentsMakeTheDatagramAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPacket(t)
		p.Protocol = unix.IPPROTO_UDP
		b := p.Bytes()
		size := 8 * rapid.IntRange(1, 40).Draw(t, "eighths")
		var transport []byte
		parts := packet.Fragments(b, 77, size)
		for i, part := range parts {
			got := parsed(t, part)
			if got.Offset != i*size || got.More != (i < len(parts)-1) || got.ID != 77 || got.Source.Addr() != p.Source.Addr() {
				t.Errorf("part %d of %d is %s", i, len(parts), got)
			}
			header := len(part) - len(got.Payload)
			if i == 0 {
				header -= 8
			}
			transport = append(transport, part[header:]...)
		}
		if !bytes.HasSuffix(b, transport) || len(transport) != len(p.Payload)+8 {
			t.Errorf("%d bytes of the datagram's %d", len(transport), len(b))
		}
	})
}
