// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestReleaseOfSockets(t *testing.T) {
	gone, stays := pinnedBackends[0], pinnedBackends[1]
	udp4 := func(to string) func(*pinned, SetID) int {
		return func(p *pinned, id SetID) int { return p.socket(unix.AF_INET, unix.SOCK_DGRAM, to, id, gone) }
	}
	leave := func(p *pinned, id SetID) { p.publish(id, forward(udp("dns"), stays)) }
	for _, c := range []struct {
		name    string
		socket  func(*pinned, SetID) int
		change  func(*pinned, SetID)
		release bool
	}{
		{"one whose backend has left is released (R35)", udp4(gone), leave, true},
		{"one over IPv6 to a mapped address is released, too (R35)", func(p *pinned, id SetID) int {
			return p.socket(unix.AF_INET6, unix.SOCK_DGRAM, "[::ffff:10.0.0.1]:8080", id, gone)
		}, leave, true},
		{"one over IPv6 is released (R35)", func(p *pinned, id SetID) int {
			p.publish(id, forward(udp("dns"), gone, stays, "[fd00::1]:8080"))
			return p.socket(unix.AF_INET6, unix.SOCK_DGRAM, "[fd00::1]:8080", id, "[fd00::1]:8080")
		}, leave, true},
		{"one whose Service has no backend any more is released (R35)", udp4(gone),
			func(p *pinned, id SetID) { p.publish(id, forward(udp("dns"))) }, true},
		{"one whose Service is gone is released (R35)", udp4(gone), func(p *pinned, id SetID) { p.rig.release(id) }, true},
		{"one whose set belongs to another Service by now is released (R35)", udp4(gone), func(p *pinned, id SetID) {
			p.rig.release(id)
			p.reclaimAll(uint64(smallSizes().Backends-1), int(smallSizes().Sets))
			if other := p.serve(udp("other"), gone, stays); other != id {
				p.t.Fatalf("the other Service has set %d, want %d", other, id)
			}
		}, true},
		{"one whose backend has left is released even if the set's word is what it was (R35)", udp4(gone), func(p *pinned, id SetID) {
			before := p.current.sets[id].Word
			leave(p, id)
			p.reclaimAll(uint64(smallSizes().Backends-1-2), int(smallSizes().Sets-1))
			p.publish(id, forward(udp("dns"), pinnedBackends[1:]...))
			if now := p.current.sets[id].Word; now != before {
				p.t.Fatalf("the word is %#x, want %#x again", now, before)
			}
		}, true},
		{"one whose backend is draining goes on (R9)", udp4(gone), func(p *pinned, id SetID) {
			s := forward(udp("dns"), stays)
			s.Draining = backendsOf(gone)
			p.publish(id, s)
		}, false},
		{"one whose backend stays goes on, whatever else changes", udp4(gone),
			func(p *pinned, id SetID) { p.publish(id, forward(udp("dns"), gone, pinnedBackends[2])) }, false},
		{"one that is not connected chooses anew by itself", udp4(""), leave, false},
		{"one that is connected to another address only sent there once", udp4(pinnedBackends[2]), leave, false},
		{"one that is connected to another port only sent there once", udp4("10.0.0.1:8081"), leave, false},
		{"a TCP socket goes on (R9)", func(p *pinned, id SetID) int {
			var fd int
			p.ns.Do(func() { fd = connectedStream(p.t, gone) })
			p.note(fd, id, gone)
			return fd
		}, leave, false},
		{"one of a set that no map holds is left alone", func(p *pinned, id SetID) int {
			fd := p.socket(unix.AF_INET, unix.SOCK_DGRAM, gone, id, gone)
			known := p.remembered(id, gone)
			known.Set = smallSizes().Sets
			if err := p.current.maps[mapPeers].Put(uint32(fd), known); err != nil {
				p.t.Fatal(err)
			}
			return fd
		}, leave, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPinned(t, smallSizes())
			p.inhabit()
			id := p.serve(udp("dns"), gone, stays)
			if fd := c.socket(p, id); fault(t, fd) != 0 {
				t.Fatal("the socket is broken before it begins")
			} else if released, stranded := p.pass(); len(released)+stranded != 0 {
				t.Fatalf("released %v, stranded %d, before anything changed", released, stranded)
			} else {
				c.change(p, id)
				released, stranded := p.pass()
				want := unix.Errno(0)
				if c.release {
					want = unix.ECONNABORTED
				}
				if (len(released) == 1) != c.release || stranded != 0 {
					t.Errorf("released %v, stranded %d", released, stranded)
				}
				if got := fault(t, fd); got != want {
					t.Errorf("the socket's error is %v, want %v", got, want)
				}
			}
			if released, stranded := p.pass(); len(released)+stranded != 0 {
				t.Errorf("released again %v, stranded %d", released, stranded)
			}
		})
	}
}

