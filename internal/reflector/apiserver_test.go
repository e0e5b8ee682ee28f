// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// apiServer answers list and watch over HTTP as an API server does, from
// memory, and can be told to fail in the ways that API servers fail.
type apiServer struct {
	t      *testing.T
	codecs serializer.CodecFactory
	http   *httptest.Server

	mu        sync.Mutex
	jsonOnly  bool
	noStream  bool                                     // refuses to stream lists, as old servers do
	half      bool                                     // ends a list that streams before it is complete
	faults    map[string]*apierrors.StatusError        // by "list services"
	lists     map[string]string                        // answers to list, word for word, by resource
	objects   map[string]map[string]runtime.Object     // by resource and key
	history   map[string][]watch.Event                 // by resource
	watchers  map[string]map[chan watch.Event]struct{} // by resource
	version   int
	compacted int
	requests  []string
	agents    map[string]bool
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	s := &apiServer{
		t:        t,
		codecs:   serializer.NewCodecFactory(scheme),
		faults:   make(map[string]*apierrors.StatusError),
		lists:    make(map[string]string),
		objects:  make(map[string]map[string]runtime.Object),
		history:  make(map[string][]watch.Event),
		watchers: make(map[string]map[chan watch.Event]struct{}),
		agents:   make(map[string]bool),
		version:  1,
	}
	s.http = httptest.NewServer(s)
	t.Cleanup(s.stop)
	return s
}

// stop makes the address refuse connections.
func (s *apiServer) stop() {
	for _, resource := range []string{"services", "endpointslices", "nodes"} {
		s.cut(resource)
	}
	s.http.CloseClientConnections()
	s.http.Close()
}

// restart serves again at the address.
func (s *apiServer) restart() {
	address := s.http.Listener.Addr().String()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.http = &httptest.Server{Listener: listener, Config: &http.Server{Handler: s}}
	s.http.Start()
}

func (s *apiServer) put(resource string, obj runtime.Object) {
	s.change(resource, obj, func(known bool) watch.EventType {
		s.objects[resource][key(obj)] = obj
		if known {
			return watch.Modified
		}
		return watch.Added
	})
}

func (s *apiServer) remove(resource string, obj runtime.Object) {
	s.change(resource, obj, func(bool) watch.EventType {
		delete(s.objects[resource], key(obj))
		return watch.Deleted
	})
}

func (s *apiServer) change(resource string, obj runtime.Object, apply func(known bool) watch.EventType) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	m, _ := meta.Accessor(obj)
	m.SetResourceVersion(strconv.Itoa(s.version))
	if s.objects[resource] == nil {
		s.objects[resource] = make(map[string]runtime.Object)
	}
	_, known := s.objects[resource][key(obj)]
	event := watch.Event{Type: apply(known), Object: obj.DeepCopyObject()}
	s.history[resource] = append(s.history[resource], event)
	s.tell(resource, event)
}

// tell sends an event to those who watch.
func (s *apiServer) tell(resource string, event watch.Event) {
	for w := range s.watchers[resource] {
		w <- event
	}
}

// expire ends the watches with 410 Gone, and forgets what happened before.
func (s *apiServer) expire(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compacted = s.version
	status := apierrors.NewResourceExpired("too old resource version").Status()
	s.tell(resource, watch.Event{Type: watch.Error, Object: &status})
}

// cut ends the watches without a word, as API servers do every few minutes.
func (s *apiServer) cut(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers[resource] {
		close(w)
	}
	s.watchers[resource] = nil
}

// fail answers a verb with an error from now on; nil ends that.
func (s *apiServer) fail(request string, err *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[request] = err
}

// halve cuts lists that stream in from now on, or no more.
func (s *apiServer) halve(half bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.half = half
}

// answer replies to list with this JSON from now on; "" ends that.
func (s *apiServer) answer(resource, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[resource] = text
}

// count says how often a request was made.
func (s *apiServer) count(request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if strings.HasPrefix(r, request) {
			n++
		}
	}
	return n
}

func key(obj runtime.Object) string {
	m, _ := meta.Accessor(obj)
	return m.GetNamespace() + "/" + m.GetName()
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") == "true" {
		verb = "watch"
	}
	streamed := query.Get("sendInitialEvents") == "true"
	s.mu.Lock()
	s.agents[r.UserAgent()] = true
	s.requests = append(s.requests, fmt.Sprintf("%s %s streamed=%v limit=%s labels=%s fields=%s accept=%s",
		verb, resource, streamed, query.Get("limit"), query.Get("labelSelector"), query.Get("fieldSelector"), r.Header.Get("Accept")))
	fault := s.faults[verb+" "+resource]
	noStream := s.noStream
	s.mu.Unlock()
	media := s.media(r.Header.Get("Accept"))
	if fault == nil && streamed && noStream {
		fault = apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	if fault != nil {
		status := fault.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	if verb == "list" {
		s.list(w, r, resource, media)
		return
	}
	s.watch(w, r, resource, media, streamed)
}

// media picks the first type that the client accepts.
func (s *apiServer) media(accept string) runtime.SerializerInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := strings.Cut(strings.Split(accept, ",")[0], ";")
	if s.jsonOnly {
		name = runtime.ContentTypeJSON
	}
	info, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), name)
	if !ok {
		s.t.Errorf("the client accepts %q", accept)
	}
	return info
}

