// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// kind is how objects of one kind get into Objects.
type kind struct {
	resource   string // as records name it
	namespaced bool
	take       func(o *Objects, data []byte, k *kind, r *evidence.Record) error
}

// kindKey names a kind: API version, a space, and the kind.
func kindKey(apiVersion, name string) string { return apiVersion + " " + name }

// kinds are those that Objects has types for.
func kinds() map[string]kind {
	const namespaced, clusterWide = true, false
	return map[string]kind{
		"v1 Service":                                      {"services", namespaced, into(func(o *Objects) *[]*corev1.Service { return &o.Services })},
		"v1 Node":                                         {"nodes", clusterWide, into(func(o *Objects) *[]*corev1.Node { return &o.Nodes })},
		"v1 Pod":                                          {"pods", namespaced, into(func(o *Objects) *[]*corev1.Pod { return &o.Pods })},
		"v1 ConfigMap":                                    {"configmaps", namespaced, into(func(o *Objects) *[]*corev1.ConfigMap { return &o.ConfigMaps })},
		"v1 ServiceAccount":                               {"serviceaccounts", namespaced, into(func(o *Objects) *[]*corev1.ServiceAccount { return &o.ServiceAccounts })},
		"discovery.k8s.io/v1 EndpointSlice":               {"endpointslices.discovery.k8s.io", namespaced, into(func(o *Objects) *[]*discoveryv1.EndpointSlice { return &o.EndpointSlices })},
		"apps/v1 DaemonSet":                               {"daemonsets.apps", namespaced, into(func(o *Objects) *[]*appsv1.DaemonSet { return &o.DaemonSets })},
		"apps/v1 Deployment":                              {"deployments.apps", namespaced, into(func(o *Objects) *[]*appsv1.Deployment { return &o.Deployments })},
		"coordination.k8s.io/v1 Lease":                    {"leases.coordination.k8s.io", namespaced, into(func(o *Objects) *[]*coordinationv1.Lease { return &o.Leases })},
		"rbac.authorization.k8s.io/v1 Role":               {"roles.rbac.authorization.k8s.io", namespaced, into(func(o *Objects) *[]*rbacv1.Role { return &o.Roles })},
		"rbac.authorization.k8s.io/v1 RoleBinding":        {"rolebindings.rbac.authorization.k8s.io", namespaced, into(func(o *Objects) *[]*rbacv1.RoleBinding { return &o.RoleBindings })},
		"rbac.authorization.k8s.io/v1 ClusterRole":        {"clusterroles.rbac.authorization.k8s.io", clusterWide, into(func(o *Objects) *[]*rbacv1.ClusterRole { return &o.ClusterRoles })},
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding": {"clusterrolebindings.rbac.authorization.k8s.io", clusterWide, into(func(o *Objects) *[]*rbacv1.ClusterRoleBinding { return &o.ClusterRoleBindings })},
		"meta.k8s.io/v1 PartialObjectMetadata":            {"helm-releases", namespaced, into(func(o *Objects) *[]*metav1.PartialObjectMetadata { return &o.Releases })},
	}
}

// into takes objects of a type into their slice. Field names are compared as
// the API server does, so that a misspelt one is not read as the right one.
func into[T any, P interface {
	*T
	metav1.Object
}](list func(*Objects) *[]*T) func(*Objects, []byte, *kind, *evidence.Record) error {
	return func(o *Objects, data []byte, k *kind, r *evidence.Record) error {
		object := P(new(T))
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, object); err != nil {
			return err
		}
		if err := checkName(object); err != nil {
			return err
		}
		if k.namespaced && object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		name := keyOf[T]{qualified(object)}
		if o.index[name] != nil {
			return nil
		}
		o.index[name] = object
		o.records[any((*T)(object))] = r
		into := list(o)
		*into = append(*into, (*T)(object))
		return nil
	}
}

