// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// current waits until the server is the one in use.
func current(t *testing.T, c *Client, s *server) {
	t.Helper()
	eventually(t, "using "+s.url(), func() bool { return c.Status().Current == s.url() })
}

func TestRace(t *testing.T) {
	t.Run("while all is well, only the endpoint in use is asked", func(t *testing.T) {
		ours := newAuthority(t)
		a, b := ours.serve(serving{}), ours.serve(serving{})
		cfg := quick()
		cfg.Timeout = time.Minute
		c := ours.client(cfg, a.url())
		connect(t, c)
		c.Learn(Slices, at(b))
		stop := run(t, c)
		eventually(t, "five heartbeats", func() bool { return len(a.saw()) > 5 })
		stop()
		if n := b.connections(); n != 0 {
			t.Errorf("the other one got %d connections", n)
		}
		if n := a.connections(); n != 1 {
			t.Errorf("the endpoint in use got %d connections", n)
		}
	})
	t.Run("the last good one is tried first, then all others at once, then a pod's Service address", func(t *testing.T) {
		ours := newAuthority(t)
		place := func(last byte) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, last}), 6443)
		}
		cfg := quick()
		cfg.Servers = []string{place(2).String()}
		c := ours.inPod(cfg, place(1))
		c.Learn(Kernel, []netip.AddrPort{place(5), place(4)})
		c.Learn(Slices, []netip.AddrPort{place(3)})
		c.Learn(File, []netip.AddrPort{place(4), place(6)})
		var got []string
		for _, h := range c.heats(time.Now()) {
			var hosts []string
			for _, r := range h.runners {
				hosts = append(hosts, r.endpoint.url.Hostname())
			}
			got = append(got, strings.Join(hosts, " "))
		}
		if want := []string{"192.0.2.4", "192.0.2.2 192.0.2.3 192.0.2.5 192.0.2.6", "192.0.2.1"}; !slices.Equal(got, want) {
			t.Errorf("they start in this order: %q", got)
		}
	})
	t.Run("agents do not all begin with the same of several servers", func(t *testing.T) {
		ours := newAuthority(t)
		places := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443"), netip.MustParseAddrPort("192.0.2.2:6443"), netip.MustParseAddrPort("192.0.2.3:6443")}
		begin := map[string]int{}
		for range 64 {
			c := ours.inPod(quick(), netip.MustParseAddrPort("192.0.2.9:443"))
			c.Learn(Slices, places)
			begin[c.heats(time.Now())[0].runners[0].endpoint.key()]++
			if got := c.Known(); !slices.Equal(got, c.Known()) || len(got) != 3 {
				t.Fatalf("known is %v", got)
			}
		}
		if len(begin) != len(places) {
			t.Errorf("64 agents begin with %v", begin)
		}
	})
	t.Run("a first one that refuses does not use up its head start", func(t *testing.T) {
		ours := newAuthority(t)
		a, b := ours.serve(serving{}), ours.serve(serving{})
		cfg := quick()
		cfg.Timeout = time.Hour
		c := ours.client(cfg, a.url())
		connect(t, c)
		c.Learn(Slices, at(b))
		a.stop()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if !c.race(ctx) || c.Status().Current != b.url() {
			t.Errorf("using %s", c.Status().Current)
		}
	})
	t.Run("a first one that says nothing holds nobody up", func(t *testing.T) {
		ours := newAuthority(t)
		b := ours.serve(serving{})
		cfg := quick()
		cfg.Timeout = time.Minute
		c := ours.client(cfg, "https://"+listen(t, "").at.String())
		c.Learn(Slices, at(b))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c.race(ctx)
		if got := c.Status().Current; got != b.url() {
			t.Errorf("using %q", got)
		}
	})
	t.Run("one that is not ready is used while nothing better is there", func(t *testing.T) {
		ours := newAuthority(t)
		a, b := ours.serve(serving{status: http.StatusInternalServerError}), ours.serve(serving{status: http.StatusInternalServerError})
		cfg := quick()
		cfg.Timeout = 20 * time.Second
		c := ours.client(cfg, a.url())
		c.Learn(Slices, at(b))
		connect(t, c)
		used, better := a, b
		if c.Status().Current == b.url() {
			used, better = b, a
		}
		used.set(func(s *server) { s.delay = 2 * headStart }) // it is the last to answer
		for range 3 {
			if !c.race(t.Context()) || c.Status().Current != used.url() {
				t.Fatalf("it moved from %s to %q", used.url(), c.Status().Current)
			}
		}
		better.set(func(s *server) { s.status = http.StatusOK })
		run(t, c)
		current(t, c, better)
	})
	t.Run("a pod's Service address is used only while nothing else answers", func(t *testing.T) {
		ours := newAuthority(t)
		service, direct := ours.serve(serving{}), ours.serve(serving{})
		cfg := quick()
		cfg.Heartbeat = time.Hour // so that nothing is left to chance
		c := ours.inPod(cfg, service.at)
		connect(t, c)
		if got := c.Status().Current; got != service.url() {
			t.Fatalf("using %q", got)
		}
		run(t, c)
		eventually(t, "the race with which Run begins", func() bool { return len(service.saw()) > 1 })
		c.Learn(Slices, at(direct))
		current(t, c, direct)
		if known := c.Known(); !slices.Equal(known, at(direct)) {
			t.Errorf("known is %v", known)
		}
		direct.stop()
		if got, err := ask(t.Context(), c, "/version"); err != nil || got != service.at.String() {
			t.Errorf("without it, got %q, %v", got, err)
		}
	})
	t.Run("an endpoint in use that turns foreign is left although nobody else answers", func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		a := ours.serve(serving{})
		c := ours.client(quick(), a.url())
		connect(t, c)
		a.stop()
		theirs.serveAt(serving{}, a.at.String())
		run(t, c)
		eventually(t, "it is left", func() bool { return c.Status().Current == "" })
		if state := states(c)[a.url()]; state != api.EndpointForeign {
			t.Errorf("it is %s", state)
		}
	})
	t.Run("an endpoint in use that falls silent stays in use while nobody else answers", func(t *testing.T) {
		ours := newAuthority(t)
		a := ours.serve(serving{})
		c := ours.client(quick(), a.url())
		connect(t, c)
		a.set(func(s *server) { s.delay = time.Minute })
		if c.race(t.Context()) {
			t.Fatal("somebody answered")
		}
		if s := c.Status(); s.Current != a.url() || s.Endpoints[0].State != api.EndpointSilent {
			t.Errorf("%+v", s)
		}
	})
}

