// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// A device takes the tag off before a program sees the frame, so only the
// programs on a real device can tell.
func TestWhatIsTaggedIsForADeviceOfItsOwn(t *testing.T) {
	n := newNode(t)
	n.do(func() error { return errors.Join(n.SetDevices(n.devices())...) })
	n.kinds(t, func(t *testing.T, f family, protocol model.Protocol) {
		front := n.front(f)
		n.serve(front, &model.Set{Key: n.backendSet(model.RoleVIPInternal, protocol, f), Backends: withPort(8080, f.pod)})
		k := talkTo(f, protocol, front, netip.AddrPort{})
		frame := n.eth0.frame(n.eth0.mac, k.there(opening[protocol], "").Bytes())
		n.deliver(tagged(frame, 10))
		n.settle(t, k.from(9))
		n.expectFlows(2, 0)
	})
}

// settle returns when frames that were delivered before have been seen, for
// those of another flow have.
func (n *node) settle(t *testing.T, k talk) {
	t.Helper()
	n.deliver(n.eth0.frame(n.eth0.mac, k.there(opening[k.protocol], "").Bytes()))
	of := func(key flowKey) bool { return key.SourcePort == portOf(k.client.Port()) }
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		for key := range n.flowsIn(mapEmbryos) {
			if of(key) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("a frame was not seen in 10 s")
		}
	}
}

// tagged puts a frame into a VLAN.
func tagged(frame []byte, id uint16) []byte {
	tag := binary.BigEndian.AppendUint16([]byte{0x81, 0}, id)
	return slices.Insert(slices.Clone(frame), 12, tag...)
}

// deliver puts a frame on the cable that ends at eth0.
func (n *node) deliver(frame []byte) {
	n.t.Helper()
	var err error
	n.outside.Do(func() { err = sendFrame("eth0", frame) })
	if err != nil {
		n.t.Fatal(err)
	}
}

func sendFrame(link string, frame []byte) error {
	device, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: device.Index})
}