// plainName is what names of objects are made of; those of RBAC have colons.
// Findings put names into commands that people paste, and bundles come from
// strangers.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]*$`)

func checkName(o metav1.Object) error {
	switch {
	case o.GetName() == "":
		return errors.New("it has no name")
	case !plainName.MatchString(o.GetName()):
		return errors.New("its name is none that an object may have")
	case o.GetNamespace() != "" && !plainName.MatchString(o.GetNamespace()):
		return errors.New("its namespace is none that there may be")
	}
	return nil
}

// isPod says whether a text names a pod, NAMESPACE/NAME. What begins with a dash
// would be an option in a command.
func isPod(text string) bool {
	namespace, name, _ := strings.Cut(text, "/")
	return plainName.MatchString(namespace) && plainName.MatchString(name)
}

// qualified is the name of an object as findings write it.
func qualified(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// objectsReader reads one record.
type objectsReader struct {
	kinds   map[string]kind
	objects *Objects
	record  *evidence.Record
	faults  []string
	// lost are the resources of which an object could not be read.
	lost map[string]bool
	// partial is that the API server has more than it listed.
	partial bool
	found   bool // anything at all
}

func readObjects(_ *Case, s *Sample, r *evidence.Record) error {
	if s.Objects == nil {
		s.Objects = newObjects()
	}
	o := s.Objects
	if !r.Time.IsZero() && (o.Time.IsZero() || r.Time.Before(o.Time)) {
		o.Time = r.Time
	}
	in := &objectsReader{kinds: kinds(), objects: o, record: r, lost: map[string]bool{}}
	for data, err := range reflector.Documents(r.Content) {
		if err != nil {
			in.fault("", err)
			continue
		}
		in.document(data)
	}
	if !in.found && len(in.faults) == 0 {
		return errors.New("it holds no object and no list of objects")
	}
	in.complete()
	return in.err()
}

func newObjects() *Objects {
	return &Objects{records: map[any]*evidence.Record{}, lists: map[string]*evidence.Record{}, index: map[any]any{}}
}

// complete notes of which resources the record has all objects.
func (in *objectsReader) complete() {
	whole := in.found && !in.partial && in.record.Error == "" && !in.record.Cut
	for _, resource := range in.record.Resources {
		resource = in.canonical(resource)
		if whole && !in.lost[""] && !in.lost[resource] && in.objects.lists[resource] == nil {
			in.objects.lists[resource] = in.record
		}
	}
}

// canonical gives a resource its group, if it is one of the known that people
// name without.
func (in *objectsReader) canonical(resource string) string {
	for _, k := range in.kinds {
		if name, _, grouped := strings.Cut(k.resource, "."); grouped && name == resource {
			return k.resource
		}
	}
	return resource
}

// maxFaults is how many broken objects are named: who has more of them has one
// reason for all.
const maxFaults = 5

func (in *objectsReader) err() error {
	if len(in.faults) == 0 && !in.partial {
		return nil
	}
	faults := in.faults
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults:maxFaults], fmt.Sprintf("and %d more", len(in.faults)-maxFaults))
	}
	if in.partial {
		faults = append(faults, "the list goes on elsewhere")
	}
	return fmt.Errorf("%w: %s", errPartial, strings.Join(faults, "; "))
}

// fault notes what could not be read, and that the list of its resource, or of
// any if that is not known, is not whole.
func (in *objectsReader) fault(resource string, err error) {
	in.faults = append(in.faults, err.Error())
	in.lost[resource] = true
}