func TestMove(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*server)
	}{
		{"is killed", (*server).stop},
		{"says that it is not ready", func(s *server) { s.set(func(s *server) { s.status = http.StatusInternalServerError }) }},
		{"answers nothing any more", func(s *server) { s.set(func(s *server) { s.delay = time.Minute }) }},
	} {
		t.Run("the agent moves on when the endpoint in use "+tc.name, func(t *testing.T) {
			ours := newAuthority(t)
			a, b := ours.serve(serving{}), ours.serve(serving{})
			c := ours.client(quick(), a.url())
			connect(t, c)
			c.Learn(Slices, at(b))
			run(t, c)
			drain(c)
			tc.fail(a)
			current(t, c, b)
			select {
			case <-c.Changed():
			default:
				t.Error("the change was not told")
			}
			if known := c.Known(); known[0] != b.at {
				t.Errorf("known is %v", known)
			}
		})
	}
	t.Run("a request that meets a dead endpoint is answered by the next one", func(t *testing.T) {
		ours := newAuthority(t)
		a, b := ours.serve(serving{}), ours.serve(serving{})
		cfg := quick()
		cfg.Heartbeat = time.Hour
		c := ours.client(cfg, a.url())
		connect(t, c)
		c.Learn(Slices, at(b))
		run(t, c)
		a.stop()
		if got, err := ask(t.Context(), c, "/version"); err != nil || got != b.at.String() {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("while nobody answers, requests say why, and a server that comes back is used again", func(t *testing.T) {
		ours := newAuthority(t)
		a := ours.serve(serving{})
		c := ours.client(quick(), a.url())
		connect(t, c)
		run(t, c)
		a.stop()
		eventually(t, "it is silent", func() bool { return states(c)[a.url()] == api.EndpointSilent })
		if _, err := ask(t.Context(), c, "/version"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a request says %v", err)
		}
		ours.serveAt(serving{}, a.at.String())
		eventually(t, "an answer", func() bool { _, err := ask(t.Context(), c, "/version"); return err == nil })
	})
	t.Run("a dead connection is replaced although its server is the only one", func(t *testing.T) {
		ours := newAuthority(t)
		a := ours.serve(serving{})
		relay := newRelay(t, a.at)
		c := ours.client(quick(), "https://"+relay.at.String())
		connect(t, c)
		run(t, c)
		relay.freeze()
		connections := a.connections()
		eventually(t, "a new connection", func() bool { return a.connections() > connections })
		if _, err := ask(t.Context(), c, "/version"); err != nil {
			t.Error(err)
		}
	})
}

func TestAnEndpointInUseThatNobodyNamesAnyMoreIsStillAnEndpoint(t *testing.T) {
	ours := newAuthority(t)
	a := ours.serve(serving{})
	c := ours.client(quick(), "https://"+nobody(t).String())
	c.Learn(Slices, at(a))
	connect(t, c)
	c.Learn(Slices, []netip.AddrPort{nobody(t)})
	run(t, c)
	a.stop()
	eventually(t, "it is silent", func() bool { return states(c)[a.url()] == api.EndpointSilent })
	ours.serveAt(serving{}, a.at.String())
	eventually(t, "it answers", func() bool { return states(c)[a.url()] == api.EndpointAnswers })
	if got := c.Status().Current; got != a.url() {
		t.Errorf("using %q", got)
	}
}

func drain(c *Client) {
	select {
	case <-c.Changed():
	default:
	}
}

func TestConnect(t *testing.T) {
	short := quick()
	short.Timeout = 100 * time.Millisecond
	t.Run("with a direct address, nobody answering is no error, and requests say why", func(t *testing.T) {
		ours := newAuthority(t)
		c := ours.client(short, "https://"+nobody(t).String())
		connect(t, c)
		run(t, c)
		_, err := ask(t.Context(), c, "/version")
		if err == nil || !strings.Contains(err.Error(), "no API server answers (https://127.0.0.1:") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a request says %v", err)
		}
	})
	t.Run("a request that comes first waits for the first answer", func(t *testing.T) {
		ours := newAuthority(t)
		c := ours.client(quick(), ours.serve(serving{delay: 100 * time.Millisecond}).url())
		answered := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), c, "/version")
			answered <- err
		}()
		connect(t, c)
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
	t.Run("with a Service address alone, nobody answering names the flag", func(t *testing.T) {
		ours := newAuthority(t)
		err := ours.inPod(short, nobody(t)).Connect(t.Context())
		if !errors.Is(err, ErrNoDirectAddress) || !strings.Contains(err.Error(), "--api-server") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a server that starts within the bound is found", func(t *testing.T) {
		ours := newAuthority(t)
		place := nobody(t)
		cfg := quick()
		cfg.Timeout = 5 * time.Second
		c := ours.inPod(cfg, place)
		found := make(chan error, 1)
		go func() { found <- c.Connect(t.Context()) }()
		time.Sleep(300 * time.Millisecond) // it has tried
		ours.serveAt(serving{}, place.String())
		if err := <-found; err != nil {
			t.Error(err)
		}
	})
	t.Run("a flag is a direct address in a pod", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{names: []string{serviceName}})
		cfg := quick()
		cfg.Servers = []string{s.at.String()}
		c := ours.inPod(cfg, nobody(t))
		connect(t, c)
		if got := c.String(); got != s.url() {
			t.Errorf("using %s", got)
		}
	})
}

