// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is the token of the rig's kubeconfigs.
const secret = "the-token-of-the-test"

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.pem = a.sign(template, template, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns certificate and key, in PEM, for names and addresses.
func (a *authority) issue(until time.Time, names ...string) (cert, key []byte) {
	a.t.Helper()
	own := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	_, cert = a.sign(template, a.cert, own)
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// server is a real TLS server on loopback that answers as an API server does,
// and notes what it was sent.
type server struct {
	t    *testing.T
	http *httptest.Server
	at   netip.AddrPort
	cut  context.CancelFunc // ends the watches without a word

	mu       sync.Mutex
	status   int           // of /readyz
	delay    time.Duration // of every answer
	stuck    bool          // nothing but heartbeats is answered
	token    string        // the only one that is accepted; "": any
	tokens   []string      // every Authorization header
	paths    []string
	accepted int // connections
	client   [][]byte
}

// serving is how a server is set up.
type serving struct {
	names   []string  // of the certificate; nil: its address, and the name of all API servers
	until   time.Time // of the certificate; zero: an hour from now
	http1   bool
	status  int
	delay   time.Duration
	clients *authority // asks for a certificate of this authority
}

func (a *authority) serve(s serving) *server {
	a.t.Helper()
	return a.serveAt(s, "127.0.0.1:0")
}

func (a *authority) serveAt(s serving, address string) *server {
	a.t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		a.t.Fatal(err)
	}
	out := &server{t: a.t, status: s.status, delay: s.delay}
	if out.status == 0 {
		out.status = http.StatusOK
	}
	if s.names == nil {
		s.names = []string{"127.0.0.1", serviceName}
	}
	if s.until.IsZero() {
		s.until = time.Now().Add(time.Hour)
	}
	pair, err := tls.X509KeyPair(a.issue(s.until, s.names...))
	if err != nil {
		a.t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if s.clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		config.ClientCAs.AddCert(s.clients.cert)
	}
	out.at = netip.MustParseAddrPort(listener.Addr().String())
	var ctx context.Context
	ctx, out.cut = context.WithCancel(a.t.Context())
	out.http = httptest.NewUnstartedServer(out.handler(ctx))
	out.http.Listener.Close()
	out.http.Listener = listener
	out.http.TLS = config
	out.http.EnableHTTP2 = !s.http1
	out.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	out.http.Config.ConnState = out.connState
	out.http.StartTLS()
	a.t.Cleanup(out.stop)
	return out
}

func (s *server) connState(_ net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.accepted++
	}
}

// stop ends the server as a crash does.
func (s *server) stop() {
	s.http.CloseClientConnections()
	s.cut()
	s.http.Close()
}

func (s *server) handler(ctx context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.paths = append(s.paths, r.URL.RequestURI())
		s.tokens = append(s.tokens, r.Header.Get("Authorization"))
		s.client = nil
		if len(r.TLS.PeerCertificates) > 0 {
			s.client = append(s.client, r.TLS.PeerCertificates[0].Raw)
		}
		status, delay, token := s.status, s.delay, s.token
		if s.stuck && !strings.HasSuffix(r.URL.Path, "/readyz") {
			delay = time.Hour
		}
		s.mu.Unlock()
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		case <-r.Context().Done():
		}
		switch {
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/readyz"):
			w.WriteHeader(status)
		case r.URL.Query().Get("watch") == "true" || strings.HasSuffix(r.URL.Path, "/slow"):
			_, _ = io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			select {
			case <-ctx.Done():
			case <-r.Context().Done():
			}
		default:
			fmt.Fprint(w, s.at)
		}
	})
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// saw returns the Authorization headers so far.
func (s *server) saw() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tokens)
}

func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

func (s *server) url() string { return "https://" + s.at.String() }

// plain accepts connections and serves each with talk; what it reads is noted.
type plain struct {
	at  netip.AddrPort
	mu  sync.Mutex
	got bytes.Buffer
}

// listen starts a plain server. Without a greeting it says nothing at all.
func listen(t *testing.T, greeting string) *plain {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{at: netip.MustParseAddrPort(listener.Addr().String())}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.talk(conn, greeting) })
			t.Cleanup(func() { conn.Close() })
		}
	})
	t.Cleanup(func() { listener.Close() })
	return p
}

func (p *plain) talk(conn net.Conn, greeting string) {
	defer conn.Close()
	_, _ = io.WriteString(conn, greeting)
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		p.mu.Lock()
		p.got.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *plain) heard() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got.String()
}

// relay passes connections on, until it freezes: then those that are open stay
// open and carry nothing more, as when a firewall forgets them.
type relay struct {
	at     netip.AddrPort
	mu     sync.Mutex
	frozen chan struct{} // of the connections so far
}

func newRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{at: netip.MustParseAddrPort(listener.Addr().String()), frozen: make(chan struct{})}
	var open []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to.String())
			if err != nil {
				in.Close()
				continue
			}
			open = append(open, in, out)
			r.mu.Lock()
			frozen := r.frozen
			r.mu.Unlock()
			go pass(in, out, frozen)
			go pass(out, in, frozen)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		accepting.Wait()
		for _, conn := range open {
			conn.Close()
		}
	})
	return r
}

// pass copies until either side closes. What arrives after the freeze is lost.
func pass(to, from net.Conn, frozen <-chan struct{}) {
	defer to.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.frozen)
	r.frozen = make(chan struct{})
}

// nobody is an address that refuses connections.
func nobody(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// quick is a Config whose waits suit a test.
func quick() Config {
	return Config{Heartbeat: 200 * time.Millisecond, Timeout: time.Second}
}

// withKubeconfig writes a kubeconfig with the authority and the secret.
func (a *authority) withKubeconfig(cfg Config, server string) Config {
	a.t.Helper()
	dir := a.t.TempDir()
	write(a.t, filepath.Join(dir, "ca.crt"), string(a.pem))
	cfg.Kubeconfig = filepath.Join(dir, "config")
	write(a.t, cfg.Kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: u, user: {token: %s}}]
`, server, secret))
	return cfg
}

// client makes a Client with a kubeconfig for server.
func (a *authority) client(cfg Config, server string) *Client {
	a.t.Helper()
	c, err := New(a.withKubeconfig(cfg, server))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.leave)
	return c
}

// inPod makes a Client as in a pod whose environment names a Service address.
func (a *authority) inPod(cfg Config, service netip.AddrPort) *Client {
	a.t.Helper()
	c, err := newClient(cfg, &rest.Config{
		Host: "https://" + service.String(), BearerToken: secret, TLSClientConfig: rest.TLSClientConfig{CAData: a.pem},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.leave)
	return c
}

// run runs the client until the test ends, or until the function is called.
func run(t *testing.T, c *Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func connect(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that takes its time.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// ask makes a request as client-go would, and returns the body.
func ask(ctx context.Context, c *Client, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, anyEndpoint+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// states maps the URLs of a status to their states.
func states(c *Client) map[string]string {
	out := make(map[string]string)
	for _, e := range c.Status().Endpoints {
		out[e.URL] = e.State
	}
	return out
}

func at(servers ...*server) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range servers {
		out = append(out, s.at)
	}
	return out
}