// head is what an object, or a list of them, says of itself.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// list is the part of a document that a list has.
type list struct {
	head
	Message  string `json:"message"` // of a Status
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (in *objectsReader) document(data []byte) {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return
	}
	var d list
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &d); err != nil {
		in.fault("", fmt.Errorf("a document is no object of the API: %w", err))
		return
	}
	item, isList := strings.CutSuffix(d.Kind, "List")
	switch {
	case d.Kind == "Status":
		in.fault("", fmt.Errorf("the API server said: %s", d.Message))
	case d.Kind == "":
		in.fault("", errors.New("a document has no kind"))
	case isList && (d.Items != nil || item == "" || bytes.Contains(data, []byte(`"items"`))):
		in.found = true
		in.partial = in.partial || d.Metadata.Continue != ""
		for _, one := range d.Items {
			in.item(one, head{d.APIVersion, item})
		}
	default:
		in.found = true
		in.object(data, d.head)
	}
}

// item reads one of a list, which may leave out what the list says for all.
func (in *objectsReader) item(data []byte, all head) {
	h, err := headOf(data)
	switch {
	case err != nil:
		in.fault("", fmt.Errorf("an item of a list is no object: %w", err))
		return
	case h.Kind == "":
		h = all
	}
	if h.Kind == "" {
		in.fault("", errors.New("an item of a list has no kind"))
		return
	}
	in.object(data, h)
}

// headOf reads no further than it must: the API server and kubectl write first
// what an object is.
func headOf(data []byte) (h head, err error) {
	tokens := json.NewDecoder(bytes.NewReader(data))
	if start, err := tokens.Token(); err != nil || start != json.Delim('{') {
		return h, errors.New("it is no mapping of fields")
	}
	for tokens.More() && (h.APIVersion == "" || h.Kind == "") {
		key, err := tokens.Token()
		if err != nil {
			return h, err
		}
		switch key {
		case "apiVersion":
			err = tokens.Decode(&h.APIVersion)
		case "kind":
			err = tokens.Decode(&h.Kind)
		default:
			var skipped json.RawMessage
			err = tokens.Decode(&skipped)
		}
		if err != nil {
			return h, err
		}
	}
	return h, nil
}

func (in *objectsReader) object(data []byte, h head) {
	k, typed := in.kinds[kindKey(h.APIVersion, h.Kind)]
	if !typed {
		in.other(data, h)
		return
	}
	if err := k.take(in.objects, data, &k, in.record); err != nil {
		in.fault(k.resource, fmt.Errorf("%s %s cannot be read: %w", h.Kind, nameIn(data), err))
	}
}

// nameIn is what an object calls itself, as far as it can be read.
func nameIn(data []byte) string {
	var named struct {
		Metadata struct{ Name, Namespace string }
	}
	_ = json.Unmarshal(data, &named) // what is broken has no name
	return strings.TrimPrefix(named.Metadata.Namespace+"/"+named.Metadata.Name, "/")
}

// other keeps an object that has no type here. One of another version of a
// kind that has is missing in the list of that kind.
func (in *objectsReader) other(data []byte, h head) {
	group, _, _ := strings.Cut(h.APIVersion, "/")
	for key, k := range in.kinds {
		version, name, _ := strings.Cut(key, " ")
		itsGroup, _, _ := strings.Cut(version, "/")
		if name == h.Kind && itsGroup == group {
			in.fault(k.resource, fmt.Errorf("%s %s is of version %s, and %s is read", h.Kind, nameIn(data), h.APIVersion, version))
			return
		}
	}
	fields := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &fields); err != nil {
		in.fault("", fmt.Errorf("%s %s cannot be read: %w", h.Kind, nameIn(data), err))
		return
	}
	object := &unstructured.Unstructured{Object: fields}
	object.SetAPIVersion(h.APIVersion)
	object.SetKind(h.Kind)
	if err := checkName(object); err != nil {
		in.fault("", fmt.Errorf("%s %s cannot be read: %w", h.Kind, nameIn(data), err))
		return
	}
	name := keyOf[unstructured.Unstructured]{h.Kind + " " + qualified(object)}
	if in.objects.index[name] != nil {
		return
	}
	in.objects.index[name] = object
	in.objects.records[object] = in.record
	in.objects.Others = append(in.objects.Others, object)
}
