// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 15 * time.Second

var (
	web, mail  = model.Name{Namespace: "shop", Name: "web"}, model.Name{Namespace: "shop", Name: "mail"}
	everywhere = []netip.Addr{netip.IPv4Unspecified()}
)

// node is a network namespace in which health checks are answered.
type node struct {
	*Services
	ns   *lab.NetNS
	sick atomic.Pointer[model.Name] // the Service that the node does not serve well
}

// newNode has the addresses 192.0.2.1 and 2001:db8::1.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{ns: lab.NewNetNS(t, "n1")}
	n.ns.Addr(t, "lo", "192.0.2.1/32")
	n.ns.Addr(t, "lo", "2001:db8::1/128")
	n.Services = NewServices(func(name model.Name) bool {
		sick := n.sick.Load()
		return sick == nil || *sick != name
	}, slog.New(slog.DiscardHandler))
	return n
}

// run runs the servers until the test ends.
func (n *node) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go n.ns.Do(func() { ended <- n.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func (n *node) dial(at string) (conn net.Conn, err error) {
	n.ns.Do(func() { conn, err = net.DialTimeout("tcp", at, time.Second) })
	return conn, err
}

// ask returns the answer at an address: "200 shop/web 2 true", with the weight
// only where it differs from the count; or why there is none.
func (n *node) ask(at string) string {
	conn, err := n.dial(at)
	if err != nil {
		return cause(err)
	}
	defer conn.Close()
	return n.askOn(conn)
}

func (n *node) askOn(conn net.Conn) string {
	response, body, err := roundTrip(conn)
	if err != nil {
		return cause(err)
	}
	var v verdict
	if err := json.Unmarshal(body, &v); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%d %s/%s %d %v", response.StatusCode, v.Service.Namespace, v.Service.Name, v.LocalEndpoints, v.ServiceProxyHealthy)
	if weight := response.Header.Get("X-Load-Balancing-Endpoint-Weight"); weight != fmt.Sprint(v.LocalEndpoints) {
		text += " weight " + weight
	}
	return text
}

func roundTrip(conn net.Conn) (*http.Response, []byte, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, nil, err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
		return nil, nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

func cause(err error) string {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// wants asks until the answer is the one.
func (n *node) wants(t *testing.T, at, want string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := n.ask(at)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answers %q, want %q", at, got, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func check(port uint16, endpoints int) model.HealthCheck {
	return model.HealthCheck{Port: port, LocalEndpoints: endpoints}
}

func TestAServiceIsAnsweredFor(t *testing.T) {
	n := newNode(t)
	n.run(t)
	n.Set(web, check(32000, 2))
	if got := n.ask("192.0.2.1:32000"); got != "ECONNREFUSED" {
		t.Errorf("before there are addresses to listen on: %s", got)
	}
	n.ListenOn(everywhere)
	n.wants(t, "192.0.2.1:32000", "200 shop/web 2 true")
	conn, err := n.dial("192.0.2.1:32000")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"with ready endpoints here (R29)", func() {}, "200 shop/web 2 true"},
		{"without (R29)", func() { n.Set(web, check(32000, 0)) }, "503 shop/web 0 true"},
		{"by a proxy that is not well (R29)", func() { n.Set(web, check(32000, 1)); n.sick.Store(&web) }, "503 shop/web 1 false"},
		{"that is well again", func() { n.sick.Store(nil) }, "200 shop/web 1 true"},
		{"while another one is served badly", func() { n.sick.Store(&mail) }, "200 shop/web 1 true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			if got := n.askOn(conn); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("as kube-proxy writes it (R29)", func(t *testing.T) {
		response, body, err := roundTrip(conn)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"service":{"namespace":"shop","name":"web"},"localEndpoints":1,"serviceProxyHealthy":true}` + "\n"
		if string(body) != want {
			t.Errorf("got %s", body)
		}
		for key, want := range map[string]string{
			"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "X-Load-Balancing-Endpoint-Weight": "1",
		} {
			if got := response.Header.Get(key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
	})
}

func TestListenersFollowTheServices(t *testing.T) {
	n := newNode(t)
	n.run(t)
	n.ListenOn(everywhere)
	n.Set(mail, check(32001, 1))
	n.wants(t, "192.0.2.1:32001", "200 shop/mail 1 true")
	// Whatever happens to web, this connection to mail goes on.
	kept, err := n.dial("192.0.2.1:32001")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { kept.Close() }()

	for _, c := range []struct {
		name string
		do   func()
		want map[string]string
		// anew says that no listener can stay: those on all addresses give way
		// to those on some.
		anew bool
	}{
		{"every address of both families answers, loopback too (R26)", func() { n.Set(web, check(32000, 1)) },
			map[string]string{
				"192.0.2.1:32000": "200 shop/web 1 true", "[2001:db8::1]:32000": "200 shop/web 1 true",
				"127.0.0.1:32000": "200 shop/web 1 true", "[::1]:32000": "200 shop/web 1 true",
			}, false},
		{"another port (R29)", func() { n.Set(web, check(32002, 1)) },
			map[string]string{"192.0.2.1:32002": "200 shop/web 1 true", "192.0.2.1:32000": "ECONNREFUSED"}, false},
		{"a port that changes hands (R29)", func() { n.Remove(web); n.Set(model.Name{Namespace: "a", Name: "b"}, check(32002, 3)) },
			map[string]string{"192.0.2.1:32002": "200 a/b 3 true"}, false},
		{"given addresses only (R24)", func() { n.ListenOn([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1")}) },
			map[string]string{
				"192.0.2.1:32002": "200 a/b 3 true", "[::1]:32002": "200 a/b 3 true",
				"127.0.0.1:32002": "ECONNREFUSED", "[2001:db8::1]:32002": "ECONNREFUSED",
			}, true},
		{"an address more leaves the others alone (R24)", func() {
			n.ListenOn([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("2001:db8::1")})
		}, map[string]string{"192.0.2.1:32002": "200 a/b 3 true", "[2001:db8::1]:32002": "200 a/b 3 true"}, false},
		{"a Service that goes (R29)", func() { n.Remove(model.Name{Namespace: "a", Name: "b"}) },
			map[string]string{"192.0.2.1:32002": "ECONNREFUSED"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			for at, want := range c.want {
				n.wants(t, at, want)
			}
			n.wants(t, "192.0.2.1:32001", "200 shop/mail 1 true")
			if c.anew {
				kept.Close()
				if kept, err = n.dial("192.0.2.1:32001"); err != nil {
					t.Fatal(err)
				}
			}
			if got := n.askOn(kept); got != "200 shop/mail 1 true" {
				t.Errorf("the neighbour's connection: %s", got)
			}
		})
	}
}

func TestAPortThatCannotBeHadIsShownAndTriedAgain(t *testing.T) {
	n := newNode(t)
	n.run(t)
	var other net.Listener
	n.ns.Do(func() {
		var err error
		if other, err = net.Listen("tcp", "192.0.2.1:32000"); err != nil {
			t.Fatal(err)
		}
	})
	n.ListenOn(everywhere)
	n.Set(web, check(32000, 1))
	n.Set(mail, check(32001, 1))
	n.wants(t, "192.0.2.1:32001", "200 shop/mail 1 true")
	// The ports are tried in no order.
	states := n.States()
	for deadline := time.Now().Add(patience); states[1].Error == "" && time.Now().Before(deadline); states = n.States() {
		time.Sleep(5 * time.Millisecond)
	}
	if len(states) != 2 || states[0].Service != mail || states[0].Error != "" || states[0].Listening[0].String() != "0.0.0.0:32001" {
		t.Errorf("mail: %+v", states)
	}
	if bad := states[1]; !strings.Contains(bad.Error, "32000: bind: address already in use") || len(bad.Listening) != 0 {
		t.Errorf("web: %+v", bad)
	}
	other.Close()
	n.wants(t, "192.0.2.1:32000", "200 shop/web 1 true")
	if state := n.States()[1]; state.Error != "" || !state.Well() {
		t.Errorf("healed, and yet %+v", state)
	}
}

func TestAListenerThatEndsByItselfIsOpenedAnew(t *testing.T) {
	n := newNode(t)
	n.Set(web, check(32000, 1))
	n.ListenOn(everywhere)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	n.serve(place{web, netip.MustParseAddrPort("0.0.0.0:32000")}, listener)
	n.serving.Wait()
	if state := n.States()[0]; !strings.Contains(state.Error, "closed") || len(state.Listening) != 0 {
		t.Errorf("state %+v", state)
	}
	n.run(t)
	n.wants(t, "192.0.2.1:32000", "200 shop/web 1 true")
}

func TestItSaysWhatItHolds(t *testing.T) {
	n := newNode(t)
	n.run(t)
	n.ListenOn(everywhere)
	n.Set(web, check(32000, 1))
	n.wants(t, "192.0.2.1:32000", "200 shop/web 1 true")
	if held := n.Held(); len(held) != 1 || held[0].String() != "0.0.0.0:32000" {
		t.Errorf("held: %v", held)
	}
}

// After any history each wanted place is listened on, unless another Service
// has it, and no listener was opened anew that could stay.
func TestListenersAreThoseThatAreWanted(t *testing.T) {
	n := newNode(t)
	names := []model.Name{web, mail, {Namespace: "a", Name: "b"}}
	addresses := [][]netip.Addr{everywhere, {netip.MustParseAddr("192.0.2.1")}, {netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, nil}
	rapid.Check(t, func(t *rapid.T) {
		defer n.close()
		n.ListenOn(nil)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "service")
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				n.Remove(name)
			case 1:
				n.ListenOn(rapid.SampledFrom(addresses).Draw(t, "addresses"))
			default:
				n.Set(name, check(rapid.SampledFrom([]uint16{32000, 32001, 32002}).Draw(t, "port"), 1))
			}
			before := map[place]*listening{}
			for p, server := range n.servers {
				before[p] = server
			}
			n.ns.Do(func() { n.adjust(context.Background()) })
			wanted := n.wanted()
			for p, server := range n.servers {
				if !wanted[p] || before[p] != nil && before[p] != server {
					t.Fatalf("%v: wanted %v, opened anew %v", p, wanted[p], before[p] != nil)
				}
			}
			for p := range wanted {
				taken := slices.ContainsFunc(names, func(o model.Name) bool { return o != p.service && n.servers[place{o, p.at}] != nil })
				if (n.servers[p] == nil) != taken || (n.failed[p] != nil) != taken {
					t.Fatalf("%v: listens %v, failed %v, taken %v", p, n.servers[p] != nil, n.failed[p], taken)
				}
			}
			if len(n.failed)+len(n.servers) != len(wanted) {
				t.Fatalf("%d servers and %d failures for %d places", len(n.servers), len(n.failed), len(wanted))
			}
		}
		for _, name := range names {
			n.Remove(name)
		}
	})
}
