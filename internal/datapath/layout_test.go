// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
)

// The Go side writes memory that programs read: the compiled objects say how
// large each key and value is.
func TestGoLayoutsHaveTheSizeOfTheProgramsTypes(t *testing.T) {
	spec, err := loadSock()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ key, value uintptr }{
		mapFrontends: {unsafe.Sizeof(frontendKey{}), unsafe.Sizeof(frontend{})},
		mapSets:      {4, unsafe.Sizeof(setEntry{})},
		mapBackends:  {4, unsafe.Sizeof(slot{})},
		mapRanges:    {unsafe.Sizeof(rangeKey{}), 4},
		mapAddresses: {unsafe.Sizeof(address{}), 4},
		mapPrimary:   {4, unsafe.Sizeof(address{})},
		mapDevices:   {4, unsafe.Sizeof(device{})},
		mapFlows:     {unsafe.Sizeof(flowKey{}), unsafe.Sizeof(flow{})},
		mapDatagrams: {unsafe.Sizeof(flowKey{}), unsafe.Sizeof(flow{})},
		mapEmbryos:   {unsafe.Sizeof(flowKey{}), unsafe.Sizeof(flow{})},
		mapRefused:   {unsafe.Sizeof(refusalKey{}), 8},
		mapAffinity:  {24, 32},
		mapUDP:       {32, 24},
		mapExempt:    {4, 4},
	} {
		m := spec.Maps[name]
		if uintptr(m.KeySize) != want.key || uintptr(m.ValueSize) != want.value {
			t.Errorf("%s: programs have key %d, value %d; Go has %d, %d", name, m.KeySize, m.ValueSize, want.key, want.value)
		}
	}
	if flags := spec.Maps[mapSets].Flags; flags == 0 {
		t.Error("the sets array is not mappable")
	}
	if spec.Maps[mapFrontends].Type != ebpf.Hash {
		t.Error("the frontends map is not a hash")
	}
}

func TestGoFieldsStandWhereTheProgramsHaveThem(t *testing.T) {
	spec, err := loadSock()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		btf btf.Type
		own any
	}{
		"frontend_key": {spec.Maps[mapFrontends].Key, frontendKey{}},
		"frontend":     {spec.Maps[mapFrontends].Value, frontend{}},
		"set":          {spec.Maps[mapSets].Value, setEntry{}},
		"range_key":    {spec.Maps[mapRanges].Key, rangeKey{}},
		"refusal_key":  {spec.Maps[mapRefused].Key, refusalKey{}},
	} {
		structure, ok := btf.UnderlyingType(c.btf).(*btf.Struct)
		if !ok {
			t.Fatalf("%s is %v and no struct", name, c.btf)
		}
		offsets := map[string]uintptr{}
		for _, m := range structure.Members {
			offsets[strings.ReplaceAll(m.Name, "_", "")] = uintptr(m.Offset.Bytes())
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.own)) {
			if f.Name == "_" {
				continue
			}
			if offset, ok := offsets[strings.ToLower(f.Name)]; !ok || offset != f.Offset {
				t.Errorf("struct %s has %s at %d (%v), Go at %d", name, f.Name, offset, ok, f.Offset)
			}
		}
	}
}

func TestAWordKeepsItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, flags := rapid.Uint32().Draw(t, "base"), rapid.Uint8().Draw(t, "flags")
		count := rapid.Uint32Range(0, 1<<24-1).Draw(t, "count")
		b, f, n := unpackWord(packWord(base, flags, int(count)))
		if b != base || f != flags || n != count {
			t.Fatalf("a word of %d, %d, %d reads %d, %d, %d", base, flags, count, b, f, n)
		}
	})
	if MaxBackendsPerSet >= 1<<24 {
		t.Error("a word has no room for the count of the largest set")
	}
}

func TestAHeaderKeepsItsParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := rapid.Uint32()
		h := header{u.Draw(t, "selectable"), u.Draw(t, "total"), u.Draw(t, "generation"), u.Draw(t, "length"), rapid.Uint16().Draw(t, "entries")}
		owner := u.Draw(t, "owner")
		s := h.slot(owner)
		if s.header() != h || s.Owner != owner || s.Kind != slotHeader {
			t.Fatalf("header %+v of owner %d reads %+v in %+v", h, owner, s.header(), s)
		}
	})
}

