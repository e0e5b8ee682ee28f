// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

func TestMain(m *testing.M) { lab.Main(m, roles()) }

func roles() map[string]lab.Role {
	all := map[string]lab.Role{"sockets": socketsRole, "pinned": pinnedRole, "flood": floodRole, "crash": crashRole, "caller": callerRole}
	maps.Copy(all, traffic.Roles)
	return all
}

// The addresses of the backends that a stage can have, all on its loopback.
var stageBackends = []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080"}

// stage is a namespace with a process whose sockets the programs serve. The
// test plays the backends, so that it decides when they answer.
type stage struct {
	*rig
	ns       *lab.NetNS
	process  *lab.Process
	backends map[string]net.PacketConn
	asked    chan question
}

// question is a datagram that came in at a backend.
type question struct {
	backend string
	client  net.Addr
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{ns: lab.NewNetNS(t, "stage"), backends: map[string]net.PacketConn{}, asked: make(chan question, 64)}
	cgroup := lab.NewCgroup(t)
	s.rig = newRig(t, smallSizes())
	s.cfg.Cgroup, s.cfg.SocketMode, s.cfg.HostNetNS = cgroup.Path(), SocketAll, s.ns.Cookie(t)
	s.reopen()
	s.attach()
	for _, b := range stageBackends {
		s.ns.Addr(t, "lo", netip.MustParseAddrPort(b).Addr().String()+"/32")
		s.listen(b)
	}
	s.process = lab.Place{NetNS: s.ns, Cgroup: cgroup}.StartRole(t, "sockets")
	return s
}

func (s *stage) listen(backend string) {
	s.t.Helper()
	var conn net.PacketConn
	var err error
	s.ns.Do(func() { conn, err = net.ListenPacket("udp", backend) })
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	s.backends[backend] = conn
	go func() {
		for {
			_, client, err := conn.ReadFrom(make([]byte, 16))
			if err != nil {
				return
			}
			s.asked <- question{backend, client}
		}
	}()
}

// serve publishes a UDP Service with one address.
func (s *stage) serve(vip string, set *model.Set) SetID {
	s.t.Helper()
	set.Key.Protocol = model.UDP
	id := s.create(set.Key)
	s.publish(id, set)
	f := at(vip, id)
	f.Key.Protocol = model.UDP
	s.insert(f)
	return id
}

func (s *stage) republish(id SetID, set *model.Set) {
	s.t.Helper()
	set.Key.Protocol = model.UDP
	s.publish(id, set)
}

// do lets the process do something, and returns what it says.
func (s *stage) do(format string, args ...any) string {
	s.t.Helper()
	s.process.WriteLine(fmt.Sprintf(format, args...))
	return s.process.ReadLine()
}

// send sends a datagram, and returns who gets it.
func (s *stage) send(socket int, to string) question {
	s.t.Helper()
	if said := s.do("send %d %s", socket, to); said != "ok" {
		s.t.Fatalf("send to %s: %s", to, said)
	}
	select {
	case q := <-s.asked:
		return q
	case <-time.After(10 * time.Second):
		s.t.Fatalf("nobody was asked at %s in 10 s", to)
		return question{}
	}
}

// answer lets a backend answer, and returns whom the socket takes it from.
func (s *stage) answer(socket int, q question) string {
	s.t.Helper()
	if _, err := s.backends[q.backend].WriteTo([]byte("answer"), q.client); err != nil {
		s.t.Fatal(err)
	}
	return s.do("receive %d", socket)
}

// ask sends, and checks that the answer comes from where it was sent to.
func (s *stage) ask(socket int, to string) (backend string) {
	s.t.Helper()
	q := s.send(socket, to)
	if from := s.answer(socket, q); from != to {
		s.t.Errorf("asked %s, %s answered and is shown as %s", to, q.backend, from)
	}
	return q.backend
}

// pairs counts what the look-aside map holds, and checks the counter with it.
func (s *stage) pairs() int {
	s.t.Helper()
	n, err := countEntries[[32]byte, [24]byte](s.current.maps[mapUDP])
	if err != nil {
		s.t.Fatal(err)
	}
	created, err := sumCounter(s.current.maps[mapCounters], counterUDPCreated)
	if err != nil || created != n {
		s.t.Errorf("%d pairs are said to have been created, %d are there, %v", created, n, err)
	}
	return int(n)
}

