// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

var compareAddresses = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// machine is a kernel that says what a test wants, and remembers what the
// tracker made of it.
type machine struct {
	*nodeTracker

	mu        sync.Mutex
	addrs     []netip.Addr
	listens   map[diagRequest][]model.Listener
	broken    map[string]error // "addresses", "tcp", "udp", "publish"
	asked     int              // times that addresses were asked for
	told      []model.Node
	published [][]netip.Addr
}

func newMachine(cfg Config, addrs ...string) *machine {
	m := &machine{listens: map[diagRequest][]model.Listener{}, broken: map[string]error{}}
	m.addrs = parse(addrs...)
	cfg.NodeName = "n1"
	m.nodeTracker = newNodeTracker(cfg, slog.New(slog.DiscardHandler), m.tell, m.publish)
	m.addresses = func() ([]netip.Addr, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asked++
		return m.addrs, m.broken["addresses"]
	}
	m.listening = func(r diagRequest) ([]model.Listener, error) {
		if r.protocol == unix.IPPROTO_UDP && m.broken["udp"] != nil {
			return nil, m.broken["udp"]
		}
		return m.listens[r], nil
	}
	return m
}

func (m *machine) tell(n model.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, n)
}

func (m *machine) publish(_, served []netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken["publish"] != nil {
		return m.broken["publish"]
	}
	m.published = append(m.published, served)
	return nil
}

func (m *machine) set(addrs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addrs = parse(addrs...)
}

// last is what the tables were told last.
func (m *machine) last() model.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told[len(m.told)-1]
}

func (m *machine) writes() [][]netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.published)
}

func parse(addrs ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range addrs {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func listener(protocol model.Protocol, at string) model.Listener {
	return model.Listener{AddrPort: netip.MustParseAddrPort(at), Protocol: protocol}
}

var (
	tcp4 = diagRequest{unix.AF_INET, unix.IPPROTO_TCP, stateListen}
	udp4 = diagRequest{unix.AF_INET, unix.IPPROTO_UDP, stateUnconnected}
	tcp6 = diagRequest{unix.AF_INET6, unix.IPPROTO_TCP, stateListen}
)

func wantNode(t *testing.T, got, want model.Node) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareAddresses); diff != "" {
		t.Errorf("the tables were told (-want +got)\n%s", diff)
	}
}

func wantFindings(t *testing.T, m *machine, words ...string) {
	t.Helper()
	findings := m.findings()
	if len(findings) != len(words) {
		t.Fatalf("findings %q, want %d", findings, len(words))
	}
	for i, w := range words {
		if !strings.Contains(findings[i], w) {
			t.Errorf("finding %q does not say %q", findings[i], w)
		}
	}
}

func TestTheNodeIsTheSameUntilSomethingChanges(t *testing.T) {
	m := newMachine(Config{}, "192.0.2.1")
	m.listens[tcp4] = []model.Listener{
		listener(model.TCP, "192.0.2.1:443"), listener(model.TCP, "0.0.0.0:80"),
		listener(model.TCP, "0.0.0.0:80"), // SO_REUSEPORT
		listener(model.TCP, "127.0.0.1:10248"), listener(model.TCP, "192.0.2.9:1"),
	}
	m.listens[tcp6] = []model.Listener{listener(model.TCP, "[::]:22")}
	m.listens[udp4] = []model.Listener{listener(model.UDP, "0.0.0.0:53")}
	want := model.Node{Name: "n1", Addresses: parse("192.0.2.1"), Listening: []model.Listener{
		listener(model.TCP, "0.0.0.0:80"), listener(model.TCP, "[::]:22"), listener(model.TCP, "192.0.2.1:443"), listener(model.UDP, "0.0.0.0:53"),
	}}
	for range 40 {
		slices.Reverse(m.listens[tcp4])
		m.look()
		wantNode(t, m.last(), want)
	}
}

func TestWhatTheKernelDoesNotSayStaysAsItWas(t *testing.T) {
	web, dns := listener(model.TCP, "0.0.0.0:80"), listener(model.UDP, "0.0.0.0:53")
	m := newMachine(Config{}, "192.0.2.1")
	m.listens[tcp4], m.listens[udp4] = []model.Listener{web}, []model.Listener{dns}
	m.look()
	m.setAPI(&reflector.Node{Name: "n1", Zone: "a"})

	m.broken["udp"] = errors.New("no udp_diag")
	m.listens[tcp4], m.addrs = nil, parse("192.0.2.2")
	m.look()
	wantNode(t, m.last(), model.Node{Name: "n1", Zone: "a", Addresses: parse("192.0.2.2"), Listening: []model.Listener{dns}})
	wantFindings(t, m, "listening sockets cannot be read, those known last stay in force: no udp_diag")

	m.broken["addresses"] = errors.New("no memory")
	m.listens[tcp4], m.addrs = []model.Listener{web}, nil
	m.look()
	wantNode(t, m.last(), model.Node{Name: "n1", Zone: "a", Addresses: parse("192.0.2.2"), Listening: []model.Listener{web, dns}})
	wantFindings(t, m, "listening sockets", "addresses cannot be read, those known last stay in force: no memory")

	clear(m.broken)
	m.listens[udp4], m.addrs = nil, parse("192.0.2.3")
	m.look()
	wantNode(t, m.last(), model.Node{Name: "n1", Zone: "a", Addresses: parse("192.0.2.3"), Listening: []model.Listener{web}})
	wantFindings(t, m)
}