func TestAddressesAndRangesAreReadBack(t *testing.T) {
	for _, text := range []string{"10.0.1.7", "0.0.0.0", "255.255.255.255", "::", "::1", "2001:db8::7"} {
		a := netip.MustParseAddr(text)
		if got := addressOf(a).addr(); got != a {
			t.Errorf("%s reads %s", a, got)
		}
	}
	for _, text := range []string{"10.0.0.0/8", "0.0.0.0/0", "10.0.0.1/32", "::/0", "2001:db8::/32", "2001:db8::1/128"} {
		p := netip.MustParsePrefix(text)
		if got := rangeKeyOf(7, p).prefix(); got != p {
			t.Errorf("%s reads %s", p, got)
		}
	}
}

func TestNamesAreReadBack(t *testing.T) {
	label := strings.Repeat("x", 63)
	for _, k := range []model.SetKey{
		service("web"),
		{Service: model.Name{Namespace: "a", Name: "b"}, Protocol: model.UDP, Family: model.IPv6, Role: model.RoleVIPInternal},
		{Service: model.Name{Namespace: label, Name: label}, PortName: label, Protocol: model.SCTP, Family: model.IPv4, Role: model.RoleExternal},
	} {
		n, err := nameOf(k, 7)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := n.key(); !ok || got != k || n.Owner != 7 {
			t.Errorf("the name of %s reads %s, %v, of owner %d", k, got, ok, n.Owner)
		}
	}
	long := service(label + "x")
	long.Service.Namespace, long.PortName = label, label
	if _, err := nameOf(long, 7); err == nil {
		t.Error("a name longer than any legal one is written")
	}
}

// The programs compute the seal themselves and refuse an element whose seal
// does not fit: what they forward, they sealed as Go does.
func TestProgramsComputeTheSealThatGoWrites(t *testing.T) {
	const each = 16
	for _, network := range []string{"::ffff:0:0", "2001:db8:8000:1::", "fe80::", "ffff:ffff:ffff:ffff:ffff:ffff::"} {
		t.Run(network, func(t *testing.T) {
			w := newStressWriter(t, manySlots)
			settings := stressSettings{program: "stress_reader", frontends: each}
			a := netip.MustParseAddr(network).As16()
			copy(settings.network[:], a[:])
			for n := range each {
				w.current.meta.NextOwner += 1 << (27 + n%4)
				w.flip(n)
				copy(a[12:], []byte{10, 96, 0, byte(n)})
				f := stressFrontend(n, w.sets[n])
				f.Key.Address = netip.AddrFrom16(a).Unmap()
				w.insert(f)
			}
			r := newStressReader(t, w.current.maps, settings)
			const repeat = 1000
			if _, err := r.program.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: repeat}); err != nil {
				t.Fatal(err)
			}
			if o := r.outcomes(t); o.Forward < repeat || o != (outcomes{Forward: o.Forward}) {
				t.Errorf("outcomes = %+v, want all of %d forwarded", o, repeat)
			}
		})
	}
}

func TestASealFitsNoOtherFields(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k frontendKey
		random := rapid.SliceOfN(rapid.Byte(), int(unsafe.Sizeof(k)), int(unsafe.Sizeof(k))).Draw(t, "key")
		if _, err := binary.Decode(random, binary.NativeEndian, &k); err != nil {
			t.Fatal(err)
		}
		set, owner := rapid.Uint32().Draw(t, "set"), rapid.Uint32().Draw(t, "owner")
		seal := frontendSeal(k, set, owner)
		bit := uint32(1) << rapid.IntRange(0, 31).Draw(t, "bit")
		changed := k
		changed.Address[rapid.IntRange(0, 15).Draw(t, "byte")] ^= 1
		for what, got := range map[string]uint32{
			"set": frontendSeal(k, set^bit, owner), "owner": frontendSeal(k, set, owner^bit), "address": frontendSeal(changed, set, owner),
		} {
			if got == seal {
				t.Fatalf("the seal %#x fits another %s", seal, what)
			}
		}
	})
}

