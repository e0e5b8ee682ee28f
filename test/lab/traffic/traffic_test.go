// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m, Roles) }

const (
	client4, server4 = "192.0.2.1", "192.0.2.2"
	client6, server6 = "2001:db8::1", "2001:db8::2"
)

// wire is a client's and a server's machine with a cable between them.
func wire(t *testing.T) (client, server *lab.NetNS) {
	client, server = lab.NewNetNS(t, "client"), lab.NewNetNS(t, "server")
	lab.Veth(t,
		lab.End{NetNS: client, Link: "eth0", Addrs: []string{client4 + "/24", client6 + "/64"}},
		lab.End{NetNS: server, Link: "eth0", Addrs: []string{server4 + "/24", server6 + "/64"}})
	return client, server
}

func TestAsk(t *testing.T) {
	clientNS, serverNS := wire(t)
	client := StartClient(t, lab.Place{NetNS: clientNS, Cgroup: lab.NewCgroup(t)})

	for name, c := range map[string]struct {
		network  Network
		listen   Network
		at       string // where the server listens
		to       string // as the client writes it
		from     string // as the server sees the client
		peername bool
		sender   bool
	}{
		"TCP":                                 {TCP, TCP, server4, server4, client4, true, false},
		"TCP over IPv6":                       {TCP, TCP, server6, server6, client6, true, false},
		"TCP to a mapped address":             {TCP, TCP, server4, "::ffff:" + server4, client4, true, false},
		"MPTCP":                               {MPTCP, TCP, server4, server4, client4, true, false},
		"connected UDP":                       {UDP, UDP, server4, server4, client4, true, true},
		"connected UDP over IPv6":             {UDP, UDP, server6, server6, client6, true, true},
		"unconnected UDP":                     {UDPUnconnected, UDP, server4, server4, client4, false, true},
		"unconnected UDP over IPv6":           {UDPUnconnected, UDP, server6, server6, client6, false, true},
		"unconnected UDP to a mapped address": {UDPUnconnected, UDP, server4, "::ffff:" + server4, client4, false, true},
	} {
		t.Run(name+" tells both ends what the other sees", func(t *testing.T) {
			server := Listen(t, serverNS, "web", c.listen, netip.AddrPortFrom(netip.MustParseAddr(c.at), 0).String())
			to := netip.AddrPortFrom(netip.MustParseAddr(c.to), server.Addr().Port())

			reply := client.Ask(c.network, to.String())

			if reply.Error != "" {
				t.Fatalf("error %s", reply.Error)
			}
			if got, want := reply.Peer.Addr().String(), c.from; got != want {
				t.Errorf("the server sees %s, want %s", got, want)
			}
			if c.network != UDPUnconnected && reply.Peer.Port() != reply.Sockname.Port() {
				t.Errorf("the server sees port %d, the client has %d", reply.Peer.Port(), reply.Sockname.Port())
			}
			want := Reply{Answer: Answer{Server: "web", Local: server.Addr(), Peer: reply.Peer}, Sockname: reply.Sockname}
			if c.peername {
				want.Peername = to
			}
			if c.sender {
				want.From = to
			}
			if diff := cmp.Diff(want, reply, cmp.Comparer(sameAddrPort)); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
			if server.Served() != 1 {
				t.Errorf("served %d, want 1", server.Served())
			}
		})
	}
}

func sameAddrPort(a, b netip.AddrPort) bool { return a == b }

func TestErrors(t *testing.T) {
	clientNS, serverNS := wire(t)
	client := StartClient(t, lab.Place{NetNS: clientNS})
	serverNS.Route(t, netip.MustParsePrefix("198.51.100.0/24"), netip.Addr{}, "eth0")
	clientNS.Route(t, netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr(server4), "eth0")
	client.Timeout = 100 * time.Millisecond

	for name, c := range map[string]struct {
		network Network
		to      string
		err     string
	}{
		"a port where nobody listens refuses TCP":           {TCP, server4 + ":9", "ECONNREFUSED"},
		"a port where nobody listens refuses connected UDP": {UDP, server4 + ":9", "ECONNREFUSED"},
		"an address without a route is unreachable":         {TCP, "203.0.113.1:80", "ENETUNREACH"},
		"silence is a timeout on TCP":                       {TCP, "198.51.100.1:80", "ETIMEDOUT"},
		"silence is a timeout on unconnected UDP":           {UDPUnconnected, server4 + ":9", "ETIMEDOUT"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := client.Ask(c.network, c.to).Error; got != c.err {
				t.Errorf("error %q, want %q", got, c.err)
			}
		})
	}
}

