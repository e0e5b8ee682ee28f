// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead-io/fairlead/internal/model"
)

// LayoutVersion changes whenever the meaning of a pinned map changes. Maps of
// another version are never adopted: the agent fills new ones beside them.
const LayoutVersion = 2

// MaxBackendsPerSet bounds each part of a set, selectable and draining: the
// programs search a part in SEARCH_STEPS halvings (bpf/select.h).
const MaxBackendsPerSet = 1 << 17

// The flags of a set's word, as in bpf/maps.h.
const (
	flagDrop     = 1 << 0
	flagAffinity = 1 << 1
	flagRanges   = 1 << 2
	flagMaglev   = 1 << 3
)

// address is 16 bytes in network byte order, IPv4 in mapped form.
type address [16]byte

func addressOf(a netip.Addr) address { return a.As16() }

func (a address) addr() netip.Addr { return netip.AddrFrom16(a).Unmap() }

// port is in network byte order.
type port [2]byte

func portOf(p uint16) (b port) {
	binary.BigEndian.PutUint16(b[:], p)
	return b
}

func (p port) uint16() uint16 { return binary.BigEndian.Uint16(p[:]) }

// The two kernel scopes: rows of scope "all" and "internal" share the first.
const (
	scopeInternal = 0
	scopeExternal = 1
)

// frontendKey is struct frontend_key of bpf/maps.h: 20 bytes, no padding.
type frontendKey struct {
	Address  address
	Port     port
	Protocol uint8
	Scope    uint8
}

func keyOf(k model.FrontendKey) frontendKey {
	key := frontendKey{
		Address:  addressOf(k.Address),
		Port:     portOf(k.Port),
		Protocol: uint8(k.Protocol),
		Scope:    scopeInternal,
	}
	if k.Scope == model.ScopeExternal {
		key.Scope = scopeExternal
	}
	return key
}

func (k frontendKey) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Address.addr(), k.Port.uint16()), model.Protocol(k.Protocol))
}

// frontend is struct frontend: 32 bytes.
type frontend struct {
	Key   frontendKey
	Set   uint32
	Owner uint32
	Seal  uint32
}

func frontendOf(k frontendKey, set, owner uint32) frontend {
	return frontend{Key: k, Set: set, Owner: owner, Seal: frontendSeal(k, set, owner)}
}

// frontendSeal is frontend_seal of bpf/select.h.
func frontendSeal(k frontendKey, set, owner uint32) uint32 {
	le := binary.LittleEndian
	h := 0x9e3779b1 ^ le.Uint32(k.Address[0:])
	h = h*0x85ebca6b ^ le.Uint32(k.Address[4:])
	h = h*0x85ebca6b ^ le.Uint32(k.Address[8:])
	h = h*0x85ebca6b ^ le.Uint32(k.Address[12:])
	h = h*0x85ebca6b ^ (uint32(le.Uint16(k.Port[:]))<<16 | uint32(k.Protocol)<<8 | uint32(k.Scope))
	h = h*0x85ebca6b ^ set
	h = h*0x85ebca6b ^ owner
	return h
}

// setEntry is struct set: 32 bytes, eight-byte aligned in the mapping.
type setEntry struct {
	Word            uint64
	Owner           uint32
	Generation      uint32
	AffinitySeconds uint32
	_               [3]uint32
}

// A word packs what a program needs to choose: base << 32 | flags << 24 | count.
func packWord(base uint32, flags uint8, count int) uint64 {
	return uint64(base)<<32 | uint64(flags)<<24 | uint64(count)
}

func unpackWord(w uint64) (base uint32, flags uint8, count uint32) {
	return uint32(w >> 32), uint8(w >> 24), uint32(w & 0xffffff)
}

// slot is struct backend: a backend, the header of an extent, or entries of its
// Maglev table; 24 bytes.
type slot struct {
	Address address // or header: selectable, total, generation, length; or eight uint16
	Port    port    // of a header: entries of the Maglev table, in host byte order
	Kind    uint16
	Owner   uint32
}

// The kinds of slots, as in bpf/maps.h.
const (
	slotBackend = iota
	slotHeader
	slotMaglev
)