func TestAKernelWithoutUDPDiagStillTellsOfTCPFromTheStart(t *testing.T) {
	m := newMachine(Config{}, "192.0.2.1")
	m.listens[tcp4], m.broken["udp"] = []model.Listener{listener(model.TCP, "0.0.0.0:22")}, errors.New("no udp_diag")
	m.look()
	wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.1"), Listening: m.listens[tcp4]})
}

func TestTheNodeReachesTheTablesBeforeItsEventIsOver(t *testing.T) {
	m := newMachine(Config{}, "192.0.2.1", "192.0.2.2")
	m.look()
	asked := m.asked
	m.setAPI(&reflector.Node{Name: "n1", Zone: "a", Addresses: []string{"198.51.100.1", "192.0.2.2"}})
	wantNode(t, m.last(), model.Node{Name: "n1", Zone: "a", Addresses: parse("192.0.2.2", "192.0.2.1")})
	if m.asked != asked {
		t.Error("the kernel was asked for an event of the API")
	}
	m.setAPI(nil)
	wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.1", "192.0.2.2")})
}

func TestAddressesGivenByFlagsGoBeforeThoseOfTheAPI(t *testing.T) {
	m := newMachine(Config{NodeIPs: parse("192.0.2.3", "203.0.113.1")}, "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1")
	m.look()
	m.setAPI(&reflector.Node{Name: "n1", Addresses: []string{"192.0.2.2", "no address"}})
	wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.3", "192.0.2.2", "192.0.2.1", "2001:db8::1")})
}

func TestNodePortAddressesAreWrittenFromTheFirstFillOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(Config{NodePortAddresses: model.NodePortAddresses{Primary: true}}, "192.0.2.1", "192.0.2.2")
		m.look()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.run(ctx)
		m.setAPI(&reflector.Node{Name: "n1", Addresses: []string{"192.0.2.2"}})
		synctest.Wait()
		if writes := m.writes(); len(writes) != 0 {
			t.Errorf("%v were written before the first lists were (R33)", writes)
		}
		m.begin()
		wantWrite(t, m, "192.0.2.2")
		m.setAPI(&reflector.Node{Name: "n1", Addresses: []string{"192.0.2.1"}})
		synctest.Wait()
		wantWrite(t, m, "192.0.2.1")

		m.mu.Lock()
		m.broken["publish"] = errors.New("the map is full")
		m.mu.Unlock()
		m.set("192.0.2.2")
		m.signal()
		synctest.Wait()
		wantFindings(t, m, "could not be written, some of those written before stay in force: the map is full")
		m.mu.Lock()
		clear(m.broken)
		m.mu.Unlock()
		sleep(nodeRefresh)
		wantWrite(t, m, "192.0.2.2")
		wantFindings(t, m)
	})
}

func wantWrite(t *testing.T, m *machine, addrs ...string) {
	t.Helper()
	writes := m.writes()
	if len(writes) == 0 || !slices.Equal(writes[len(writes)-1], parse(addrs...)) {
		t.Errorf("NodePort addresses written: %v, want %v at last", writes, addrs)
	}
}

func TestAnOlderAnswerOfTheKernelNeverGoesBeforeANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(Config{}, "192.0.2.1")
		m.look()
		asked, answer := make(chan struct{}), make(chan []netip.Addr)
		m.addresses = func() ([]netip.Addr, error) {
			asked <- struct{}{}
			return <-answer, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.run(ctx)
		m.signal()
		<-asked
		// While the kernel takes its time, an address changes and the API speaks.
		m.signal()
		m.setAPI(&reflector.Node{Name: "n1", Zone: "a"})
		answer <- parse("192.0.2.1")
		<-asked
		answer <- parse("192.0.2.2")
		synctest.Wait()
		wantNode(t, m.last(), model.Node{Name: "n1", Zone: "a", Addresses: parse("192.0.2.2")})
	})
}

func TestAddressesAreFollowedAgainWhenTheKernelLostSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(Config{}, "192.0.2.1")
		m.look()
		lost := make(chan error)
		m.follow = func(ctx context.Context, changed func()) error {
			changed()
			select {
			case err := <-lost:
				return err
			case <-ctx.Done():
				return nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.run(ctx)
		go m.watch(ctx)
		synctest.Wait()

		m.set("192.0.2.2")
		lost <- unix.ENOBUFS
		synctest.Wait()
		wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.2")})
		wantFindings(t, m, "may be seen late: no buffer space available")

		m.set("192.0.2.3")
		sleep(followRetry)
		wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.3")})
		wantFindings(t, m)
	})
}

func TestEverythingIsAskedForFromTimeToTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(Config{}, "192.0.2.1")
		m.look()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.run(ctx)
		m.set("192.0.2.2")
		sleep(nodeRefresh)
		wantNode(t, m.last(), model.Node{Name: "n1", Addresses: parse("192.0.2.2")})
	})
}

// sleep lets time pass in a bubble, and all that it wakes come to rest.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
