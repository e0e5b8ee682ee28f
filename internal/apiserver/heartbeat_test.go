// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// A kubeconfig names one server; the case's address is learned from slices.
func TestHeartbeat(t *testing.T) {
	for _, tc := range []struct {
		name  string
		serve func(t *testing.T, ours, theirs *authority) netip.AddrPort
		state string
		probe Answer
		err   string
	}{
		{"200 answers", func(t *testing.T, ours, _ *authority) netip.AddrPort { return ours.serve(serving{}).at }, api.EndpointAnswers, Answers, ""},
		{"200 over HTTP/1 answers", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{http1: true}).at
		}, api.EndpointAnswers, Answers, ""},
		{"401 answers: the token is not the matter", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{status: http.StatusUnauthorized}).at
		}, api.EndpointAnswers, Answers, ""},
		{"403 answers: the permission is not the matter", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{status: http.StatusForbidden}).at
		}, api.EndpointAnswers, Answers, ""},
		{"503 is unready, and an API server", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{status: http.StatusServiceUnavailable}).at
		}, api.EndpointUnready, Answers, "503"},
		{"429 is unready, and an API server", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{status: http.StatusTooManyRequests}).at
		}, api.EndpointUnready, Answers, "429"},
		{"a certificate for kubernetes.default.svc alone answers", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{names: []string{serviceName}}).at
		}, api.EndpointAnswers, Answers, ""},
		{"a certificate for the address alone is foreign: a kubelet may have one", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{names: []string{"127.0.0.1", "node-1"}}).at
		}, api.EndpointForeign, Foreign, "valid for node-1, not kubernetes.default.svc"},
		{"a certificate for another name is foreign", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{names: []string{"etcd.example"}}).at
		}, api.EndpointForeign, Foreign, "kubernetes.default.svc"},
		{"a certificate of another authority is foreign", func(t *testing.T, _, theirs *authority) netip.AddrPort {
			return theirs.serve(serving{}).at
		}, api.EndpointForeign, Foreign, "unknown authority"},
		{"an expired certificate is silent: the clock may be wrong", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{until: time.Now().Add(-time.Minute)}).at
		}, api.EndpointSilent, Silent, "expired"},
		{"a banner instead of TLS is foreign", func(t *testing.T, _, _ *authority) netip.AddrPort {
			return listen(t, "SSH-2.0-OpenSSH_9.2\r\n").at
		}, api.EndpointForeign, Foreign, "TLS"},
		{"HTTP instead of TLS is foreign", func(t *testing.T, _, _ *authority) netip.AddrPort {
			return listen(t, "HTTP/1.1 400 Bad Request\r\n\r\n").at
		}, api.EndpointForeign, Foreign, "TLS"},
		{"one who accepts and says nothing is silent", func(t *testing.T, _, _ *authority) netip.AddrPort {
			return listen(t, "").at
		}, api.EndpointSilent, Silent, "no answer within 300ms"},
		{"one who answers too late is silent", func(t *testing.T, ours, _ *authority) netip.AddrPort {
			return ours.serve(serving{delay: time.Minute}).at
		}, api.EndpointSilent, Silent, "300ms"},
		{"a refused connection is silent", func(t *testing.T, _, _ *authority) netip.AddrPort {
			return nobody(t)
		}, api.EndpointSilent, Silent, "refused"},
		{"one who asks for a certificate that we have not is silent", func(t *testing.T, ours, theirs *authority) netip.AddrPort {
			return ours.serve(serving{clients: theirs}).at
		}, api.EndpointSilent, Silent, "."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, theirs := newAuthority(t), newAuthority(t)
			cfg := quick()
			cfg.Timeout = 10 * time.Second
			if strings.HasSuffix(tc.err, "300ms") {
				cfg.Timeout = 300 * time.Millisecond
			}
			// Its address is no other server's.
			away := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), nobody(t).Port())
			c := ours.client(cfg, "https://"+away.String())
			target := tc.serve(t, ours, theirs)
			c.Learn(Slices, []netip.AddrPort{target})
			c.race(t.Context())
			url := "https://" + target.String()
			for _, e := range c.Status().Endpoints {
				if e.URL == url && (e.State != tc.state || !regexp.MustCompile(tc.err).MatchString(e.Error) || (e.Error == "") != (tc.err == "")) {
					t.Errorf("the endpoint is %s: %q; want %s: %q", e.State, e.Error, tc.state, tc.err)
				}
			}
			inUse := tc.state == api.EndpointAnswers || tc.state == api.EndpointUnready
			if current := c.Status().Current; (current == url) != inUse {
				t.Errorf("in use is %q", current)
			}
			answer, err := c.Probe(t.Context(), target)
			if answer != tc.probe || (err == nil) != (tc.probe == Answers) {
				t.Errorf("Probe says %s, %v; want %s", answer, err, tc.probe)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	t.Run("an endpoint in use gets the token", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		c := ours.client(quick(), s.url())
		connect(t, c)
		if body, err := ask(t.Context(), c, "/version"); err != nil || body != s.at.String() {
			t.Fatal(body, err)
		}
		for _, got := range s.saw() {
			if got != "Bearer "+secret {
				t.Errorf("the server got %q", got)
			}
		}
	})
	t.Run("Probe sends no credentials", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		c := ours.client(quick(), "https://"+nobody(t).String())
		if answer, err := c.Probe(t.Context(), s.at); answer != Answers || err != nil {
			t.Fatal(answer, err)
		}
		if got := s.saw(); len(got) != 1 || got[0] != "" {
			t.Errorf("the server got %q", got)
		}
	})
	t.Run("something foreign never gets a request", func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		other, misnamed := theirs.serve(serving{}), ours.serve(serving{names: []string{"etcd.example"}})
		talker := listen(t, "220 mail.example ESMTP\r\n")
		c := ours.client(quick(), "https://"+nobody(t).String())
		c.Learn(Slices, append(at(other, misnamed), talker.at))
		stop := run(t, c)
		eventually(t, "all are seen to be foreign", func() bool {
			n := 0
			for _, state := range states(c) {
				if state == api.EndpointForeign {
					n++
				}
			}
			return n == 3
		})
		if _, err := ask(t.Context(), c, "/api/v1/secrets"); err == nil {
			t.Error("somebody answered")
		}
		stop()
		if n := len(other.saw()) + len(misnamed.saw()); n > 0 {
			t.Errorf("%d requests arrived", n)
		}
		if strings.Contains(talker.heard(), secret) || strings.Contains(talker.heard(), "GET") {
			t.Errorf("in the clear: %q", talker.heard())
		}
	})
	t.Run("foreign endpoints are left alone until they are named anew", func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		other := theirs.serve(serving{})
		c := ours.client(quick(), "https://"+nobody(t).String())
		c.Learn(Slices, at(other))
		c.race(t.Context())
		seen := other.connections()
		for range 3 {
			c.race(t.Context())
			c.Learn(Slices, at(other))
		}
		if n := other.connections(); n != seen {
			t.Errorf("%d more connections", n-seen)
		}
		c.Learn(Kernel, at(other))
		c.race(t.Context())
		if other.connections() == seen {
			t.Error("it was not tried although another source named it")
		}
	})
	t.Run("something foreign is asked again after its pause, when nobody else answered: an authority may have changed", func(t *testing.T) {
		ours, theirs := newAuthority(t), newAuthority(t)
		other := theirs.serve(serving{})
		c := ours.client(quick(), other.url())
		c.race(t.Context())
		for _, tc := range []struct {
			after time.Duration
			want  int
		}{{foreignPause / 2, 0}, {foreignPause + time.Second, 1}} {
			heats := c.heats(time.Now().Add(tc.after))
			if n := len(heats[0].runners) + len(heats[1].runners); n != 0 {
				t.Errorf("%d of them run with the others", n)
			}
			if n := len(heats[2].runners); n != tc.want {
				t.Errorf("after %s, %d of them run", tc.after, n)
			}
		}
	})
	t.Run("without an authority of the cluster's own, learned addresses are not used", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		cfg := ours.withKubeconfig(quick(), "https://"+nobody(t).String())
		config, err := RESTConfig(cfg.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.CAFile, config.Insecure = "", true
		c, err := newClient(cfg, config)
		if err != nil {
			t.Fatal(err)
		}
		c.Learn(Slices, at(s))
		c.race(t.Context())
		if answer, err := c.Probe(t.Context(), s.at); answer != Silent || !errors.Is(err, errNotVerifying) {
			t.Errorf("Probe says %s, %v", answer, err)
		}
		if n := s.connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}
