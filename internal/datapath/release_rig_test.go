// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// peer is struct peer of bpf/maps.h.
type peer struct {
	Frontend endpoint
	Backend  endpoint
	Word     uint64
	Owner    uint32
	Set      uint32
	_        [4]uint32 // unchecked, pid, netns
}

// udp is the key of a Service's UDP port.
func udp(name string) model.SetKey {
	k := service(name)
	k.Protocol = model.UDP
	return k
}

// pinned is a namespace with sockets of which the kernel remembers what the
// socket path would have noted.
type pinned struct {
	*rig
	ns       *lab.NetNS
	releaser *releaser
}

// The backends of these tests, and where sockets are bound to talk to them.
var (
	pinnedBackends = []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"}
	pinnedVIP      = "10.96.0.1:53"
)

func newPinned(t testing.TB, sizes Sizes) *pinned {
	t.Helper()
	p := &pinned{rig: newRig(t, sizes), ns: lab.NewNetNS(t, "pinned")}
	for _, b := range pinnedBackends {
		p.ns.Addr(t, "lo", netip.MustParseAddrPort(b).Addr().String()+"/32")
	}
	p.ns.Addr(t, "lo", "fd00::1/128")
	p.attach()
	p.takeSockets()
	return p
}

// takeSockets makes a releaser for the maps in force.
func (p *pinned) takeSockets() {
	p.t.Helper()
	r, err := newReleaser(p.current)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(r.close)
	p.releaser = r
}

// inhabit puts a process into the namespace.
func (p *pinned) inhabit() {
	p.t.Helper()
	lab.Place{NetNS: p.ns}.StartRole(p.t, "sockets")
}

// serve publishes a set.
func (p *pinned) serve(k model.SetKey, backends ...string) SetID {
	p.t.Helper()
	id := p.create(k)
	p.publish(id, forward(k, backends...))
	return id
}

// socket makes a socket, connects it unless to is empty, and notes that the
// socket path gave it a backend of the set.
func (p *pinned) socket(family, kind int, to string, id SetID, backend string) (fd int) {
	p.t.Helper()
	p.ns.Do(func() { fd = connected(p.t, family, kind, to) })
	p.t.Cleanup(func() { unix.Close(fd) })
	p.note(fd, id, backend)
	return fd
}

func (p *pinned) note(fd int, id SetID, backend string) {
	p.t.Helper()
	if err := p.current.maps[mapPeers].Put(uint32(fd), p.remembered(id, backend)); err != nil {
		p.t.Fatal(err)
	}
}

// remembered is what the socket path notes of a socket.
func (p *pinned) remembered(id SetID, backend string) peer {
	return peer{
		Frontend: endpointOf(pinnedVIP), Backend: endpointOf(backend),
		Word: p.current.sets[id].Word, Owner: p.shadows[id].owner, Set: uint32(id),
	}
}

func connected(t testing.TB, family, kind int, to string) int {
	t.Helper()
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil && to != "" {
		at := netip.MustParseAddrPort(to)
		var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
		if family == unix.AF_INET {
			sa = &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
		}
		err = unix.Connect(fd, sa)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func endpointOf(text string) endpoint {
	ap := netip.MustParseAddrPort(text)
	return endpoint{Address: addressOf(ap.Addr()), Port: portOf(ap.Port())}
}

// pass makes one pass, and returns the backends of the sockets it released.
func (p *pinned) pass() (released []string, stranded int) {
	p.t.Helper()
	result, err := p.releaser.pass()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range result.released {
		released = append(released, s.Backend.addrPort().String())
	}
	slices.Sort(released)
	return released, result.stranded
}

// fault is what the kernel has to say to the socket's process.
func fault(t testing.TB, fd int) unix.Errno {
	t.Helper()
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		t.Fatal(err)
	}
	return unix.Errno(code)
}

func encode(t testing.TB, p peer) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.NativeEndian, p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// pinnedRole holds sockets that are connected to the first backend, each bound
// to another port of an address. It notes for each what it is told to.
func pinnedRole(args []string) error {
	peers, err := ebpf.LoadPinnedMap(args[0], nil)
	if err != nil {
		return err
	}
	known, err := hex.DecodeString(args[1])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	const firstPort = 20_000
	for i := range count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, sockaddr(fmt.Sprintf("%s:%d", args[2], firstPort+i))); err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(pinnedBackends[0])); err != nil {
			return err
		}
		if err := peers.Put(uint32(fd), known); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