func TestConn(t *testing.T) {
	clientNS, serverNS := wire(t)
	client := StartClient(t, lab.Place{NetNS: clientNS})

	t.Run("an open connection keeps its ends from question to question", func(t *testing.T) {
		for _, network := range []Network{TCP, UDP, UDPUnconnected} {
			listen := network
			if network == UDPUnconnected {
				listen = UDP
			}
			server := Listen(t, serverNS, "web", listen, server4+":0")
			conn, reply := client.Open(network, server.Addr().String())
			if reply.Error != "" {
				t.Fatalf("%s: %s", network, reply.Error)
			}
			first, second := conn.Ask(), conn.Ask()
			if first.Error != "" || !cmp.Equal(first.Answer, second.Answer, cmp.Comparer(sameAddrPort)) {
				t.Errorf("%s: first %+v, then %+v", network, first, second)
			}
			conn.Close()
		}
	})

	t.Run("one unconnected socket asks several servers, and hears each at its own address", func(t *testing.T) {
		a, b := Listen(t, serverNS, "a", UDP, server4+":0"), Listen(t, serverNS, "b", UDP, server4+":0")
		conn, _ := client.Open(UDPUnconnected, a.Addr().String())
		defer conn.Close()
		for _, server := range []*Server{b, a, b} {
			reply := conn.AskAt(server.Addr().String())
			if reply.Server != server.name || reply.From != server.Addr() {
				t.Errorf("at %s: %s answers from %s", server.Addr(), reply, reply.From)
			}
		}
	})

	t.Run("a UDP socket that is connected again talks to its new peer", func(t *testing.T) {
		a, b := Listen(t, serverNS, "a", UDP, server4+":0"), Listen(t, serverNS, "b", UDP, server4+":0")
		conn, _ := client.Open(UDP, a.Addr().String())
		defer conn.Close()
		if reply := conn.Connect(b.Addr().String()); reply.Error != "" {
			t.Fatal(reply.Error)
		}
		if reply := conn.Ask(); reply.Server != "b" || reply.Peername != b.Addr() {
			t.Errorf("%s answers, the peer is %s", reply, reply.Peername)
		}
	})

	t.Run("connections end with their server", func(t *testing.T) {
		server := Listen(t, serverNS, "web", TCP, server4+":0")
		conn, _ := client.Open(TCP, server.Addr().String())
		if reply := conn.Ask(); reply.Error != "" {
			t.Fatal(reply.Error)
		}
		server.Close()
		if got := conn.Watch(); got != "EOF" {
			t.Errorf("it is told %q, want EOF", got)
		}
		if got := conn.Ask().Error; got != "EOF" && got != "ECONNRESET" && got != "EPIPE" {
			t.Errorf("error %q, want that of a closed connection", got)
		}
		if got := client.Ask(TCP, server.Addr().String()).Error; got != "ECONNREFUSED" {
			t.Errorf("error %q, want ECONNREFUSED", got)
		}
	})

	t.Run("a socket to which nothing happens is watched until the time is over", func(t *testing.T) {
		server := Listen(t, serverNS, "web", UDP, server4+":0")
		conn, _ := client.Open(UDP, server.Addr().String())
		defer conn.Close()
		client.Timeout = 100 * time.Millisecond
		defer func() { client.Timeout = defaultTimeout }()
		if got := conn.Watch(); got != "ETIMEDOUT" {
			t.Errorf("error %q, want ETIMEDOUT", got)
		}
	})

	t.Run("a bound socket keeps its address", func(t *testing.T) {
		server := Listen(t, serverNS, "web", TCP, server4+":0")
		client.From = netip.MustParseAddrPort(client4 + ":4321")
		defer func() { client.From = netip.AddrPort{} }()
		if got := client.Ask(TCP, server.Addr().String()).Peer; got != client.From {
			t.Errorf("the server sees %s, want %s", got, client.From)
		}
	})
}

func TestMany(t *testing.T) {
	clientNS, serverNS := wire(t)
	client := StartClient(t, lab.Place{NetNS: clientNS})
	server := Listen(t, serverNS, "web", TCP, server4+":0")

	got := client.Many(TCP, server.Addr().String(), 200)
	if diff := cmp.Diff(Tally{Servers: map[string]int{"web": 200}, Errors: map[string]int{}}, got); diff != "" {
		t.Errorf("200 questions (-want +got):\n%s", diff)
	}
	if server.Served() != 200 {
		t.Errorf("the server counts %d, want 200", server.Served())
	}

	got = client.Many(TCP, server4+":9", 3)
	if diff := cmp.Diff(Tally{Servers: map[string]int{}, Errors: map[string]int{"ECONNREFUSED": 3}}, got); diff != "" {
		t.Errorf("3 questions to nobody (-want +got):\n%s", diff)
	}
}
