// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/api"
)

// open makes a request and reads how its answer begins.
func open(t *testing.T, c *Client, path string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, anyEndpoint+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	begin := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, begin); err != nil || string(begin) != "begin" {
		t.Fatalf("the answer begins with %q, %v", begin, err)
	}
	return resp
}

// ending reads on until the answer ends, which has to be soon.
func ending(t *testing.T, resp *http.Response) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := resp.Body.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(10 * time.Second):
		resp.Body.Close()
		t.Fatal("it does not end")
		return nil
	}
}

func TestAnswersInFlight(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		for _, tc := range []struct {
			name string
			fail func(*server)
		}{
			{"the endpoint is left", func(s *server) { s.set(func(s *server) { s.status = http.StatusInternalServerError }) }},
			{"the server dies", func(s *server) { s.http.CloseClientConnections() }},
		} {
			setup := func(t *testing.T) (*Client, *server) {
				ours := newAuthority(t)
				a, b := ours.serve(serving{http1: http1}), ours.serve(serving{http1: http1})
				c := ours.client(quick(), a.url())
				connect(t, c)
				c.Learn(Slices, at(b))
				return c, a
			}
			t.Run(fmt.Sprintf("a watch ends as if cut off when %s (HTTP/1: %v)", tc.name, http1), func(t *testing.T) {
				c, a := setup(t)
				resp := open(t, c, "/api/v1/services?watch=true")
				run(t, c)
				tc.fail(a)
				if err := ending(t, resp); err != io.ErrUnexpectedEOF {
					t.Errorf("it ends with %v", err)
				}
			})
			t.Run(fmt.Sprintf("a list that is not complete ends with an error when %s (HTTP/1: %v)", tc.name, http1), func(t *testing.T) {
				c, a := setup(t)
				resp := open(t, c, "/slow")
				run(t, c)
				tc.fail(a)
				if err := ending(t, resp); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), a.url()) {
					t.Errorf("it ends with %v", err)
				}
			})
		}
	}
	t.Run("a watch that its owner ends puts nobody in doubt", func(t *testing.T) {
		ours := newAuthority(t)
		a := ours.serve(serving{})
		c := ours.client(quick(), a.url())
		connect(t, c)
		resp := open(t, c, "/api/v1/services?watch=true")
		resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body can be read")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := ask(ctx, c, "/version"); !errors.Is(err, context.Canceled) {
			t.Errorf("a request that was given up says %v", err)
		}
		if _, doubtful, _ := c.inUse(); doubtful {
			t.Error("the endpoint is in doubt")
		}
	})
	t.Run("the end of Run ends the watches", func(t *testing.T) {
		ours := newAuthority(t)
		c := ours.client(quick(), ours.serve(serving{}).url())
		connect(t, c)
		stop := run(t, c)
		resp := open(t, c, "/api/v1/services?watch=true")
		stop()
		if err := ending(t, resp); err != io.ErrUnexpectedEOF {
			t.Errorf("it ends with %v", err)
		}
	})
}

func TestRequests(t *testing.T) {
	t.Run("a path prefix stands before every path", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		c := ours.client(quick(), s.url()+"/k8s/clusters/c-1/")
		connect(t, c)
		if _, err := ask(t.Context(), c, "/api/v1/namespaces/a%2Fb?x=%2F"); err != nil {
			t.Fatal(err)
		}
		if want := []string{"/k8s/clusters/c-1/readyz", "/k8s/clusters/c-1/api/v1/namespaces/a%2Fb?x=%2F"}; !slices.Equal(s.paths, want) {
			t.Errorf("asked for %v", s.paths)
		}
	})
	t.Run("a write in flight is not made twice, and says why it failed when its endpoint is left", func(t *testing.T) {
		ours := newAuthority(t)
		a, b := ours.serve(serving{}), ours.serve(serving{})
		c := ours.client(quick(), a.url())
		connect(t, c)
		c.Learn(Slices, at(b))
		a.set(func(s *server) { s.delay = time.Minute })
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, anyEndpoint+"/api/v1/namespaces", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		run(t, c)
		if _, err := c.RoundTrip(req); !errors.Is(err, errLeft) || !strings.Contains(err.Error(), a.url()) {
			t.Errorf("got %v", err)
		}
		current(t, c, b)
		b.mu.Lock()
		defer b.mu.Unlock()
		if slices.Contains(b.paths, "/api/v1/namespaces") {
			t.Error("it was made again")
		}
	})
	t.Run("a redirect leads nobody elsewhere", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		c := ours.client(quick(), s.url())
		connect(t, c)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://elsewhere.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "elsewhere.example") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("client-go makes its requests through it, with the agent's name", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		c := ours.client(quick(), s.url())
		connect(t, c)
		clients, err := kubernetes.NewForConfig(c.REST())
		if err != nil {
			t.Fatal(err)
		}
		got, err := clients.CoreV1().RESTClient().Get().AbsPath("/version").DoRaw(t.Context())
		if err != nil || string(got) != s.at.String() {
			t.Errorf("got %q, %v", got, err)
		}
		if !strings.HasPrefix(c.REST().UserAgent, "fairlead/") || c.REST().QPS >= 0 {
			t.Errorf("%+v", c.REST())
		}
		_, err = clients.CoreV1().Services(corev1.NamespaceAll).Create(t.Context(), new(corev1.Service), metav1.CreateOptions{})
		if err == nil {
			t.Error("the test's server made a Service")
		}
	})
}