// selected returns the objects that a request asks for, sorted.
func (s *apiServer) selected(r *http.Request, resource string) []runtime.Object {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
	}
	field := fields.ParseSelectorOrDie(r.URL.Query().Get("fieldSelector"))
	var out []runtime.Object
	for _, obj := range s.objects[resource] {
		m, _ := meta.Accessor(obj)
		if selector.Matches(labels.Set(m.GetLabels())) && field.Matches(fields.Set{"metadata.name": m.GetName()}) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b runtime.Object) int { return strings.Compare(key(a), key(b)) })
	return out
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource string, media runtime.SerializerInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.lists[resource]; text != "" {
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		_, _ = io.WriteString(w, text)
		return
	}
	all := s.selected(r, resource)
	listMeta := metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to := len(all)
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && from+limit < len(all) {
		to = from + limit
		listMeta.Continue = strconv.Itoa(to)
	}
	w.Header().Set("Content-Type", media.MediaType)
	encoder := s.codecs.EncoderForVersion(media.Serializer, group(resource))
	if err := encoder.Encode(newList(resource, listMeta, all[from:to]), w); err != nil {
		s.t.Error(err)
	}
}

func group(resource string) schema.GroupVersion {
	if resource == "endpointslices" {
		return discoveryv1.SchemeGroupVersion
	}
	return corev1.SchemeGroupVersion
}

func newList(resource string, m metav1.ListMeta, items []runtime.Object) runtime.Object {
	var list runtime.Object
	switch resource {
	case "services":
		list = &corev1.ServiceList{ListMeta: m}
	case "nodes":
		list = &corev1.NodeList{ListMeta: m}
	default:
		list = &discoveryv1.EndpointSliceList{ListMeta: m}
	}
	if err := meta.SetList(list, items); err != nil {
		panic(err)
	}
	return list
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string, media runtime.SerializerInfo, streamed bool) {
	initial, events, half := s.subscribe(r, resource, streamed)
	defer s.unsubscribe(resource, events)
	if half {
		initial = initial[:len(initial)-1]
	}
	w.Header().Set("Content-Type", media.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	frames := streaming.NewEncoder(media.StreamSerializer.NewFrameWriter(w),
		s.codecs.EncoderForVersion(media.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"}))
	embedded := s.codecs.EncoderForVersion(media.Serializer, schema.GroupVersions{group(resource), {Version: "v1"}})
	send := func(event watch.Event) error {
		raw, err := runtime.Encode(embedded, event.Object)
		if err != nil {
			return err
		}
		out := &metav1.WatchEvent{Type: string(event.Type), Object: runtime.RawExtension{Raw: raw}}
		if err := frames.Encode(out); err != nil {
			return err
		}
		w.(http.Flusher).Flush()
		return nil
	}
	for _, event := range initial {
		if send(event) != nil {
			return
		}
	}
	if half {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-events:
			if !ok || send(event) != nil {
				return
			}
		}
	}
}

// subscribe returns what a watch has to begin with, and the channel of what
// follows; and whether what it begins with is to be cut.
func (s *apiServer) subscribe(r *http.Request, resource string, streamed bool) ([]watch.Event, chan watch.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events := make(chan watch.Event, 1000)
	if s.watchers[resource] == nil {
		s.watchers[resource] = make(map[chan watch.Event]struct{})
	}
	s.watchers[resource][events] = struct{}{}
	if streamed {
		return s.beginning(r, resource), events, s.half
	}
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if since < s.compacted {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		return []watch.Event{{Type: watch.Error, Object: &status}}, events, false
	}
	var missed []watch.Event
	for _, event := range s.history[resource] {
		m, _ := meta.Accessor(event.Object)
		if version, _ := strconv.Atoi(m.GetResourceVersion()); version > since {
			missed = append(missed, event)
		}
	}
	return missed, events, false
}

// beginning is a list in the form of a stream.
func (s *apiServer) beginning(r *http.Request, resource string) []watch.Event {
	var out []watch.Event
	for _, obj := range s.selected(r, resource) {
		out = append(out, watch.Event{Type: watch.Added, Object: obj.DeepCopyObject()})
	}
	end := metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(s.version),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}
	bookmark := map[string]runtime.Object{
		"services":       &corev1.Service{ObjectMeta: end},
		"endpointslices": &discoveryv1.EndpointSlice{ObjectMeta: end},
		"nodes":          &corev1.Node{ObjectMeta: end},
	}[resource]
	return append(out, watch.Event{Type: watch.Bookmark, Object: bookmark})
}

func (s *apiServer) unsubscribe(resource string, events chan watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers[resource], events)
}
