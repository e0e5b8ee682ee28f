// SPDX-License-Identifier: Apache-2.0

package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/kube"
)

// patience is for a client-go that gives a silent server ten seconds to shake
// hands, and for pauses that grow.
const patience = 90 * time.Second

// followed is a source that tables follow, as in an agent.
type followed struct {
	*tables.Writer
	t      *testing.T
	tables *tables.Tables
	web    string // the Service whose endpoints change, in namespace default
	size   int    // how many endpoints it has

	mu       sync.Mutex
	deleted  []string
	troubles []string // each that was told: "Service: Forbidden list services"
}

// Events notes what is deleted on its way to the tables.
func (f *followed) Events(events []reflector.Event) {
	f.mu.Lock()
	for _, e := range events {
		if e.Service == nil && e.Slice == nil && e.Node == nil {
			f.deleted = append(f.deleted, e.Kind.String()+" "+e.Name.String())
		}
	}
	f.mu.Unlock()
	f.Writer.Events(events)
}

// Stale notes what is told on its way to the tables.
func (f *followed) Stale(kind reflector.Kind, err error) {
	if trouble, ok := errors.AsType[*reflector.Trouble](err); ok {
		f.mu.Lock()
		f.troubles = append(f.troubles, tell(kind, trouble))
		f.mu.Unlock()
	} else if err != nil {
		f.t.Errorf("%s: %v is no Trouble", kind, err)
	}
	f.Writer.Stale(kind, err)
}

// tell is a trouble in the words of this test.
func tell(kind reflector.Kind, t *reflector.Trouble) string {
	return fmt.Sprintf("%s: %s %s %s", kind, t.Reason, t.Verb, t.GroupResource())
}

// follow follows a cluster through a proxy that spoils answers.
func follow(t *testing.T, cluster *kube.Cluster, web string, access rest.Config) (*followed, *faultyProxy) {
	t.Helper()
	proxy := newFaultyProxy(t, cluster.APIServer)
	access.Host, access.TLSClientConfig = proxy.url(), rest.TLSClientConfig{CAData: proxy.authority()}
	source, err := reflector.NewKubernetes(&access, "n1", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	made, err := tables.New()
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{Writer: tables.NewWriter(made, model.Node{Name: "n1"}, model.Options{}), t: t, tables: made, web: web}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	running.Go(func() {
		if err := source.Run(ctx, f); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	cluster.Apply("{apiVersion: v1, kind: Service, metadata: {name: " + web + ", namespace: default}, spec: {ports: [{port: 80}]}}")
	have := f.scale(cluster)
	f.healthy()
	f.await(web+" has "+have, func() bool { return f.backends() == have })
	return f, proxy
}

// scale gives the Service one more endpoint in the API, and returns what its
// backends then are.
func (f *followed) scale(cluster *kube.Cluster) string {
	f.size++
	var addresses, backends []string
	for i := range f.size {
		address := fmt.Sprintf("10.0.1.%d", i+1)
		addresses = append(addresses, "{addresses: ["+address+"]}")
		backends = append(backends, address+":8080")
	}
	cluster.Apply("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: " + f.web + ", namespace: default, labels: {kubernetes.io/service-name: " + f.web + "}}, " +
		"addressType: IPv4, ports: [{port: 8080}], endpoints: [" + strings.Join(addresses, ", ") + "]}")
	return strings.Join(backends, " ")
}

// state is what is known of one kind: "" if it is followed.
func (f *followed) state(kind reflector.Kind) (trouble string, since time.Time) {
	states, _ := f.Sources()
	i := slices.IndexFunc(states, func(s tables.SourceState) bool { return s.Kind == kind })
	if t, ok := errors.AsType[*reflector.Trouble](states[i].Stale); ok {
		return tell(kind, t), states[i].Since
	}
	return "", states[i].Since
}

// backends are those of the Service, as its rows have them.
func (f *followed) backends() string {
	row, ok := f.tables.Snapshot().Service(model.Name{Namespace: "default", Name: f.web})
	if !ok {
		return "no row"
	}
	var list []string
	for _, b := range row.Compiled.Sets[0].Backends {
		list = append(list, b.AddrPort.String())
	}
	return strings.Join(list, " ")
}

func (f *followed) await(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("never: %s; %s has %s; told %q, deleted %q", what, f.web, f.backends(), f.troubles, f.deleted)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// healthy waits until every kind is followed.
func (f *followed) healthy() {
	f.t.Helper()
	f.await("all is followed again", func() bool {
		states, _ := f.Sources()
		return !slices.ContainsFunc(states, func(s tables.SourceState) bool { return s.Stale != nil || !s.Listed })
	})
}

// forget begins a new list of what was told and deleted.
func (f *followed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.troubles, f.deleted = nil, nil
}

func (f *followed) allTold() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.troubles)
}

func (f *followed) told(trouble string) bool { return slices.Contains(f.allTold(), trouble) }

func (f *followed) wantNothingDeleted() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.deleted) > 0 {
		f.t.Errorf("deleted %q", f.deleted)
	}
}

