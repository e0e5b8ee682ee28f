// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead-io/fairlead/test/kube"
)

// TestWatchGoesOn follows ConfigMaps with client-go over real API servers of
// which the one in use goes away, with the times that the agent has.
func TestWatchGoesOn(t *testing.T) {
	cluster := kube.Start(t)
	second := cluster.AddAPIServer()
	c, err := New(Config{Kubeconfig: cluster.Kubeconfig, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	c.Learn(File, []netip.AddrPort{place(t, cluster.APIServer), place(t, second)})
	connect(t, c)
	run(t, c)
	f := follow(t, c)
	eventually(t, "the first list", func() bool { return len(f.store.List()) > 0 })

	for _, tc := range []struct {
		name   string
		end    func(*kube.APIServer)
		in, to *kube.APIServer
	}{
		{"over the crash of the server in use", (*kube.APIServer).StopAPIServer, cluster.APIServer, second},
		{"over the graceful stop of the server in use", (*kube.APIServer).TerminateAPIServer, second, cluster.APIServer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := c.Status().Current; got != tc.in.URL {
				t.Fatalf("using %s", got)
			}
			// client-go lists anew after a watch that ended before anything came.
			name := f.create(t, tc.to)
			eventually(t, "an event before", func() bool { return f.has(name) })
			lists := f.lists.Load()
			began := time.Now()
			tc.end(tc.in)
			name = f.create(t, tc.to)
			eventually(t, "the object's event", func() bool { return f.has(name) })
			seen := time.Since(began)
			eventually(t, "the move", func() bool { return c.Status().Current == tc.to.URL })
			t.Logf("event after %s, move after %s", seen.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			name = f.create(t, tc.to)
			eventually(t, "an event after the move", func() bool { return f.has(name) })
			if n := f.lists.Load() - lists; n != 0 {
				t.Errorf("%d new lists, although watches could go on", n)
			}
		})
		<-tc.in.Done()
		tc.in.StartAPIServer()
	}
}

// TestBothServersAway holds a watch over a time without any API server.
func TestBothServersAway(t *testing.T) {
	cluster := kube.Start(t)
	c, err := New(Config{Kubeconfig: cluster.Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, c)
	run(t, c)
	f := follow(t, c)
	eventually(t, "the first list", func() bool { return len(f.store.List()) > 0 })
	cluster.StopAPIServer()
	eventually(t, "nobody answers", func() bool { return c.Status().Endpoints[0].Error != "" })
	cluster.StartAPIServer()
	began := time.Now()
	name := f.create(t, cluster.APIServer)
	eventually(t, "the object's event", func() bool { return f.has(name) })
	t.Logf("event %s after the server was ready", time.Since(began).Round(time.Millisecond))
}

func place(t *testing.T, s *kube.APIServer) netip.AddrPort {
	t.Helper()
	at, err := netip.ParseAddrPort(strings.TrimPrefix(s.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// followed is a store of ConfigMaps that client-go's reflector keeps.
type followed struct {
	store cache.Store
	lists atomic.Int32 // plain ones and streamed ones
	made  int
}

func follow(t *testing.T, c *Client) *followed {
	t.Helper()
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	maps := clients.CoreV1().ConfigMaps(metav1.NamespaceAll)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			f.lists.Add(1)
			return maps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil && *options.SendInitialEvents {
				f.lists.Add(1)
			}
			return maps.Watch(ctx, options)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cache.NewReflectorWithOptions(source, &corev1.ConfigMap{}, f.store, cache.ReflectorOptions{}).RunWithContext(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return f
}

// create makes an object at a server, past the Client.
func (f *followed) create(t *testing.T, s *kube.APIServer) string {
	t.Helper()
	f.made++
	name := fmt.Sprintf("made-%d", f.made)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	if _, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func (f *followed) has(name string) bool {
	_, ok, err := f.store.GetByKey(metav1.NamespaceDefault + "/" + name)
	return ok && err == nil
}
