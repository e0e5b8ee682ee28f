// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/model"
)

// onPort is a Service of one port.
func onPort(name string, port int32) *corev1.Service {
	s := web()
	s.Name, s.Spec.Ports[0].Port = name, port
	return s
}

func source(t *testing.T, s *apiServer) Source {
	t.Helper()
	config := &rest.Config{Host: s.http.URL, UserAgent: "fairlead/test", QPS: -1}
	k, err := NewKubernetes(config, "n1", nil, discard())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// filled serves Services a and b, a slice of each, a headless slice, and two
// nodes.
func filled(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t)
	s.put("services", onPort("a", 80))
	s.put("services", onPort("b", 81))
	s.put("endpointslices", webSlice())
	headless := webSlice()
	headless.Name = "headless"
	headless.Labels[corev1.IsHeadlessService] = ""
	s.put("endpointslices", headless)
	s.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	s.put("nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	return s
}

func forbidden(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(`User "x" cannot do that`))
}

func TestKubernetesListsOnce(t *testing.T) {
	for _, tc := range []struct {
		name     string
		jsonOnly bool
		noStream bool
	}{
		{"protobuf, lists streamed", false, false},
		{"protobuf, plain lists", false, true},
		{"JSON, lists streamed", true, false},
		{"JSON, plain lists", true, true},
	} {
		t.Run(tc.name+": each kind comes in one call, then it is listed", func(t *testing.T) {
			t.Parallel()
			s := filled(t)
			s.jsonOnly, s.noStream = tc.jsonOnly, tc.noStream
			r := newRecorder()
			r.run(t, source(t, s))
			r.awaitListed(t)
			r.awaitPorts(t, "shop/a:80 shop/b:81")
			if len(r.batches) != 3 || len(r.held) != 4 {
				t.Errorf("%d objects in %d calls: %v", len(r.held), len(r.batches), r.batches)
			}
			if len(r.troubles) > 0 {
				t.Errorf("stale in between: %q", r.troubles)
			}
			if s.count("watch endpointslices streamed=true limit= labels=!service.kubernetes.io/headless fields= accept=application/vnd.kubernetes.protobuf,application/json") == 0 ||
				s.count("watch nodes streamed=true limit= labels= fields=metadata.name=n1") == 0 {
				t.Errorf("the requests were %q", s.requests)
			}
		})
	}
}

func TestKubernetesWithoutItsNode(t *testing.T) {
	s := newAPIServer(t)
	r := newRecorder()
	r.run(t, source(t, s))
	r.awaitListed(t)
	if len(r.batches) > 0 {
		t.Errorf("got %v", r.batches)
	}
}

func TestKubernetesFollows(t *testing.T) {
	s := filled(t)
	r := newRecorder()
	r.run(t, source(t, s))
	r.awaitListed(t)
	s.put("services", onPort("c", 82))
	s.put("services", onPort("a", 90))
	s.remove("services", onPort("b", 81))
	r.awaitPorts(t, "shop/a:90 shop/c:82")
	r.wantDeleted(t, "Service shop/b")

	t.Run("a slice that is not ours any more is deleted (R2)", func(t *testing.T) {
		slice := webSlice()
		slice.Labels = nil
		s.put("endpointslices", slice)
		r.await(t, "deletion", func() bool { return len(r.deleted) == 2 })
		r.wantDeleted(t, "Service shop/b", "EndpointSlice shop/web-x7k2p")
		s.remove("endpointslices", slice)
		s.put("endpointslices", webSlice())
		r.await(t, "the slice again", func() bool { return len(r.held) == 4 })
		r.wantDeleted(t, "Service shop/b", "EndpointSlice shop/web-x7k2p")
	})
	t.Run("an invalid object keeps its last good content and is named", func(t *testing.T) {
		s.put("services", onPort("a", 70000))
		r.await(t, "a problem", func() bool {
			return r.saysProblem("Service shop/a: spec.ports[0].port: 70000 is not a port number")
		})
		r.awaitPorts(t, "shop/a:90 shop/c:82")
		s.put("services", onPort("a", 91))
		r.await(t, "no problem", func() bool { return len(r.problems) == 0 })
		r.awaitPorts(t, "shop/a:91 shop/c:82")
	})
	t.Run("an invalid object that is deleted is no problem any more, and its last good content goes", func(t *testing.T) {
		s.put("services", onPort("c", 0))
		r.await(t, "a problem", func() bool { return len(r.problems) == 1 })
		s.remove("services", onPort("c", 0))
		r.await(t, "no problem", func() bool { return len(r.problems) == 0 })
		r.awaitPorts(t, "shop/a:91")
	})
	t.Run("a watch that ends is taken up where it was, without a list (R31)", func(t *testing.T) {
		lists := s.count("list") + s.count("watch services streamed=true")
		s.cut("services")
		s.put("services", onPort("d", 83))
		r.awaitPorts(t, "shop/a:91 shop/d:83")
		if again := s.count("list") + s.count("watch services streamed=true"); again != lists {
			t.Errorf("%d lists more", again-lists)
		}
		if len(r.troubles) > 0 {
			t.Errorf("stale in between: %q", r.troubles)
		}
	})
}

