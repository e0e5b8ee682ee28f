// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// pageSize is how many objects an API server gives in one answer.
const pageSize = 500

// list is what is asked of the API.
type list struct {
	schema.GroupVersionResource
	namespace string // only there; empty: everywhere
	optional  bool   // an API server may not have it
}

// lists are what Services rest on, who may do what, what runs, and which policies
// there are: what a policy forbids is no fault of a data plane. Of ConfigMaps
// and Leases those of the system are enough.
func lists() []list {
	core := schema.GroupVersion{Version: "v1"}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	cilium := schema.GroupVersion{Group: "cilium.io", Version: "v2"}
	calico := schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
	return []list{
		{GroupVersionResource: core.WithResource("services")},
		{GroupVersionResource: schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}},
		{GroupVersionResource: core.WithResource("nodes")},
		{GroupVersionResource: core.WithResource("pods")},
		{GroupVersionResource: core.WithResource("configmaps"), namespace: metav1.NamespaceSystem},
		{GroupVersionResource: core.WithResource("serviceaccounts")},
		{GroupVersionResource: apps.WithResource("daemonsets")},
		{GroupVersionResource: apps.WithResource("deployments")},
		{GroupVersionResource: apps.WithResource("statefulsets")},
		{GroupVersionResource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, namespace: metav1.NamespaceSystem},
		{GroupVersionResource: rbac.WithResource("roles")},
		{GroupVersionResource: rbac.WithResource("rolebindings")},
		{GroupVersionResource: rbac.WithResource("clusterroles")},
		{GroupVersionResource: rbac.WithResource("clusterrolebindings")},
		{GroupVersionResource: schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}},
		{GroupVersionResource: cilium.WithResource("ciliumendpoints"), optional: true},
		{GroupVersionResource: cilium.WithResource("ciliumnetworkpolicies"), optional: true},
		{GroupVersionResource: cilium.WithResource("ciliumclusterwidenetworkpolicies"), optional: true},
		{GroupVersionResource: calico.WithResource("networkpolicies"), optional: true},
		{GroupVersionResource: calico.WithResource("globalnetworkpolicies"), optional: true},
		{GroupVersionResource: calico.WithResource("felixconfigurations"), optional: true},
	}
}

// name is the resource as kubectl takes it.
func (l list) name() string { return l.GroupResource().String() }

// record is what is known of the list before it was read. Only that of all
// namespaces says what there is not.
func (l list) record() evidence.Record {
	if l.namespace != "" {
		return evidence.Record{
			Path: "objects/_" + l.name() + "-" + l.namespace + ".json", Kind: evidence.Objects,
			Command: "kubectl -n " + l.namespace + " get " + l.name() + " -o json",
		}
	}
	return evidence.Record{
		Path: "objects/" + l.name() + ".json", Kind: evidence.Objects, Resources: []string{l.name()},
		Command: "kubectl get " + l.name() + " -A -o json",
	}
}

// cluster is an API server's clients.
type cluster struct {
	way      *apiserver.Client
	typed    kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface

	// pods are those there were in the beginning; podsErr is why they are not
	// known.
	pods    []corev1.Pod
	podsErr error
}

func newCluster(way *apiserver.Client) (*cluster, error) {
	typed, err := kubernetes.NewForConfig(way.REST())
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", way, err)
	}
	objects, err := dynamic.NewForConfig(way.REST())
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", way, err)
	}
	names, err := metadata.NewForConfig(way.REST())
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", way, err)
	}
	return &cluster{way: way, typed: typed, dynamic: objects, metadata: names}, nil
}

// findPods lists what runs, to know whose logs to read and whom to ask.
func (c *cluster) findPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.typed.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			c.podsErr = fmt.Errorf("list pods: %w", err)
			return
		}
		c.pods = append(c.pods, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return
		}
	}
}

// sources are what the API says. An API server that does not answer is one
// failure, not one for each list.
func (c *cluster) sources(ctx context.Context) group {
	version := source{
		record: evidence.Record{Path: "version.json", Kind: evidence.Version, Command: "kubectl get --raw /version"},
		read:   c.version,
	}
	if !c.answers(ctx) {
		return group{version}
	}
	all := group{version}
	for _, l := range lists() {
		all = append(all, source{l.record(), func(ctx context.Context) (output, error) { return c.list(ctx, l) }})
	}
	return append(append(all, c.releases()), c.access()...)
}

// answers says whether an API server does, be it with a refusal.
func (c *cluster) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, sourceTime)
	defer cancel()
	_, err := c.version(ctx)
	return err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown
}

func (c *cluster) version(ctx context.Context) (output, error) {
	text, err := c.typed.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	return output{content: text}, err
}

// list reads all objects, page by page, into one List. A list whose pages have
// become too old in between is asked for at once.
func (c *cluster) list(ctx context.Context, l list) (output, error) {
	out, err := c.pages(ctx, l, pageSize)
	if apierrors.IsResourceExpired(err) {
		out, err = c.pages(ctx, l, 0)
	}
	if l.optional && apierrors.IsNotFound(err) {
		return output{}, errNothing
	}
	return out, err
}

func (c *cluster) pages(ctx context.Context, l list, size int64) (output, error) {
	out := &listWriter{}
	options := metav1.ListOptions{Limit: size}
	for {
		page, err := c.dynamic.Resource(l.GroupVersionResource).Namespace(l.namespace).List(ctx, options)
		if err != nil {
			return output{}, err
		}
		for i := range page.Items {
			if err := out.add(&page.Items[i]); err != nil {
				return output{}, fmt.Errorf("write %s %s/%s: %w", l.name(), page.Items[i].GetNamespace(), page.Items[i].GetName(), err)
			}
		}
		options.Continue = page.GetContinue()
		if options.Continue == "" || out.cut {
			return out.close(page.GetResourceVersion()), nil
		}
	}
}

// listWriter writes a List of the API, one object in a line.
type listWriter struct {
	text bytes.Buffer
	cut  bool
}

func (w *listWriter) add(object *unstructured.Unstructured) error {
	trim(object)
	text, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	if w.text.Len()+len(text) > maxContent/2 {
		w.cut = true
		return nil
	}
	if w.text.Len() > 0 {
		w.text.WriteString(",\n")
	}
	w.text.Write(text)
	return nil
}

func (w *listWriter) close(version string) output {
	head, _ := json.Marshal(map[string]string{"resourceVersion": version}) // strings never fail
	return output{
		content: fmt.Appendf(nil, "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"metadata\":%s,\"items\":[\n%s\n]}\n", head, w.text.Bytes()),
		version: version, cut: w.cut,
	}
}