const (
	firstVIP  = "10.96.0.1:80"
	secondVIP = "10.96.0.2:80"
)

func TestUnconnectedSockets(t *testing.T) {
	t.Run("five that use one Service take no room, whatever is published", func(t *testing.T) {
		s := newStage(t)
		k := service("web")
		id := s.serve(firstVIP, forward(k, stageBackends[0]))
		for round := range 4 {
			for socket := range 5 {
				s.ask(socket, firstVIP)
			}
			// The word changes, the backend stays in the set.
			s.republish(id, forward(k, stageBackends[:1+round%2]...))
		}
		if n := s.pairs(); n != 0 {
			t.Errorf("%d pairs", n)
		}
	})
	t.Run("a late answer of a backend that left is shown as the Service's", func(t *testing.T) {
		s := newStage(t)
		k := service("web")
		id := s.serve(firstVIP, forward(k, stageBackends[0]))
		old := s.send(0, firstVIP)
		for _, b := range stageBackends[1:3] {
			s.republish(id, forward(k, b))
			if got := s.ask(0, firstVIP); got != b {
				t.Errorf("%s is asked, want %s", got, b)
			}
			if from := s.answer(0, old); from != firstVIP {
				t.Errorf("a late answer is shown as from %s, want %s", from, firstVIP)
			}
		}
		if n := s.pairs(); n != 2 {
			t.Errorf("%d pairs, want the ways back from the two that left", n)
		}
	})
	t.Run("one that goes to and fro between Services stays with the backend of each (R35)", func(t *testing.T) {
		s := newStage(t)
		first := s.serve(firstVIP, forward(service("first"), stageBackends...))
		s.serve(secondVIP, forward(service("second"), stageBackends...))
		want := map[string]string{firstVIP: s.ask(0, firstVIP), secondVIP: s.ask(0, secondVIP)}
		for range 10 {
			for _, vip := range slices.Sorted(maps.Keys(want)) {
				if got := s.ask(0, vip); got != want[vip] {
					t.Fatalf("%s is asked at %s, %s was before", got, vip, want[vip])
				}
			}
		}
		if n := s.pairs(); n > 4 {
			t.Errorf("%d pairs, want at most two Services both ways", n)
		}
		// The backend of the one that is not in use leaves meanwhile.
		i := slices.Index(stageBackends, want[firstVIP])
		s.republish(first, forward(service("first"), slices.Delete(slices.Clone(stageBackends), i, i+1)...))
		if got := s.ask(0, firstVIP); got == want[firstVIP] {
			t.Errorf("%s is asked, which has left", got)
		}
	})
	t.Run("one that asks a backend itself in between stays with it", func(t *testing.T) {
		s := newStage(t)
		s.serve(firstVIP, forward(service("web"), stageBackends...))
		for socket := range 5 {
			first := s.ask(socket, firstVIP)
			s.ask(socket, first)
			if got := s.ask(socket, firstVIP); got != first {
				t.Errorf("%s is asked, %s was before", got, first)
			}
		}
	})
	t.Run("use refreshes the client's affinity (R18)", func(t *testing.T) {
		const timeout = 64 // seconds: a refresh is due after one
		s := newStage(t)
		set := forward(service("web"), stageBackends...)
		set.AffinitySeconds = timeout
		s.serve(firstVIP, set)
		backend := s.ask(0, firstVIP)
		chosen := s.affinity()
		s.age(2 * time.Second)
		aged := s.affinity()
		if got := s.ask(0, firstVIP); got != backend {
			t.Errorf("%s is asked, %s was before", got, backend)
		}
		if now := s.affinity(); now.Used < chosen.Used || now.Backend != chosen.Backend || aged.Used >= chosen.Used {
			t.Errorf("the entry is %+v, want it used since %+v", now, chosen)
		}
		s.age(2 * timeout * time.Second)
		aged = s.affinity()
		s.ask(0, firstVIP)
		if now := s.affinity(); now != aged {
			t.Errorf("an entry that has run out was refreshed from %+v to %+v", aged, now)
		}
	})
}

// affinityEntry is struct affinity.
type affinityEntry struct {
	Backend address
	Port    port
	_       uint16
	Owner   uint32
	Used    uint64
}