// agentRules are the agent's account and what it may do.
func agentRules(t *testing.T) string {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(rules)
}

// agentAccount gives the agent its account, and writes a token for it.
func agentAccount(t *testing.T, cluster *kube.Cluster, tokenFile string) {
	t.Helper()
	cluster.Apply(agentRules(t))
	token, err := cluster.Client.CoreV1().ServiceAccounts("kube-system").
		CreateToken(t.Context(), "fairlead", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tokenFile, []byte(token.Status.Token), 0o600); err != nil {
		t.Fatal(err)
	}
}

// breakage is something that goes wrong until it is mended.
type breakage struct {
	name   string
	breaks func()
	keep   func() // again and again until the trouble shows
	kind   reflector.Kind
	want   string
	others string // how the troubles of the other kinds begin; "" if they have none
	mends  func()
}

// endure checks that what was known stays in force, that the trouble is told as
// it is, and that it goes when its reason does.
func (f *followed) endure(cluster *kube.Cluster, b breakage) {
	f.healthy()
	f.forget()
	had, began := f.backends(), time.Now()
	b.breaks()
	again := time.Now()
	f.await(b.want, func() bool {
		if b.keep != nil && time.Now().After(again) {
			b.keep()
			again = time.Now().Add(200 * time.Millisecond)
		}
		trouble, _ := f.state(b.kind)
		return trouble == b.want
	})
	_, since := f.state(b.kind)
	if since.Before(began) || since.After(time.Now()) {
		f.t.Errorf("stale since %s, which is not between %s and now", since, began)
	}
	f.awaitOthers(b)
	now := f.scale(cluster)
	if still := f.backends(); still != had && still != now {
		f.t.Errorf("%s has %q, and had %q", f.web, still, had)
	}
	if _, later := f.state(b.kind); !later.Equal(since) {
		f.t.Errorf("stale since %s, later since %s", since, later)
	}
	b.mends()
	f.healthy()
	f.await(f.web+" has "+now, func() bool { return f.backends() == now })
	f.wantNothingDeleted()
}

// awaitOthers waits until the other kinds are in the trouble that they shall be
// in, which is none if the fault is one kind's alone.
func (f *followed) awaitOthers(b breakage) {
	for kind := reflector.KindService; kind <= reflector.KindNode; kind++ {
		if kind == b.kind {
			continue
		}
		trouble, _ := f.state(kind)
		if b.others == "" && trouble != "" {
			f.t.Errorf("and also %q", trouble)
		}
		f.await(fmt.Sprintf("%s is in trouble %q", kind, b.others), func() bool {
			trouble, _ := f.state(kind)
			return b.others == "" || strings.HasPrefix(trouble, kind.String()+": "+b.others+" ")
		})
	}
}

func TestWithARealAPIServerStaleIsNotEmpty(t *testing.T) {
	cluster := kube.Start(t)
	cluster.Apply(`{apiVersion: v1, kind: Node, metadata: {name: n1}}`)
	tokenFile := filepath.Join(t.TempDir(), "token")
	restore := func() { agentAccount(t, cluster, tokenFile) }
	restore()
	permitted, doors := follow(t, cluster, "permitted", rest.Config{BearerTokenFile: tokenFile, QPS: -1})

	// The client asks a silent connection after a second whether it lives.
	const idle, ping = "HTTP2_READ_IDLE_TIMEOUT_SECONDS", "HTTP2_PING_TIMEOUT_SECONDS"
	if err := errors.Join(os.Setenv(idle, "1"), os.Setenv(ping, "1")); err != nil {
		t.Fatal(err)
	}
	connected, wires := follow(t, cluster, "connected", rest.Config{BearerToken: cluster.REST.BearerToken, QPS: -1})
	if err := errors.Join(os.Unsetenv(idle), os.Unsetenv(ping)); err != nil {
		t.Fatal(err)
	}

	t.Run("while", func(t *testing.T) {
		t.Run("it is refused", func(t *testing.T) {
			t.Parallel()
			testRefusals(t, permitted, doors, cluster, restore)
		})
		t.Run("the network fails", func(t *testing.T) {
			t.Parallel()
			testBreakages(t, connected, wires, cluster)
			testMoments(t, connected, wires, cluster)
		})
	})
	t.Run("410 Gone, since the API server has started anew and does not remember: nothing is lost (R31)", func(t *testing.T) {
		f := connected
		f.t = t
		f.forget()
		wires.spoilBy(func(string, string) fault { return fault{status: http.StatusServiceUnavailable} })
		wires.endWatches("")
		f.await("the watches wait", func() bool {
			return f.told("Service: Unavailable watch services") && f.told("Node: Unavailable watch nodes") &&
				f.told("EndpointSlice: Unavailable watch endpointslices.discovery.k8s.io")
		})
		now := f.scale(cluster)
		cluster.StopAPIServer()
		cluster.StartAPIServer()
		wires.spoilBy(nil)
		f.await(f.web+" has "+now, func() bool { return f.backends() == now })
		f.healthy()
		f.wantNothingDeleted()
		if all := f.allTold(); !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, ": Expired watch ") }) {
			t.Errorf("told %q, and not that anything expired", all)
		}
	})
}

