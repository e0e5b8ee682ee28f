// SPDX-License-Identifier: Apache-2.0

// Package source reads the objects of access control: those that an API server
// has, those that a journal had at a moment, and those of manifests.
//
// What they allow may not enter: package rbac says that.
package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// pageSize is how many objects an API server gives in one answer.
const pageSize = 500

// Objects are those of access control.
type Objects struct {
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
}

// Policy is what the objects allow.
func (o *Objects) Policy() *rbac.Policy {
	return rbac.New(o.Roles, o.RoleBindings, o.ClusterRoles, o.ClusterRoleBindings)
}

// Live are the objects that an API server has.
func Live(ctx context.Context, client kubernetes.Interface) (*Objects, error) {
	o, api := &Objects{}, client.RbacV1()
	var errs [4]error
	o.Roles, errs[0] = listed(ctx, "roles", func(ctx context.Context, opts metav1.ListOptions) ([]rbacv1.Role, string, error) {
		l, err := api.Roles("").List(ctx, opts)
		return l.Items, l.Continue, err
	})
	o.RoleBindings, errs[1] = listed(ctx, "rolebindings", func(ctx context.Context, opts metav1.ListOptions) ([]rbacv1.RoleBinding, string, error) {
		l, err := api.RoleBindings("").List(ctx, opts)
		return l.Items, l.Continue, err
	})
	o.ClusterRoles, errs[2] = listed(ctx, "clusterroles", func(ctx context.Context, opts metav1.ListOptions) ([]rbacv1.ClusterRole, string, error) {
		l, err := api.ClusterRoles().List(ctx, opts)
		return l.Items, l.Continue, err
	})
	o.ClusterRoleBindings, errs[3] = listed(ctx, "clusterrolebindings", func(ctx context.Context, opts metav1.ListOptions) ([]rbacv1.ClusterRoleBinding, string, error) {
		l, err := api.ClusterRoleBindings().List(ctx, opts)
		return l.Items, l.Continue, err
	})
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

// listed reads all pages of a list.
func listed[T any](ctx context.Context, resource string, page func(context.Context, metav1.ListOptions) ([]T, string, error)) (all []*T, err error) {
	opts := metav1.ListOptions{Limit: pageSize}
	for {
		items, next, err := page(ctx, opts)
		switch {
		case apierrors.IsForbidden(err):
			return nil, fmt.Errorf("list %s: %w: ask as a user who may list them in all namespaces", resource, err)
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
		for i := range items {
			all = append(all, &items[i])
		}
		if next == "" {
			return all, nil
		}
		opts.Continue = next
	}
}

// Kinds are the kinds of access control, as a journal's filter names them.
var Kinds = []string{"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"}

// errNotRecorded is what a journal without any of Kinds leads to.
var errNotRecorded = errors.New("it has no roles and no bindings up to that moment: a recorder that may list them writes them unless --only leaves them out")

// Recorded are the objects that a journal had at a moment; the zero time is its
// end. Of a torn journal they are those that can be read, with ErrTorn.
func Recorded(ctx context.Context, j *journal.Journal, at time.Time) (*Objects, error) {
	filter := journal.Filter{Kinds: Kinds, NoDiff: true}
	if !at.IsZero() {
		filter.Until = at.Add(1)
	}
	type key struct{ resource, namespace, name string }
	last, any := map[key]journal.Event{}, false
	var torn error
	for e, err := range j.Events(ctx, filter) {
		if errors.Is(err, journal.ErrTorn) {
			torn = err
			break
		}
		if err != nil {
			return nil, err
		}
		any = true
		k := key{e.Kind.Resource, e.Namespace, e.Name}
		if e.Type == journal.Deleted || e.Type == journal.Absent {
			delete(last, k)
			continue
		}
		last[k] = e
	}
	if !any && torn == nil {
		return nil, errNotRecorded
	}
	o := &Objects{}
	for _, e := range last {
		if err := o.add(e.Kind.Kind, e.Content); err != nil {
			return nil, fmt.Errorf("read %s %s/%s of the journal: %w", e.Kind.Kind, e.Namespace, e.Name, err)
		}
	}
	return o, torn
}

// AddManifests adds the objects of access control among the documents of YAML
// or JSON. Those without a namespace lie in the one that is given.
func (o *Objects) AddManifests(in io.Reader, namespace string) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, 4096)
	for n := 1; ; n++ {
		var document unstructured.Unstructured
		err := decoder.Decode(&document.Object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = o.addDocument(&document, namespace)
		}
		if err != nil {
			return fmt.Errorf("read document %d: %w", n, err)
		}
	}
}

func (o *Objects) addDocument(document *unstructured.Unstructured, namespace string) error {
	if document.IsList() {
		return document.EachListItem(func(item runtime.Object) error {
			return o.addDocument(item.(*unstructured.Unstructured), namespace)
		})
	}
	if document.GroupVersionKind().Group != rbacv1.GroupName {
		return nil
	}
	kind := document.GetKind()
	if document.GetNamespace() == "" && slices.Contains([]string{"Role", "RoleBinding"}, kind) {
		document.SetNamespace(namespace)
	}
	content, err := json.Marshal(document.Object)
	if err != nil {
		return err
	}
	return o.add(kind, content)
}

// add decodes one object. Other kinds are passed over.
func (o *Objects) add(kind string, content []byte) error {
	switch kind {
	case "Role":
		return decoded(&o.Roles, content)
	case "RoleBinding":
		return decoded(&o.RoleBindings, content)
	case "ClusterRole":
		return decoded(&o.ClusterRoles, content)
	case "ClusterRoleBinding":
		return decoded(&o.ClusterRoleBindings, content)
	}
	return nil
}

func decoded[T any](all *[]*T, content []byte) error {
	object := new(T)
	if err := json.Unmarshal(content, object); err != nil {
		return err
	}
	*all = append(*all, object)
	return nil
}