// connectedStream connects to a listener of its own.
func connectedStream(t testing.TB, at string) int {
	t.Helper()
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(listener) })
	if err := unix.Bind(listener, sockaddr(at)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(listener, 1); err != nil {
		t.Fatal(err)
	}
	fd := connected(t, unix.AF_INET, unix.SOCK_STREAM, at)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func TestOnlySocketsOfTheBackendThatLeftAreReleased(t *testing.T) {
	p := newPinned(t, smallSizes())
	p.inhabit()
	dns, ntp := p.serve(udp("dns"), pinnedBackends...), p.serve(udp("ntp"), pinnedBackends...)
	sockets := map[string]int{}
	for _, b := range pinnedBackends {
		sockets["dns at "+b] = p.socket(unix.AF_INET, unix.SOCK_DGRAM, b, dns, b)
		sockets["ntp at "+b] = p.socket(unix.AF_INET, unix.SOCK_DGRAM, b, ntp, b)
		p.ns.Do(func() { sockets["directly at "+b] = connected(t, unix.AF_INET, unix.SOCK_DGRAM, b) })
	}
	p.publish(dns, forward(udp("dns"), pinnedBackends[1:]...))

	if released, stranded := p.pass(); !slices.Equal(released, pinnedBackends[:1]) || stranded != 0 {
		t.Errorf("released %v, stranded %d", released, stranded)
	}
	for name, fd := range sockets {
		want := unix.Errno(0)
		if name == "dns at "+pinnedBackends[0] {
			want = unix.ECONNABORTED
		}
		if got := fault(t, fd); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestSocketsInANamespaceWithoutAProcessAreCounted(t *testing.T) {
	p := newPinned(t, smallSizes())
	dns := p.serve(udp("dns"), pinnedBackends[0])
	fd := p.socket(unix.AF_INET, unix.SOCK_DGRAM, pinnedBackends[0], dns, pinnedBackends[0])
	p.publish(dns, forward(udp("dns"), pinnedBackends[1]))
	if released, stranded := p.pass(); len(released) != 0 || stranded != 1 || fault(t, fd) != 0 {
		t.Errorf("released %v, stranded %d, want one stranded", released, stranded)
	}
	p.inhabit()
	if released, stranded := p.pass(); len(released) != 1 || stranded != 0 || fault(t, fd) != unix.ECONNABORTED {
		t.Errorf("released %v, stranded %d, once there is a process", released, stranded)
	}
}

// Sets have their ids for life, but maps of another size are filled anew.
func TestSocketsOutliveMapsOfAnotherSize(t *testing.T) {
	larger, smaller := smallSizes(), smallSizes()
	larger.Sets, smaller.Sets = 128, 2
	for name, sizes := range map[string]Sizes{"larger": larger, "smaller": smaller} {
		t.Run(name+" maps: only sockets whose backend is gone are released (R35)", func(t *testing.T) {
			p := newPinned(t, smallSizes())
			p.inhabit()
			spare := p.serve(udp("spare"), pinnedBackends[2])
			dns := p.serve(udp("dns"), pinnedBackends[:2]...)
			web := p.serve(udp("web"), pinnedBackends[0])
			p.rig.release(spare)
			sockets := map[string]int{
				"dns, stays":  p.socket(unix.AF_INET, unix.SOCK_DGRAM, pinnedBackends[1], dns, pinnedBackends[1]),
				"dns, leaves": p.socket(unix.AF_INET, unix.SOCK_DGRAM, pinnedBackends[0], dns, pinnedBackends[0]),
				"web":         p.socket(unix.AF_INET, unix.SOCK_DGRAM, pinnedBackends[0], web, pinnedBackends[0]),
			}
			p.cfg.Sizes = sizes
			p.reopen()
			p.serve(udp("web"), pinnedBackends[0])
			p.serve(udp("dns"), pinnedBackends[1])
			p.prune()
			if due(p.Datapath) {
				t.Error("a pass is due over maps that are not in force")
			}
			p.attach()
			if !due(p.Datapath) {
				t.Error("no pass is due although the maps came in force")
			}
			p.takeSockets()
			if released, stranded := p.pass(); !slices.Equal(released, pinnedBackends[:1]) || stranded != 0 {
				t.Errorf("released %v, stranded %d", released, stranded)
			}
			faults := map[string]unix.Errno{}
			for name, fd := range sockets {
				faults[name] = fault(t, fd)
			}
			if diff := cmp.Diff(map[string]unix.Errno{"dns, stays": 0, "dns, leaves": unix.ECONNABORTED, "web": 0}, faults); diff != "" {
				t.Errorf("errors of the sockets (-want +got):\n%s", diff)
			}
		})
	}
}

// due says whether a pass is, and takes the note.
func due(d *Datapath) bool {
	select {
	case <-d.releases.due:
		return true
	default:
		return false
	}
}

func TestWhatMakesAPassDue(t *testing.T) {
	r := newRig(t, smallSizes())
	r.attach()
	if !due(r.Datapath) {
		t.Error("none is due after a start, although backends may have left before it")
	}
	dns, web := r.create(udp("dns")), r.create(service("web"))
	both := func(backends ...string) func() {
		return func() {
			r.publish(dns, forward(udp("dns"), backends...))
			r.publish(web, forward(service("web"), backends...))
		}
	}
	for _, c := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"the first backends", both(pinnedBackends...), false},
		{"nothing new", both(pinnedBackends...), false},
		{"a TCP backend that leaves", func() { r.publish(web, forward(service("web"))) }, false},
		{"a TCP Service that goes", func() { r.release(web) }, false},
		{"a UDP backend that leaves", func() { r.publish(dns, forward(udp("dns"), pinnedBackends[0])) }, true},
		{"a UDP Service that goes", func() { r.release(dns) }, true},
	} {
		c.change()
		if got := due(r.Datapath); got != c.want {
			t.Errorf("%s: a pass is due: %v, want %v", c.name, got, c.want)
		}
	}
}

// Extents are used again, so a word comes back with other backends.
func TestAnUnconnectedSocketLeavesABackendThatIsGoneWhateverTheWord(t *testing.T) {
	s := newStage(t)
	k := service("web")
	id := s.serve(firstVIP, forward(k, stageBackends[0]))
	before := s.current.sets[id].Word
	s.ask(0, firstVIP)
	s.republish(id, forward(k, stageBackends[1]))
	s.reclaimAll(uint64(smallSizes().Backends-1-2), int(smallSizes().Sets-1))
	s.republish(id, forward(k, stageBackends[2]))
	if now := s.current.sets[id].Word; now != before {
		t.Fatalf("the word is %#x, want %#x again", now, before)
	}
	if got := s.ask(0, firstVIP); got != stageBackends[2] {
		t.Errorf("%s is asked, want %s, the only one there is (R35)", got, stageBackends[2])
	}
}

// Who was amid connect() when its backend left is connected to it after the
// first pass, and nothing else happens then.
func TestASocketThatIsConnectedJustAfterItsBackendWentIsReleased(t *testing.T) {
	p := newPinned(t, smallSizes())
	p.inhabit()
	due(p.Datapath)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.ReleaseSockets(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// A machine that is busy may come too late for the second pass.
	for attempt := 0; ; attempt++ {
		k := udp(fmt.Sprintf("dns-%d", attempt))
		dns := p.serve(k, pinnedBackends...)
		first := p.socket(unix.AF_INET, unix.SOCK_DGRAM, pinnedBackends[0], dns, pinnedBackends[0])
		second := p.socket(unix.AF_INET, unix.SOCK_DGRAM, "", dns, pinnedBackends[0])
		p.publish(dns, forward(k, pinnedBackends[1:]...))
		awaitFault(t, first)
		p.ns.Do(func() {
			if err := unix.Connect(second, sockaddr(pinnedBackends[0])); err != nil {
				t.Fatal(err)
			}
		})
		if failed(t, second, 2*releaseInterval) {
			return
		}
		if attempt == 10 {
			t.Fatal("none of the sockets was released")
		}
	}
}

// failed waits for the socket to fail.
func failed(t *testing.T, fd int, patience time.Duration) bool {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(fd)}}
	for {
		n, err := unix.Poll(poll, int(patience.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
}

func awaitFault(t *testing.T, fd int) {
	t.Helper()
	if !failed(t, fd, 10*time.Second) {
		t.Fatal("the socket was not released in 10 s")
	}
}

// A pass over the sockets of a busy node, of which none is to be released.
// Budget: 50 ms for 100 000 of them.
func BenchmarkReleasePass(b *testing.B) {
	const each = 10_000 // a process may have twice as many files on most machines
	for _, n := range []int{each, 10 * each} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPinned(b, smallSizes())
			id := p.serve(udp("dns"), pinnedBackends...)
			known := hex.EncodeToString(encode(b, p.remembered(id, pinnedBackends[0])))
			peers := filepath.Join(p.cfg.PinPath, p.currentName(), mapPeers)
			for i := range n / each {
				process := lab.Place{NetNS: p.ns}.StartRole(b, "pinned", peers, known, fmt.Sprintf("127.0.0.%d", 1+i), fmt.Sprint(each))
				process.ReadLine()
			}
			for b.Loop() {
				if released, stranded := p.pass(); len(released)+stranded != 0 {
					b.Fatalf("released %v, stranded %d", released, stranded)
				}
			}
		})
	}
}