// testRefusals takes the agent's permissions and its account away.
func testRefusals(t *testing.T, f *followed, proxy *faultyProxy, cluster *kube.Cluster, restore func()) {
	again := func() { proxy.endWatches("") } // what is being watched goes on
	for _, b := range []breakage{
		{
			name:   "403 on one resource",
			breaks: func() { cluster.Apply(strings.ReplaceAll(agentRules(t), "[endpointslices]", "[others]")) },
			keep:   again,
			kind:   reflector.KindEndpointSlice, want: "EndpointSlice: Forbidden list endpointslices.discovery.k8s.io",
			mends: restore,
		},
		{
			name:   "403 on all",
			breaks: func() { cluster.Kubectl("delete", "clusterrolebinding", "fairlead") },
			keep:   again,
			kind:   reflector.KindService, want: "Service: Forbidden list services", others: "Forbidden list",
			mends: restore,
		},
		{
			name:   "401, since the token is revoked",
			breaks: func() { cluster.Kubectl("delete", "serviceaccount", "fairlead", "--namespace=kube-system") },
			keep:   again,
			kind:   reflector.KindNode, want: "Node: Unauthorized list nodes", others: "Unauthorized list",
			mends: restore, // the client reads its token anew every minute
		},
	} {
		t.Run(b.name+": what was known stays, and it heals (R31)", func(t *testing.T) {
			f.t = t
			f.endure(cluster, b)
		})
	}
}

// testBreakages spoils answers until they are mended.
func testBreakages(t *testing.T, f *followed, proxy *faultyProxy, cluster *kube.Cluster) {
	for _, b := range []breakage{
		{
			name:   "packets are swallowed",
			breaks: func() { proxy.pipe.block(true) },
			kind:   reflector.KindService, want: "Service: Timeout watch services", others: "Timeout watch",
			mends: func() { proxy.pipe.block(false) },
		},
		{
			name: "a list is cut in the middle of its body",
			breaks: func() {
				proxy.spoilBy(func(verb, resource string) fault {
					switch {
					case resource == "services" && verb == "watch":
						return fault{status: http.StatusGone}
					case resource == "services" && verb == "stream":
						return fault{status: http.StatusUnprocessableEntity} // as servers that cannot stream lists
					}
					return fault{tear: resource == "services"}
				})
				proxy.endWatches("services")
			},
			kind: reflector.KindService, want: "Service: Broken list services",
			mends: func() { proxy.spoilBy(nil) },
		},
	} {
		t.Run(b.name+": what was known stays, and it heals (R31)", func(t *testing.T) {
			f.t = t
			f.endure(cluster, b)
		})
	}
}

// testMoments spoils one answer. That is over as soon as it is noticed.
func testMoments(t *testing.T, f *followed, proxy *faultyProxy, cluster *kube.Cluster) {
	for _, moment := range []struct {
		name  string
		makes func(scale func())
		told  string // "": that all is well
	}{
		{"watches that end in good order", func(scale func()) { proxy.endWatches(""); scale() }, ""},
		{"a watch that breaks in the middle of an event", func(scale func()) { proxy.tearWatches("endpointslices"); scale() },
			"EndpointSlice: Broken watch endpointslices.discovery.k8s.io"},
		{"410 Gone, and the list that streams in breaks in its middle, while the plain one does not", func(scale func()) {
			var gone sync.Once
			proxy.spoilBy(func(verb, resource string) (f fault) {
				if resource == "services" && verb == "watch" {
					gone.Do(func() { f.status = http.StatusGone })
				}
				f.tear = resource == "services" && verb == "stream"
				return f
			})
			proxy.endWatches("services")
			f.await("a list is asked for", func() bool { return f.told("Service: Expired watch services") })
			scale()
		}, "Service: Expired watch services"},
	} {
		t.Run(moment.name+": nothing is lost (R31)", func(t *testing.T) {
			defer proxy.spoilBy(nil)
			f.t = t
			f.healthy()
			f.forget()
			var now string
			moment.makes(func() { now = f.scale(cluster) })
			f.await(f.web+" has "+now, func() bool { return f.backends() == now })
			f.healthy()
			f.wantNothingDeleted()
			if moment.told != "" && !f.told(moment.told) {
				t.Errorf("told %q, not %q", f.allTold(), moment.told)
			}
			if all := f.allTold(); moment.told == "" && len(all) > 0 {
				t.Errorf("told %q", all)
			}
		})
	}
}