func TestLearn(t *testing.T) {
	ours := newAuthority(t)
	a, b, d := netip.MustParseAddrPort("192.0.2.1:6443"), netip.MustParseAddrPort("192.0.2.2:6443"), netip.MustParseAddrPort("[2001:db8::4]:6443")
	const own = "https://api.example:6443/k8s/clusters/c-1"
	for _, tc := range []struct {
		name  string
		learn func(*Client)
		known []netip.AddrPort
	}{
		{"a URL with a path or a name is no address", func(*Client) {}, nil},
		{"a source replaces what it said", func(c *Client) {
			c.Learn(Slices, []netip.AddrPort{a, b})
			c.Learn(Slices, []netip.AddrPort{d})
		}, []netip.AddrPort{d}},
		{"an empty list is ignored: stale is not empty", func(c *Client) {
			c.Learn(Slices, []netip.AddrPort{a})
			c.Learn(Slices, nil)
		}, []netip.AddrPort{a}},
		{"what another source named stays", func(c *Client) {
			c.Learn(Kernel, []netip.AddrPort{a})
			c.Learn(Slices, []netip.AddrPort{a, b})
			c.Learn(Slices, []netip.AddrPort{b})
		}, []netip.AddrPort{b, a}},
		{"the last good one of the file is in front", func(c *Client) {
			c.Learn(Slices, []netip.AddrPort{a, b})
			c.Learn(File, []netip.AddrPort{b, d})
		}, []netip.AddrPort{b, a, d}},
		{"mapped addresses are those that they map", func(c *Client) {
			c.Learn(Slices, []netip.AddrPort{a, netip.MustParseAddrPort("[::ffff:192.0.2.1]:6443")})
		}, []netip.AddrPort{a}},
		{"what no server can have is left out", func(c *Client) {
			c.Learn(Slices, []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:1"), netip.MustParseAddrPort("192.0.2.1:0"), a})
		}, []netip.AddrPort{a}},
		{"what only the file names, and is gone, is forgotten once the slices were heard", func(c *Client) {
			c.Learn(File, []netip.AddrPort{a, b})
			c.note("https://"+a.String(), verdict{state: api.EndpointSilent})
			c.Learn(Slices, []netip.AddrPort{d})
		}, []netip.AddrPort{d, b}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := ours.client(quick(), own)
			tc.learn(c)
			if got := c.Known(); !slices.Equal(got, tc.known) {
				t.Errorf("known is %v, want %v", got, tc.known)
			}
		})
	}
	t.Run("what an earlier run knew of another cluster is nobody's endpoint once the slices were heard", func(t *testing.T) {
		theirs := newAuthority(t)
		other, another, service := theirs.serve(serving{}), theirs.serve(serving{}), nobody(t)
		real := ours.serve(serving{})
		c := ours.inPod(quick(), service)
		c.Learn(File, at(other))
		c.Learn(Kernel, at(another))
		if c.race(t.Context()) {
			t.Fatal("somebody answered")
		}
		if n := len(c.Status().Endpoints); n != 3 {
			t.Errorf("%d endpoints before, want 3", n)
		}
		c.Learn(Slices, at(real))
		if !c.race(t.Context()) {
			t.Fatal("nobody answered")
		}
		got := states(c)
		if len(got) != 2 || got[real.url()] != api.EndpointAnswers || got["https://"+service.String()] != api.EndpointSilent {
			t.Errorf("the endpoints are %v", got)
		}
	})
	t.Run("Changed is signalled when Known changes, and only then", func(t *testing.T) {
		c := ours.client(quick(), own)
		told := func() bool {
			select {
			case <-c.Changed():
				return true
			default:
				return false
			}
		}
		c.Learn(Slices, []netip.AddrPort{a})
		if !told() {
			t.Error("a new address was not told")
		}
		c.Learn(Slices, []netip.AddrPort{a})
		c.Learn(Slices, nil)
		if told() {
			t.Error("the same again was told")
		}
	})
}
