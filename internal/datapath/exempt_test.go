// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// dialled is a Service's address at which a server of its own listens as well,
// and says so: who answers tells whether a socket was translated.
type dialled struct {
	kind    string // of the socket, see socketsRole
	address string
	backend string
}

var dialledAddresses = []dialled{
	{"tcp", "10.96.0.1:80", "10.0.9.1:8080"},
	{"mptcp", "10.96.0.2:80", "10.0.9.2:8080"},
	{"tcp6", "[fd00:96::1]:80", "[fd00::1]:8080"},
	{"udp", "10.96.0.3:80", "10.0.9.3:8080"},
	{"udp6", "[fd00:96::3]:80", "[fd00::9]:8080"},
}

// newExemptStage serves every address by a set with the backends that it is
// given, all of them if there are any.
func newExemptStage(t *testing.T, forwards bool) *stage {
	t.Helper()
	s := newStage(t)
	for _, d := range dialledAddresses {
		s.announce(d.kind, d.address)
		s.announce(d.kind, d.backend)
	}
	s.serveDialled(forwards)
	return s
}

func (s *stage) serveDialled(forwards bool) {
	s.t.Helper()
	for _, d := range dialledAddresses {
		k := service(d.kind)
		f := at(d.address, 0)
		if strings.HasPrefix(d.kind, "udp") {
			k.Protocol, f.Key.Protocol = model.UDP, model.UDP
		}
		if f.Key.Address.Is6() {
			k.Family = model.IPv6
		}
		backends := []string{}
		if forwards {
			backends = append(backends, d.backend)
		}
		f.Set = s.create(k)
		s.publish(f.Set, forward(k, backends...))
		s.insert(f)
	}
}

// announce answers every question at an address with the address.
func (s *stage) announce(kind, address string) {
	s.t.Helper()
	a := netip.MustParseAddrPort(address)
	s.ns.Addr(s.t, "lo", netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String())
	s.ns.Do(func() {
		if strings.HasPrefix(kind, "udp") {
			s.announceDatagrams(address)
			return
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			s.t.Error(err)
			return
		}
		s.t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if _, err := conn.Write([]byte(address)); err != nil {
					s.t.Errorf("answer at %s: %v", address, err)
				}
				conn.Close()
			}
		}()
	})
}

func (s *stage) announceDatagrams(address string) {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.t.Cleanup(func() { conn.Close() })
	go func() {
		for {
			_, client, err := conn.ReadFrom(make([]byte, 16))
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				s.t.Errorf("hear a question at %s: %v", address, err)
				return
			}
			if _, err := conn.WriteTo([]byte(address), client); err != nil {
				s.t.Errorf("answer at %s: %v", address, err)
			}
		}
	}()
}

// exempt marks a socket of the process.
func (s *stage) exempt(socket string) {
	s.t.Helper()
	descriptor, err := strconv.Atoi(s.do("descriptor %s", socket))
	if err != nil {
		s.t.Fatal(err)
	}
	process, err := unix.PidfdOpen(s.process.PID(), 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, descriptor, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := s.Exempt(uintptr(fd)); err != nil {
		s.t.Fatal(err)
	}
}

// expectAnswer expects that a socket connects to an address, is shown that
// address as its peer, and hears from this one.
func (s *stage) expectAnswer(socket, address, from string) {
	s.t.Helper()
	if said := s.do("connect %s %s", socket, address); said != address {
		s.t.Errorf("%s dials %s: its peer is %s", socket, address, said)
		return
	}
	if said := s.do("ask %s", socket); said != from {
		s.t.Errorf("%s dials %s: %s answers, want %s", socket, address, said, from)
	}
}

// expectExempt expects that exempt sockets, marked by the given function, reach
// whom they dial, and that others still do not.
func (s *stage) expectExempt(name string, mark func(socket string)) {
	s.t.Helper()
	for _, d := range dialledAddresses {
		mark(d.kind + "-" + name)
		s.expectAnswer(d.kind+"-"+name, d.address, d.address)
		s.expectAnswer(d.kind+"-other-"+name, d.address, d.backend)
	}
}

func marked(string) {}

func TestAnExemptSocketReachesTheAddressThatItDials(t *testing.T) {
	t.Run("while others of its process are translated", func(t *testing.T) {
		s := newExemptStage(t, true)
		s.expectExempt("own", s.exempt)
	})
	t.Run("where others are refused, and is not counted", func(t *testing.T) {
		s := newExemptStage(t, false)
		before := s.dump()
		for _, d := range dialledAddresses {
			s.exempt(d.kind + "-own")
			s.expectAnswer(d.kind+"-own", d.address, d.address)
		}
		expectSame(t, before, s.dump())
		for _, d := range dialledAddresses {
			if said := s.do("connect %s %s", d.kind, d.address); said != unix.ECONNREFUSED.Error() {
				t.Errorf("%s dials %s: %s, want it refused", d.kind, d.address, said)
			}
		}
	})
	t.Run("though it was refused before it was marked", func(t *testing.T) {
		s := newExemptStage(t, false)
		for _, d := range dialledAddresses {
			if said := s.do("connect %s %s", d.kind, d.address); said != unix.ECONNREFUSED.Error() {
				t.Fatalf("%s dials %s: %s, want it refused", d.kind, d.address, said)
			}
			s.exempt(d.kind)
			s.expectAnswer(d.kind, d.address, d.address)
		}
	})
}

func TestAnExemptSocketStaysOneWhateverMapsTakeOver(t *testing.T) {
	for name, change := range map[string]func(s *stage){
		"the same": func(*stage) {},
		"larger ones": func(s *stage) {
			s.cfg.Sizes = Sizes{Frontends: 512, Sets: 128, Backends: 2048, Affinity: 128, Flows: 4096, UDP: 128, Ranges: 128}
		},
		"smaller ones": func(s *stage) { s.cfg.Sizes.Frontends, s.cfg.Sizes.UDP = 64, 32 },
		// Programs of another layout are not at hand; its mark is the same.
		"those of another layout": func(s *stage) { s.intruder().meta.Layout = LayoutVersion + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newExemptStage(t, true)
			for _, d := range dialledAddresses {
				s.exempt(d.kind + "-before")
				s.exempt(d.kind + "-long-before")
			}
			change(s)
			s.reopen()
			if !s.Inherited() {
				t.Error("the maps in force are not said to be a predecessor's")
			}
			s.expectExempt("before", marked)
			s.expectExempt("meanwhile", s.exempt)
			for _, d := range dialledAddresses {
				s.exempt(d.kind + "-late")
			}
			s.serveDialled(true)
			s.attach()
			s.expectExempt("late", marked)
			s.expectExempt("long-before", marked)
			s.expectExempt("after", s.exempt)
		})
	}
}