// FuzzName reads what anybody may have written to the names map.
func FuzzName(f *testing.F) {
	n, err := nameOf(service("web"), 7)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytesOf(&n))
	f.Add(make([]byte, unsafe.Sizeof(n)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n name
		copy(bytesOf(&n), b)
		k, ok := n.key()
		if !ok {
			return
		}
		again, err := nameOf(k, n.Owner)
		if err != nil {
			t.Fatalf("%s was read from %s and cannot be written: %v", k, hex.EncodeToString(b), err)
		}
		if got, ok := again.key(); !ok || got != k {
			t.Fatalf("%s reads %s, %v", k, got, ok)
		}
	})
}

// bytesOf is the memory of a value.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func FuzzRefusal(f *testing.F) {
	n, err := nameOf(service("web"), 7)
	if err != nil {
		f.Fatal(err)
	}
	r := refusal{Owner: 7, Address: addressOf(netip.MustParseAddr("10.96.0.1")), Port: portOf(80), Protocol: 6, Reason: 1}
	copy(r.Command[:], "curl")
	f.Add(bytesOf(&r))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, sample []byte) {
		out, ok := decodeRefusal(sample, []name{n}, anyDevice)
		if ok != (len(sample) >= int(unsafe.Sizeof(r))) {
			t.Fatalf("a sample of %d bytes: %v", len(sample), ok)
		}
		if ok && (out.Address == "" || out.Reason == "" || out.Protocol == "" || (out.Action != "reject" && out.Action != "drop")) {
			t.Fatalf("a sample of %d bytes reads %+v", len(sample), out)
		}
	})
}

func anyDevice(index uint32) string { return fmt.Sprintf("eth%d", index) }

func TestARefusalOfAPacketNamesItsSenderAndDevice(t *testing.T) {
	r := refusal{
		Address: addressOf(netip.MustParseAddr("192.0.2.1")), Port: portOf(30080), Protocol: 6, Reason: 1,
		Source: addressOf(netip.MustParseAddr("203.0.113.9")), SrcPort: portOf(40000), Device: 3,
	}
	got, ok := decodeRefusal(bytesOf(&r), nil, anyDevice)
	if !ok || got.Path != "packet" || got.From != "203.0.113.9:40000" || got.Device != "eth3" || got.Command != "" {
		t.Errorf("got %+v", got)
	}
	r.Device = 0
	if got, _ := decodeRefusal(bytesOf(&r), nil, anyDevice); got.Path != "socket" || got.From != "" || got.Device != "" {
		t.Errorf("got %+v", got)
	}
}

func TestARefusalIsReadAsTheProgramWroteIt(t *testing.T) {
	n, err := nameOf(service("web"), 7)
	if err != nil {
		t.Fatal(err)
	}
	r := refusal{
		NetNS: 42, PID: 1234, Owner: 7, Address: addressOf(netip.MustParseAddr("2001:db8::1")), Port: portOf(443),
		Protocol: 17, Reason: 2, Dropped: 1, Host: 1,
	}
	copy(r.Command[:], "curl")
	got, ok := decodeRefusal(bytesOf(&r), []name{n}, anyDevice)
	if !ok {
		t.Fatal("the sample was not read")
	}
	line := fmt.Sprintln(got.NetNS, got.PID, got.Command, got.Host, got.Address, got.Port, got.Protocol, got.Service, got.PortName, got.Action, got.Reason)
	if want := "42 1234 curl true 2001:db8::1 443 UDP default/web http drop the traffic policy is Local and no endpoint on this node is usable\n"; line != want {
		t.Errorf("got  %swant %s", line, want)
	}
	r.Owner++
	if got, _ := decodeRefusal(bytesOf(&r), []name{n}, anyDevice); got.Service != "" {
		t.Errorf("a refusal of another owner is said to be of %s", got.Service)
	}
}