func TestStuck(t *testing.T) {
	cfg := quick()
	cfg.Timeout = 100 * time.Millisecond
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("a server that answers nothing but heartbeats is left for one that does (HTTP/1: %v)", http1), func(t *testing.T) {
			ours := newAuthority(t)
			a, b := ours.serve(serving{http1: http1}), ours.serve(serving{http1: http1})
			cfg := cfg
			cfg.Heartbeat = time.Hour // so that no late one is the reason
			c := ours.client(cfg, a.url())
			connect(t, c)
			run(t, c)
			eventually(t, "the race with which Run begins", func() bool { return len(a.saw()) > 1 })
			c.Learn(Slices, at(b))
			a.set(func(s *server) { s.stuck = true })
			if got, err := ask(t.Context(), c, "/api/v1/services"); err != nil || got != b.at.String() {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	t.Run("the only server is asked on, and is well again once it answers", func(t *testing.T) {
		ours := newAuthority(t)
		a := ours.serve(serving{})
		c := ours.client(cfg, a.url())
		connect(t, c)
		run(t, c)
		a.set(func(s *server) { s.stuck = true })
		if _, err := ask(t.Context(), c, "/api/v1/services"); err == nil {
			t.Error("it was answered")
		}
		eventually(t, "it is not ready", func() bool { return states(c)[a.url()] == api.EndpointUnready })
		a.set(func(s *server) { s.stuck = false })
		if _, err := ask(t.Context(), c, "/api/v1/services"); err != nil {
			t.Error(err)
		}
		eventually(t, "it answers", func() bool { return states(c)[a.url()] == api.EndpointAnswers })
	})
}

func TestExempt(t *testing.T) {
	t.Run("every socket is marked before it connects", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{http1: true})
		var marked atomic.Int32
		cfg := quick()
		cfg.Exempt = func(uintptr) error { marked.Add(1); return nil }
		c := ours.client(cfg, s.url())
		connect(t, c)
		open(t, c, "/slow")
		open(t, c, "/slow")
		if _, err := c.Probe(t.Context(), s.at); err != nil {
			t.Fatal(err)
		}
		if got, want := int(marked.Load()), s.connections(); got != want || got < 3 {
			t.Errorf("%d sockets were marked, %d connected", got, want)
		}
	})
	t.Run("a socket that cannot be marked is not connected", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		cfg := quick()
		cfg.Timeout = 100 * time.Millisecond
		cfg.Exempt = func(uintptr) error { return errors.New("the map is gone") }
		c := ours.client(cfg, s.url())
		connect(t, c)
		if e := c.Status().Endpoints[0]; !strings.Contains(e.Error, "exempting the agent's own socket to "+s.at.String()) || !strings.Contains(e.Error, "the map is gone") {
			t.Errorf("it says %q", e.Error)
		}
		if n := s.connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
	t.Run("the sockets of the resolver are marked, too", func(t *testing.T) {
		refuse := errors.New("the map is gone")
		d := newDialer(func(uintptr) error { return refuse }, time.Second)
		if _, err := d.Resolver.Dial(t.Context(), "udp", "127.0.0.1:53"); !errors.Is(err, refuse) {
			t.Errorf("got %v", err)
		}
		if !d.Resolver.PreferGo {
			t.Error("the resolver may be another one than Go's")
		}
	})
}

func TestRotation(t *testing.T) {
	t.Run("a token that is not accepted any more is read again", func(t *testing.T) {
		ours := newAuthority(t)
		s := ours.serve(serving{})
		cfg := ours.withKubeconfig(quick(), s.url())
		tokenFile := filepath.Join(filepath.Dir(cfg.Kubeconfig), "token")
		write(t, tokenFile, "first")
		edit(t, cfg.Kubeconfig, "token: "+secret, "tokenFile: token")
		s.set(func(s *server) { s.token = "first" })
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		connect(t, c)
		run(t, c)
		if _, err := ask(t.Context(), c, "/version"); err != nil {
			t.Fatal(err)
		}
		write(t, tokenFile, "second")
		s.set(func(s *server) { s.token = "second"; s.tokens = nil })
		eventually(t, "the new token is used", func() bool { return slices.Contains(s.saw(), "Bearer second") })
		if s.connections() != 1 {
			t.Error("a new token took a new connection")
		}
	})
	t.Run("a new client certificate takes a new connection", func(t *testing.T) {
		ours, users := newAuthority(t), newAuthority(t)
		s := ours.serve(serving{clients: users})
		cfg := ours.withKubeconfig(quick(), s.url())
		dir := filepath.Dir(cfg.Kubeconfig)
		issue := func() {
			cert, key := users.issue(time.Now().Add(time.Hour), "me")
			write(t, filepath.Join(dir, "me.crt"), string(cert))
			write(t, filepath.Join(dir, "me.key"), string(key))
		}
		issue()
		edit(t, cfg.Kubeconfig, "token: "+secret, "client-certificate: me.crt, client-key: me.key")
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		connect(t, c)
		run(t, c)
		presented := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return string(slices.Concat(s.client...))
		}
		first := presented()
		if first == "" || s.connections() != 1 {
			t.Fatalf("%d connections", s.connections())
		}
		issue()
		eventually(t, "the new certificate is used", func() bool { return presented() != first })
		connections := s.connections()
		time.Sleep(3 * c.cfg.Heartbeat)
		if n := s.connections(); n != connections {
			t.Errorf("%d more connections after that", n-connections)
		}
	})
	t.Run("an authority that is replaced is read again", func(t *testing.T) {
		ours, next := newAuthority(t), newAuthority(t)
		s := ours.serve(serving{})
		cfg := ours.withKubeconfig(quick(), s.url())
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		connect(t, c)
		write(t, filepath.Join(filepath.Dir(cfg.Kubeconfig), "ca.crt"), string(next.pem))
		s.stop()
		again := next.serveAt(serving{}, s.at.String())
		run(t, c)
		eventually(t, "the server is found", func() bool { return len(again.saw()) > 0 })
	})
}

func edit(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.Replace(string(text), from, to, 1))
}