func TestKubernetesRelistsInOneCall(t *testing.T) {
	for name, noStream := range map[string]bool{"streamed": false, "plain": true} {
		t.Run(name+": 410 leads to a new list, whose changes and deletions come in one call (R4, R31)", func(t *testing.T) {
			t.Parallel()
			s := filled(t)
			s.noStream = noStream
			r := newRecorder()
			r.run(t, source(t, s))
			r.awaitListed(t)
			r.awaitPorts(t, "shop/a:80 shop/b:81")
			r.await(t, "an open watch", func() bool { return s.watching("services") })
			s.fail("watch services", apierrors.NewServiceUnavailable("not yet"))
			s.fail("list services", apierrors.NewServiceUnavailable("not yet"))
			s.expire("services")
			r.await(t, "stale", func() bool { return r.trouble[KindService] != nil })
			s.cut("services")
			s.remove("services", onPort("a", 80))
			s.remove("services", onPort("b", 81))
			s.put("services", onPort("c", 82))
			s.compact()
			r.await(t, "the new trouble", func() bool { return strings.Contains(fmt.Sprint(r.trouble[KindService]), "not yet") })
			s.fail("watch services", nil)
			s.fail("list services", nil)
			r.awaitPorts(t, "shop/c:82")
			r.await(t, "healed", func() bool { return r.trouble[KindService] == nil })
			last := r.batches[len(r.batches)-1]
			if len(last) != 3 || last[0].Name.Name != "c" || !last[1].gone() || !last[2].gone() || last[1].ResourceVersion != "2" {
				t.Errorf("the last call was %+v", last)
			}
			if !strings.Contains(r.troubles[0], "Service: watch services: too old resource version") {
				t.Errorf("the troubles were %q", r.troubles)
			}
			if len(r.listed) != 3 {
				t.Errorf("listed %v", r.listed)
			}
		})
	}
}

// watching says whether a watch is open.
func (s *apiServer) watching(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers[resource]) > 0
}

// compact forgets what happened so far.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
}

