// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/test/kube"
)

// fault is what happens to an answer. The zero value is nothing.
type fault struct {
	status int  // answered instead of asking the API server
	tear   bool // half of the next piece of the body comes through, then the stream breaks
}

// faultyProxy stands between a client and an API server, and spoils answers. A
// pipe before it can swallow everything, as a firewall does.
type faultyProxy struct {
	t       *testing.T
	server  *httptest.Server
	reverse *httputil.ReverseProxy
	pipe    *pipe

	mu      sync.Mutex
	faultOf func(verb, resource string) fault
	watches map[*body]struct{}
}

func newFaultyProxy(t *testing.T, api *kube.APIServer) *faultyProxy {
	t.Helper()
	upstream, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(api.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	p := &faultyProxy{t: t, watches: map[*body]struct{}{}}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.spoil,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	p.pipe = newPipe(t, p.server.Listener.Addr().String())
	t.Cleanup(func() {
		p.spoilBy(nil)
		p.pipe.close()
		p.endWatches("")
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// url is where the client finds the API, and authority who vouches for it.
func (p *faultyProxy) url() string { return "https://" + p.pipe.listener.Addr().String() }

func (p *faultyProxy) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// spoilBy sets which answers are spoilt from now on. The verb "stream" is a
// list that streams in.
func (p *faultyProxy) spoilBy(faultOf func(verb, resource string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faultOf = faultOf
}

func (p *faultyProxy) fault(r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faultOf == nil {
		return fault{}
	}
	return p.faultOf(verbOf(r), path.Base(r.URL.Path))
}

func verbOf(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		return "stream"
	case query.Get("watch") == "true":
		return "watch"
	}
	return "list"
}

// ServeHTTP implements http.Handler.
func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code := p.fault(r).status
	if code == 0 {
		p.reverse.ServeHTTP(w, r)
		return
	}
	reasons := map[int]metav1.StatusReason{http.StatusGone: metav1.StatusReasonExpired, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: "as the test has it",
	})
}

// spoil takes hold of the body of an answer.
func (p *faultyProxy) spoil(answer *http.Response) error {
	b := &body{ReadCloser: answer.Body, resource: path.Base(answer.Request.URL.Path)}
	b.tear.Store(p.fault(answer.Request).tear)
	answer.Body = b
	if verbOf(answer.Request) == "list" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.closed = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, b)
	}
	p.watches[b] = struct{}{}
	return nil
}

// endWatches ends the watches of a resource in good order; "" is all.
func (p *faultyProxy) endWatches(resource string) {
	for _, b := range p.watching(resource) {
		b.ended.Store(true)
		b.ReadCloser.Close()
	}
}

// tearWatches breaks the watches of a resource amid their next event.
func (p *faultyProxy) tearWatches(resource string) {
	for _, b := range p.watching(resource) {
		b.tear.Store(true)
	}
}

func (p *faultyProxy) watching(resource string) (list []*body) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for b := range p.watches {
		if resource == "" || b.resource == resource {
			list = append(list, b)
		}
	}
	return list
}

// body is the body of an answer on its way to the client.
type body struct {
	io.ReadCloser
	resource    string
	tear, ended atomic.Bool
	closed      func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.ended.Load() {
		return 0, io.EOF
	}
	if n > 0 && b.tear.Load() {
		return (n + 1) / 2, errors.New("torn by the test")
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	if b.closed != nil {
		b.closed()
	}
	return b.ReadCloser.Close()
}

// pipe passes on what connections carry, until it is blocked: then connections
// are taken and stay open, and nothing comes through.
type pipe struct {
	t        *testing.T
	listener net.Listener
	target   string
	copying  sync.WaitGroup

	mu      sync.Mutex
	free    *sync.Cond
	blocked bool
	ended   bool
	conns   []net.Conn
}

func newPipe(t *testing.T, target string) *pipe {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pipe{t: t, listener: listener, target: target}
	p.free = sync.NewCond(&p.mu)
	p.copying.Go(p.accept)
	return p
}

func (p *pipe) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.copying.Go(func() { p.pass(client, server) })
		p.copying.Go(func() { p.pass(server, client) })
	}
}

func (p *pipe) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !p.wait() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// wait returns when the pipe is free; false says that it has ended.
func (p *pipe) wait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.blocked && !p.ended {
		p.free.Wait()
	}
	return !p.ended
}

func (p *pipe) block(blocked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = blocked
	p.free.Broadcast()
}

func (p *pipe) close() {
	p.listener.Close()
	p.mu.Lock()
	p.ended = true
	p.free.Broadcast()
	for _, conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	p.copying.Wait()
}