// affinity is the only entry that there is.
func (s *stage) affinity() affinityEntry {
	s.t.Helper()
	_, entry := s.affinityElement()
	return entry
}

func (s *stage) affinityElement() (key [24]byte, entry affinityEntry) {
	s.t.Helper()
	entries := s.current.maps[mapAffinity].Iterate()
	if !entries.Next(&key, &entry) {
		s.t.Fatalf("there is no affinity entry: %v", entries.Err())
	}
	return key, entry
}

// age makes the entry look as if it had been used longer ago.
func (s *stage) age(by time.Duration) {
	s.t.Helper()
	key, entry := s.affinityElement()
	entry.Used -= uint64(by)
	if err := s.current.maps[mapAffinity].Put(key, entry); err != nil {
		s.t.Fatal(err)
	}
}

func TestAStreamSocketThatWasRefusedAndDialsAnotherAddressShowsThatOne(t *testing.T) {
	for _, kind := range []string{"tcp", "mptcp"} {
		t.Run(kind, func(t *testing.T) {
			s := newStage(t)
			k := service("web")
			id := s.create(k)
			s.publish(id, forward(k, stageBackends[0]))
			s.insert(at(firstVIP, id))
			if said := s.do("connect %s %s", kind, firstVIP); !strings.Contains(said, unix.ECONNREFUSED.Error()) {
				t.Fatalf("connect to a Service nobody listens behind: %s", said)
			}
			var listener net.Listener
			var err error
			s.ns.Do(func() { listener, err = net.Listen("tcp", stageBackends[0]) })
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			if said := s.do("connect %s %s", kind, stageBackends[0]); said != stageBackends[0] {
				t.Errorf("its peer is %s, want %s", said, stageBackends[0])
			}
		})
	}
}

// socketsRole does what it is told on standard input, a line each:
//
//	send N ADDRESS        by unconnected UDP socket N, which is made if need be
//	options N xHEX        IP options of that socket's datagrams
//	receive N             says where a datagram came from
//	connect KIND ADDRESS  by the one socket of that kind; says its peer
//	descriptor KIND       says the number of that socket's descriptor
//	ask KIND              by that connected socket; says the answer
//
// A kind is tcp, tcp6 or mptcp, udp or udp6, and may have a suffix after a dash.
func socketsRole([]string) error {
	sockets := map[string]int{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		said, err := follow(sockets, strings.Fields(lines.Text()))
		if err != nil {
			said = err.Error()
		}
		fmt.Println(said)
	}
	return nil
}

func follow(sockets map[string]int, words []string) (said string, err error) {
	fd, ok := sockets[words[1]]
	if !ok {
		if fd, err = newSocket(words[1]); err != nil {
			return "", err
		}
		sockets[words[1]] = fd
	}
	switch words[0] {
	case "send":
		return "ok", unix.Sendto(fd, []byte("question"), 0, sockaddr(words[2]))
	case "options":
		options, err := hex.DecodeString(words[2][1:])
		if err != nil {
			return "", err
		}
		return "ok", unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string(options))
	case "connect":
		if err := unix.Connect(fd, sockaddr(words[2])); err != nil {
			return "", err
		}
		peer, err := unix.Getpeername(fd)
		return addressText(peer), err
	case "descriptor":
		return strconv.Itoa(fd), nil
	case "ask":
		if _, err := unix.Write(fd, []byte("question")); err != nil {
			return "", err
		}
		answer := make([]byte, 64)
		n, err := unix.Read(fd, answer)
		return string(answer[:max(n, 0)]), err
	case "receive":
		_, from, err := unix.Recvfrom(fd, make([]byte, 16), 0)
		return addressText(from), err
	}
	return "", errors.New("unknown command " + words[0])
}

func newSocket(name string) (int, error) {
	kind, _, _ := strings.Cut(name, "-")
	switch kind {
	case "tcp":
		return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	case "tcp6":
		return unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
	case "mptcp":
		return unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	}
	family := unix.AF_INET
	if kind == "udp6" {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10})
}

func sockaddr(text string) unix.Sockaddr {
	a := netip.MustParseAddrPort(text)
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addressText(sa unix.Sockaddr) string {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	}
	return fmt.Sprintf("%T", sa)
}