func TestKubernetesIsStaleNotEmpty(t *testing.T) {
	for _, tc := range []struct {
		name    string
		breaks  func(s *apiServer)
		want    string
		reason  Reason
		missing string
		mends   func(s *apiServer)
	}{
		{"list and watch are forbidden", func(s *apiServer) {
			s.fail("list services", forbidden("services"))
			s.fail("watch services", forbidden("services"))
			s.cut("services")
		}, `list services: services is forbidden: User "x" cannot do that`, ReasonForbidden, "list services", func(s *apiServer) {
			s.fail("list services", nil)
			s.fail("watch services", nil)
		}},
		{"watch alone is forbidden", func(s *apiServer) {
			s.fail("watch services", forbidden("services"))
			s.cut("services")
		}, `watch services: services is forbidden`, ReasonForbidden, "watch services", func(s *apiServer) { s.fail("watch services", nil) }},
		{"the token is refused", func(s *apiServer) {
			s.fail("list services", apierrors.NewUnauthorized("who are you"))
			s.fail("watch services", apierrors.NewUnauthorized("who are you"))
			s.cut("services")
		}, "list services: who are you", ReasonUnauthorized, "", func(s *apiServer) {
			s.fail("list services", nil)
			s.fail("watch services", nil)
		}},
		{"too many requests", func(s *apiServer) {
			s.fail("watch services", apierrors.NewTooManyRequests("later", 1))
			s.cut("services")
		}, "watch services: later", ReasonUnavailable, "", func(s *apiServer) { s.fail("watch services", nil) }},
		{"an answer cannot be decoded", func(s *apiServer) {
			s.answer("services", `{"kind":"ServiceList","apiVersion":"v1","items":[{"spec":{"ports":[{"port":"web"}]}}]}`)
			s.fail("watch services", apierrors.NewGone("start over"))
			s.cut("services")
		}, "list services: json: cannot unmarshal string into Go struct field", ReasonBroken, "", func(s *apiServer) {
			s.answer("services", "")
			s.fail("watch services", nil)
		}},
		{"the API server is gone", func(s *apiServer) { s.stop() }, "watch services: dial tcp 127.0.0.1:", ReasonUnreachable, "", func(s *apiServer) { s.restart() }},
	} {
		t.Run(tc.name+" (R31)", func(t *testing.T) {
			t.Parallel()
			s := filled(t)
			r := newRecorder()
			r.run(t, source(t, s))
			r.awaitListed(t)
			r.awaitPorts(t, "shop/a:80 shop/b:81")
			tc.breaks(s)
			r.await(t, "stale because "+tc.want, func() bool { return strings.Contains(fmt.Sprint(r.trouble[KindService]), tc.want) })
			r.wantTrouble(t, KindService, tc.reason, tc.missing)
			r.wantDeleted(t)
			s.put("services", onPort("c", 82))
			tc.mends(s)
			r.awaitPorts(t, "shop/a:80 shop/b:81 shop/c:82")
			r.await(t, "healed", func() bool { return r.trouble[KindService] == nil })
			r.wantDeleted(t)
		})
	}
}

func TestAListThatIsCutAgainAndAgainIsTroubleAndIsNotAskedForAtOnce(t *testing.T) {
	s := filled(t)
	s.halve(true)
	r := newRecorder()
	r.run(t, source(t, s))
	r.await(t, "stale", func() bool { return r.trouble[KindService] != nil })
	r.wantTrouble(t, KindService, ReasonBroken, "")
	const observed = 2 * time.Second
	time.Sleep(observed)
	if n := s.count("watch services streamed=true"); n < 2 || n > 6 {
		t.Errorf("asked %d times in %s", n, observed)
	}
	if len(r.listed) != 0 || r.ports() != "" {
		t.Errorf("half a list passed for a whole one: %q", r.ports())
	}
	s.halve(false)
	r.awaitListed(t)
	r.awaitPorts(t, "shop/a:80 shop/b:81")
	r.await(t, "healed", func() bool { return r.trouble[KindService] == nil })
	r.wantDeleted(t)
}

func TestKubernetesNamesInvalidObjectsOfAList(t *testing.T) {
	s := filled(t)
	s.put("services", onPort("bad", 0))
	s.put("services", onPort("worse", -1))
	r := newRecorder()
	r.run(t, source(t, s))
	r.awaitListed(t)
	r.await(t, "two problems", func() bool { return len(r.problems) == 2 && r.saysProblem("Service shop/bad: ") })
	r.awaitPorts(t, "shop/a:80 shop/b:81")
	r.await(t, "an open watch", func() bool { return s.watching("services") })
	s.expire("services")
	s.put("services", onPort("bad", 82))
	s.put("services", onPort("worse", 70000))
	s.compact()
	s.cut("services")
	r.awaitPorts(t, "shop/a:80 shop/b:81 shop/bad:82")
	r.await(t, "one problem", func() bool { return len(r.problems) == 1 && r.saysProblem("Service shop/worse: ") })
}