// header is what the first slot of an extent holds.
type header struct {
	selectable uint32 // slots base+1 ... base+selectable
	total      uint32 // draining ones follow, up to base+total
	generation uint32 // of the set when it was published
	length     uint32 // slots of the extent, this one included
	entries    uint16 // of the Maglev table behind the backends; 0: there is none
}

func (h header) slot(owner uint32) slot {
	s := slot{Kind: slotHeader, Owner: owner}
	binary.NativeEndian.PutUint32(s.Address[0:], h.selectable)
	binary.NativeEndian.PutUint32(s.Address[4:], h.total)
	binary.NativeEndian.PutUint32(s.Address[8:], h.generation)
	binary.NativeEndian.PutUint32(s.Address[12:], h.length)
	binary.NativeEndian.PutUint16(s.Port[:], h.entries)
	return s
}

func (s *slot) header() header {
	return header{
		selectable: binary.NativeEndian.Uint32(s.Address[0:]),
		total:      binary.NativeEndian.Uint32(s.Address[4:]),
		generation: binary.NativeEndian.Uint32(s.Address[8:]),
		length:     binary.NativeEndian.Uint32(s.Address[12:]),
		entries:    binary.NativeEndian.Uint16(s.Port[:]),
	}
}

func slotOf(b *model.Backend, owner uint32) slot {
	return slot{Address: addressOf(b.AddrPort.Addr()), Port: portOf(b.AddrPort.Port()), Owner: owner}
}

// rangeKey is struct range_key.
type rangeKey struct {
	PrefixLen uint32 // 32 bits of owner, then the prefix of the 16-byte address
	Owner     uint32
	Address   address
}

func rangeKeyOf(owner uint32, p netip.Prefix) rangeKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return rangeKey{PrefixLen: uint32(32 + bits), Owner: owner, Address: addressOf(p.Addr())}
}

func (k rangeKey) prefix() netip.Prefix {
	a, bits := k.Address.addr(), int(k.PrefixLen)-32
	if a.Is4() {
		bits -= 96
	}
	return netip.PrefixFrom(a, bits)
}

// name says, beside a set, what the set is: the agent writes it, programs
// never read it. 208 bytes.
type name struct {
	Owner    uint32
	Role     uint8
	Family   uint8
	Protocol uint8
	Length   uint8     // of Text
	Text     [200]byte // namespace/name:port
}

// maxNameText is the longest text a Service and port name can make: DNS
// labels of at most 63 bytes.
const maxNameText = 63 + 1 + 63 + 1 + 63

func nameOf(k model.SetKey, owner uint32) (name, error) {
	n := name{Owner: owner, Role: uint8(k.Role), Family: uint8(k.Family), Protocol: uint8(k.Protocol)}
	length := len(k.Service.Namespace) + len(k.Service.Name) + len(k.PortName) + 2
	if length > maxNameText {
		return name{}, fmt.Errorf("the name %s:%s is longer than %d bytes", k.Service, k.PortName, maxNameText)
	}
	b := append(n.Text[:0], k.Service.Namespace...)
	b = append(append(b, '/'), k.Service.Name...)
	b = append(append(b, ':'), k.PortName...)
	n.Length = uint8(len(b))
	return n, nil
}

// key reads a name back; ok is false if it is not one this package wrote.
func (n *name) key() (k model.SetKey, ok bool) {
	if n.Length > maxNameText || n.Role > uint8(model.RoleVIPInternal) {
		return k, false
	}
	service, portName, ok := strings.Cut(string(n.Text[:n.Length]), ":")
	if !ok {
		return k, false
	}
	namespace, serviceName, ok := strings.Cut(service, "/")
	return model.SetKey{
		Service:  model.Name{Namespace: namespace, Name: serviceName},
		PortName: portName,
		Protocol: model.Protocol(n.Protocol),
		Family:   model.Family(n.Family),
		Role:     model.Role(n.Role),
	}, ok
}

// meta stands alone in fairlead_meta: 88 bytes. It says which layout the other
// maps have, and so keeps its own shape for good.
type meta struct {
	Layout    uint32
	NextOwner uint32 // owners below it may have been given out
	PID       uint32 // of the last writer
	_         uint32
	Started   uint64 // of the last writer, seconds since 1970
	Node      [64]byte
}

// device is struct device of bpf/maps.h: 40 bytes.
type device struct {
	Source4 address
	Source6 address
	Index   uint32
	_       uint32
}
