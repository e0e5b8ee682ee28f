// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
)

// diagRequest is struct inet_diag_req_v2 of linux/inet_diag.h, all sockets of
// a family and protocol in the given states.
type diagRequest struct {
	family, protocol uint8
	states           uint32
}

const diagRequestLength = 56

func (r diagRequest) Len() int { return diagRequestLength }

func (r diagRequest) Serialize() []byte {
	b := make([]byte, diagRequestLength)
	b[0], b[1] = r.family, r.protocol
	binary.NativeEndian.PutUint32(b[4:], r.states)
	return b
}

// The states of sockets that take what is sent to them.
const (
	stateListen      = 1 << 10 // TCP_LISTEN
	stateUnconnected = 1 << 7  // TCP_CLOSE: a bound UDP socket
)

// sockets are what listens on the node, by what the kernel was asked. Each
// answer stays until there is a newer one: a kernel that cannot tell of UDP,
// for want of udp_diag, still tells of TCP.
type sockets map[diagRequest][]model.Listener

// refresh asks all that there is to ask, and returns the first error.
func (s sockets) refresh(ask func(diagRequest) ([]model.Listener, error)) error {
	var failures []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, request := range []diagRequest{{family, unix.IPPROTO_TCP, stateListen}, {family, unix.IPPROTO_UDP, stateUnconnected}} {
			found, err := ask(request)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			s[request] = found
		}
	}
	return cmp.Or(failures...)
}

// list returns each listener once, in order: several sockets may share an
// address and port, and the kernel keeps them in no order.
func (s sockets) list() []model.Listener {
	var all []model.Listener
	for _, found := range s {
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b model.Listener) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), model.CompareAddrPort(a.AddrPort, b.AddrPort))
	})
	return slices.Compact(all)
}

// listeners asks the kernel for the sockets of this network namespace that
// listen on a port outside the ephemeral range: that range is for clients,
// whose sockets come and go.
func listeners(r diagRequest) ([]model.Listener, error) {
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
	request.AddData(r)
	answers, err := request.Execute(unix.NETLINK_INET_DIAG, 0)
	if err != nil {
		return nil, fmt.Errorf("ask the kernel for the %s sockets that listen (sock_diag): %w", model.Protocol(r.protocol), err)
	}
	low, high := ephemeralPorts()
	var found []model.Listener
	for _, answer := range answers {
		if l, ok := decodeListener(answer, r.protocol); ok && (l.AddrPort.Port() < low || l.AddrPort.Port() > high) {
			found = append(found, l)
		}
	}
	return found, nil
}

// decodeListener reads struct inet_diag_msg.
func decodeListener(b []byte, protocol uint8) (model.Listener, bool) {
	if len(b) < 24 {
		return model.Listener{}, false
	}
	port := binary.BigEndian.Uint16(b[4:])
	var a netip.Addr
	if b[0] == unix.AF_INET {
		a = netip.AddrFrom4([4]byte(b[8:12]))
	} else {
		a = netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return model.Listener{AddrPort: netip.AddrPortFrom(a, port), Protocol: model.Protocol(protocol)}, port != 0
}

// ephemeralPorts is the range the kernel picks client ports from; its default
// if it cannot be read.
func ephemeralPorts() (low, high uint16) {
	low, high = 32768, 60999
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return low, high
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return low, high
	}
	l, lowErr := strconv.ParseUint(fields[0], 10, 16)
	h, highErr := strconv.ParseUint(fields[1], 10, 16)
	if lowErr != nil || highErr != nil {
		return low, high
	}
	return uint16(l), uint16(h)
}