func TestKubernetesIsNotListedBeforeItIs(t *testing.T) {
	s := filled(t)
	s.fail("list endpointslices", forbidden("endpointslices"))
	s.fail("watch endpointslices", forbidden("endpointslices"))
	r := newRecorder()
	r.run(t, source(t, s))
	r.await(t, "stale", func() bool { return r.trouble[KindEndpointSlice] != nil })
	r.await(t, "the others", func() bool { return len(r.listed) == 2 })
	s.fail("list endpointslices", nil)
	s.fail("watch endpointslices", nil)
	r.awaitListed(t)
	r.await(t, "healed", func() bool { return r.trouble[KindEndpointSlice] == nil })
}

func TestKubernetesStopsWhileTheServerIsAway(t *testing.T) {
	s := newAPIServer(t)
	k := source(t, s)
	s.stop()
	ctx, cancel := context.WithCancel(context.Background())
	r := newRecorder()
	done := make(chan error)
	go func() { done <- k.Run(ctx, r) }()
	r.await(t, "stale", func() bool { return len(r.trouble) == 3 })
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run goes on")
	}
	s.restart()
}

func TestKubernetesList(t *testing.T) {
	s := filled(t)
	for i := range 2 * pageSize {
		s.put("services", onPort(fmt.Sprintf("s%04d", i), 80))
	}
	s.put("services", onPort("bad", 0))
	k := source(t, s)
	objects, problems, err := k.List(context.Background())
	if err != nil || len(objects.Services) != 2*pageSize+2 || len(objects.Slices) != 1 || len(objects.Nodes) != 1 {
		t.Errorf("%d services, %d slices, %d nodes, %v", len(objects.Services), len(objects.Slices), len(objects.Nodes), err)
	}
	wantProblems(t, problems, "Service shop/bad: spec.ports[0].port")
	if n := s.count(fmt.Sprintf("list services streamed=false limit=%d", pageSize)); n != 3 {
		t.Errorf("%d pages: %q", n, s.requests)
	}
	s.fail("list nodes", forbidden("nodes"))
	if _, _, err := k.List(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "list nodes: ") || !strings.Contains(err.Error(), " (asked of http://127.0.0.1:") {
		t.Errorf("got %v", err)
	}
	if k.String() != s.http.URL || !s.agents["fairlead/test"] {
		t.Errorf("%s, %v", k, s.agents)
	}
}

func TestNewKubernetesNeedsANode(t *testing.T) {
	if _, err := NewKubernetes(&rest.Config{Host: "http://127.0.0.1:1"}, "", nil, discard()); err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("got %v", err)
	}
}

func TestStoreAnswersAListOfEndpointSlicesInOneCall(t *testing.T) {
	// An endpoint that moves from one slice to another between two lists.
	r := newRecorder()
	s := &store{kind: KindEndpointSlice, handler: r, convert: &Converter{}, board: &board{handler: r},
		synced: func() {}, held: make(map[model.Name]string)}
	one, two := webSlice(), webSlice()
	two.Name, two.Endpoints = "web-2", nil
	replace := func(list ...*discoveryv1.EndpointSlice) {
		objects := make([]any, len(list))
		for i, o := range list {
			objects[i] = o
		}
		if err := s.Replace(objects, "1"); err != nil {
			t.Fatal(err)
		}
	}
	replace(one, two)
	moved := webSlice()
	moved.Name = "web-2"
	replace(moved)
	if len(r.batches) != 2 || len(r.batches[1]) != 2 || len(r.held) != 1 {
		t.Errorf("got %+v", r.batches)
	}
	if len(r.listed) != 1 {
		t.Errorf("listed %d times", len(r.listed))
	}
}

func TestOfWhatAListBringsOnlyTheAnnotationsThatAreReadAreKept(t *testing.T) {
	const at = "2026-11-20T10:00:00Z"
	in := webSlice()
	read := map[string]string{corev1.EndpointsLastChangeTriggerTime: at, selectionAnnotation: "maglev"}
	in.Annotations = maps.Clone(read)
	in.Annotations["large"] = strings.Repeat("x", 1<<16)
	in.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	out, err := (&store{}).Transformer()(in)
	if err != nil {
		t.Fatal(err)
	}
	want := webSlice()
	want.Annotations = read
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