func TestMapsOfAPredecessorThatKnewNoExemptSocketsAreReplaced(t *testing.T) {
	s := newExemptStage(t, true)
	s.removePin(mapExempt)
	s.reopen()
	for _, d := range dialledAddresses {
		s.exempt(d.kind + "-early")
	}
	s.serveDialled(true)
	s.attach()
	if s.currentName() != "g2" {
		t.Errorf("current is %s", s.currentName())
	}
	s.expectExempt("early", marked)
	s.expectExempt("own", s.exempt)
}

func TestSocketsAreExemptFromManyGoroutinesWhileMapsAreWritten(t *testing.T) {
	r := newRig(t, smallSizes())
	var marking sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		marking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.expectMarkable()
				}
			}
		})
	}
	r.apply(threeServices...)
	r.attach()
	r.apply(threeServices[:1]...)
	close(stop)
	marking.Wait()
}

// expectMarkable expects that a socket has no mark before it is exempt, and has
// one after.
func (r *rig) expectMarkable() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.t.Error(err)
		return
	}
	defer unix.Close(fd)
	var mark uint32
	m := r.current.maps[mapExempt]
	if err := m.Lookup(int32(fd), &mark); !errors.Is(err, ebpf.ErrKeyNotExist) {
		r.t.Errorf("a new socket is exempt: %v", err)
	}
	if err := r.Exempt(uintptr(fd)); err != nil {
		r.t.Error(err)
	}
	if err := m.Lookup(int32(fd), &mark); err != nil || mark == 0 {
		r.t.Errorf("a socket that was marked has %d, %v", mark, err)
	}
}

func TestADescriptorThatIsNoSocketCannotBeExempt(t *testing.T) {
	r := newRig(t, smallSizes())
	for what, fd := range map[string]uintptr{"a file": r.lock.Fd(), "nothing": 1 << 20} {
		if err := r.Exempt(fd); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line", what, err)
		}
	}
}

func TestOnlyMapsInForceAreInherited(t *testing.T) {
	r := newRig(t, smallSizes())
	expect := func(want bool, when string) {
		t.Helper()
		if r.Inherited() != want {
			t.Errorf("%s: inherited is %v", when, r.Inherited())
		}
	}
	expect(false, "the first start")
	r.reopen()
	expect(false, "after one that died before it put its maps in force")
	r.attach()
	expect(false, "the first start, once its maps are in force")
	r.reopen()
	expect(true, "a restart")
	r.close()
	must(t, Cleanup(r.cfg.PinPath))
	r.open()
	expect(false, "after a cleanup, as after a reboot")
}

// A writer may die after its maps became current and before its programs use
// them, or lose the programs while it does not run: such maps serve nobody.
func TestMapsWithoutProgramsAreNotInherited(t *testing.T) {
	s := newStage(t)
	expect := func(want bool, when string) {
		t.Helper()
		s.reopen()
		if s.Inherited() != want {
			t.Errorf("%s: inherited is %v", when, s.Inherited())
		}
	}
	expect(true, "with every program on its hook")
	for _, h := range hooks {
		must(t, os.Remove(filepath.Join(s.cfg.PinPath, linksFolder, h.name)))
		expect(false, "without "+h.name)
		s.attach()
		expect(true, "once it is attached again")
	}
	on := s.cfg.Cgroup
	s.cfg.Cgroup = lab.NewCgroup(t).Path()
	expect(false, "in another cgroup")
	s.cfg.Cgroup, s.cfg.Sizes.Frontends = on, 2*s.cfg.Sizes.Frontends
	must(t, os.Remove(filepath.Join(s.cfg.PinPath, linksFolder, hooks[0].name)))
	expect(true, "with maps that are to be replaced only once all is known")
}
