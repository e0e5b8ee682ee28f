// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/statefile"
)

// twoServers gives the agent the way to two servers, and returns the one in use
// and the other.
func (a *Agent) twoServers(t *testing.T) (used, other *httptest.Server) {
	t.Helper()
	var servers [2]*httptest.Server
	for i := range servers {
		servers[i] = httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(servers[i].Close)
	}
	used, other = servers[0], servers[1]
	dir := t.TempDir()
	write(t, dir, "ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: used.Certificate().Raw})))
	write(t, dir, "config", fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: %q, certificate-authority: ca}}]}", used.URL))
	client, err := apiserver.New(apiserver.Config{Kubeconfig: filepath.Join(dir, "config"), Servers: []string{other.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.reach = &reach{client: client}
	if client.Status().Current == other.URL {
		used, other = other, used
	}
	return used, other
}

// follows runs parts of the agent until the test ends.
func (a *Agent) follows(t *testing.T, parts ...func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range parts {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func TestAStateFileThatCannotBeWrittenHoldsNothingElseUp(t *testing.T) {
	a := retainingAgent(t)
	inTheWay := filepath.Join(t.TempDir(), "fairlead")
	a.cfg.StateFile = filepath.Join(inTheWay, "state.json")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used, other := a.twoServers(t)
	events := a.listening(t)
	a.follows(t, a.keepState, a.reach.client.Run)
	if e := next(t, events); e.Reason != used.URL+" is in use" {
		t.Fatalf("told: %q", e.Reason)
	}
	said := func() string { return a.reach.status(a.cfg.StateFile).StateFileError }
	eventually(t, "status says that the file cannot be written", func() bool { return said() != "" })

	used.CloseClientConnections()
	used.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.reach.client.REST().Host+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.reach.client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if e := next(t, events); e.Event != api.EventEndpoint || e.Reason != other.URL+" is in use, instead of "+used.URL {
		t.Errorf("told: %q", e.Reason)
	}

	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is written once it can be", func() bool {
		content, err := statefile.Read(a.cfg.StateFile)
		return err == nil && len(content.Endpoints) == 2
	})
	eventually(t, "and nothing is said against it any more", func() bool { return said() == "" })
}

// emptied lets default/web have these backends and then none.
func (a *Agent) emptied(backends ...netip.AddrPort) {
	for i, at := range backends {
		name := model.Name{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}
		a.writer.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: name, Slice: &model.EndpointSlice{
			Name: name, Service: "web", Family: model.IPv4,
			Endpoints: []model.Endpoint{{Addresses: []netip.Addr{at.Addr()}, Ready: true, Serving: true}},
			Ports:     []model.EndpointPort{{Protocol: model.TCP, Port: at.Port()}},
		}}})
	}
	a.writer.Flush()
	for i := range backends {
		a.writer.Events([]reflector.Event{{Kind: reflector.KindEndpointSlice, Name: model.Name{Namespace: "default", Name: fmt.Sprintf("web-%d", i)}}})
	}
	a.writer.Flush()
}

// mute accepts connections and says nothing. What it returns is closed once
// somebody has waited in vain.
func mute(t *testing.T) (at netip.AddrPort, leave func(), waited <-chan struct{}) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone, once := make(chan struct{}), sync.Once{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, conn) // until the other side has had enough
			conn.Close()
			once.Do(func() { close(gone) })
		}
	}()
	leave = func() { listener.Close() }
	t.Cleanup(leave)
	return netip.MustParseAddrPort(listener.Addr().String()), leave, gone
}

func addressOf(s *httptest.Server) netip.AddrPort {
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// said is how connections to default/web are served.
func (a *Agent) said() string {
	var words []string
	for _, r := range a.retained() {
		for _, b := range r.Backends {
			words = append(words, fmt.Sprintf("%d %s", b.Port, b.State))
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func TestARetainedBackendThatIsDeadHoldsUpNothing(t *testing.T) {
	a := retainingAgent(t)
	server, _ := a.twoServers(t)
	a.reach.judge = make(chan struct{}, 1)
	dead, leave, waited := mute(t)
	a.emptied(addressOf(server), dead)
	a.works(t)
	a.follows(t, a.judgeRetained)

	answers := fmt.Sprintf("%d retained", addressOf(server).Port())
	eventually(t, "the one that answers is the only one", func() bool { return a.said() == answers })
	select {
	case <-waited:
		t.Error("it waited for the one that does not")
	default:
	}

	// The dead one comes back, at its address.
	leave()
	again := httptest.NewUnstartedServer(server.Config.Handler)
	again.Listener.Close()
	var err error
	if again.Listener, err = net.Listen("tcp4", dead.String()); err != nil {
		t.Fatal(err)
	}
	again.StartTLS()
	t.Cleanup(again.Close)
	<-waited
	a.reach.judge <- struct{}{}
	both := []string{answers, fmt.Sprintf("%d retained", dead.Port())}
	slices.Sort(both)
	eventually(t, "one that was not heard of is asked again", func() bool { return a.said() == strings.Join(both, ", ") })
}
