// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/fairlead-io/fairlead/internal/model"
)

// pageSize is how many objects List asks for at once.
const pageSize = 500

// resource is one kind as the API server serves it.
type resource struct {
	kind          Kind
	name          string // plural, as in URLs and RBAC rules
	group         string // "" is the core group
	labelSelector string
	fieldSelector string
	example       runtime.Object
	client        rest.Interface
}

func (r resource) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ctx, sent := withExchange(ctx)
	list, err := r.request(options).Do(ctx).Get()
	if err != nil {
		return nil, r.trouble("list", sent, err)
	}
	return list, nil
}

func (r resource) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	ctx, sent := withExchange(ctx)
	w, err := r.request(options).Watch(ctx)
	// Of a connection that ends early or times out, client-go makes a watch
	// without events.
	if err := cmp.Or(err, sent.err); err != nil {
		return nil, r.trouble("watch", sent, err)
	}
	return w, nil
}

// request never retries by itself, since what retries it also reports.
func (r resource) request(options metav1.ListOptions) *rest.Request {
	options.LabelSelector = r.labelSelector
	options.FieldSelector = r.fieldSelector
	return r.client.Get().
		Resource(r.name).
		VersionedParams(&options, metav1.ParameterCodec).
		MaxRetries(0)
}

// kubernetes follows an API server.
type kubernetes struct {
	host      string
	resources []resource
	found     func() <-chan struct{}
	log       *slog.Logger
}

// NewKubernetes returns a source that follows all Services, all EndpointSlices
// but headless ones (R2), and the Node of the given name. It makes no request
// before Run or List. Found returns a channel that is closed when the API server
// was found again after it had not answered, so that nobody then waits on; nil
// where nobody tells.
func NewKubernetes(config *rest.Config, nodeName string, found func() <-chan struct{}, log *slog.Logger) (Source, error) {
	if nodeName == "" {
		return nil, errors.New("the name of this node is not known: give --node-name")
	}
	core, err := client(config, "/api", corev1.SchemeGroupVersion, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	discovery, err := client(config, "/apis", discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = func() <-chan struct{} { return nil }
	}
	return &kubernetes{
		host:  config.Host,
		found: found,
		log:   log,
		resources: []resource{
			{kind: KindService, name: "services", client: core, example: &corev1.Service{}},
			{kind: KindEndpointSlice, name: "endpointslices", group: discoveryv1.GroupName, client: discovery, example: &discoveryv1.EndpointSlice{},
				labelSelector: "!" + corev1.IsHeadlessService},
			{kind: KindNode, name: "nodes", client: core, example: &corev1.Node{},
				fieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, nodeName).String()},
		},
	}, nil
}

// client returns a client that knows one API group only. Objects travel as
// protobuf, which costs a fraction of what JSON does.
func client(config *rest.Config, path string, group schema.GroupVersion, add func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, fmt.Errorf("registering the types of %s: %w", group, err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.APIPath = path
	config.GroupVersion = &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return exchanges{rt} })
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s at %s: %w", group, config.Host, err)
	}
	return c, nil
}

// String implements Source.
func (k *kubernetes) String() string { return k.host }

// Run implements Source.
func (k *kubernetes) Run(ctx context.Context, h Handler) error {
	var convert Converter
	problems := &board{handler: h}
	var running sync.WaitGroup
	for _, r := range k.resources {
		f := &follower{resource: r, handler: h, found: k.found, log: k.log}
		s := &store{kind: r.kind, handler: h, convert: &convert, board: problems, held: make(map[model.Name]string)}
		running.Go(func() { f.run(ctx, s) })
	}
	running.Wait()
	return nil
}

// List implements Source.
func (k *kubernetes) List(ctx context.Context) (Objects, []Problem, error) {
	var convert Converter
	var objects Objects
	var problems []Problem
	for _, r := range k.resources {
		pages := pager.New(r.list)
		pages.PageSize = pageSize
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			event, wrong := convert.Event(obj)
			objects.add(event)
			problems = append(problems, wrong...)
			return nil
		})
		if err != nil {
			return Objects{}, nil, fmt.Errorf("%w (asked of %s)", err, k.host)
		}
	}
	return objects, problems, nil
}

func (o *Objects) add(e Event) {
	switch {
	case e.Service != nil:
		o.Services = append(o.Services, e.Service)
	case e.Slice != nil:
		o.Slices = append(o.Slices, e.Slice)
	case e.Node != nil:
		o.Nodes = append(o.Nodes, e.Node)
	}
}
