// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// Args are the arguments of a `kubectl delete` that say what goes.
type Args struct {
	Words []string // kinds and names
	Files resource.FilenameOptions
	Stdin io.Reader // what the file "-" holds

	LabelSelector, FieldSelector string
	All, AllNamespaces           bool
	IgnoreNotFound               bool

	// Doing is told what is being read; nil if nobody cares.
	Doing func(what string)
}

// Named is what the arguments of a delete name.
type Named struct {
	// Objects are in the order in which kubectl would delete them, each once. Of
	// what they hold no more than the metadata is known.
	Objects []*impact.Object
	// Troubles are why others are not among them: those that are not there, and
	// those that may not be read.
	Troubles []error
}

// Roots finds the objects that `kubectl delete` would take with these
// arguments, by kubectl's own rules. An error means that it would take none:
// the arguments make no sense, or the API server does not answer.
func Roots(ctx context.Context, getter genericclioptions.RESTClientGetter, args Args) (*Named, error) {
	f, err := newFinder(getter, args)
	if err != nil {
		return nil, err
	}
	for range tries {
		var named *Named
		if named, err = f.find(ctx); !apierrors.IsResourceExpired(err) {
			return named, err
		}
	}
	return nil, fmt.Errorf("list what is to be deleted: the list expired %d times before its last page: %w", tries, err)
}

// finder does what kubectl does before it deletes.
type finder struct {
	Args
	getter    genericclioptions.RESTClientGetter
	metadata  metadata.Interface
	namespace string
	enforced  bool // the namespace was given
	stdin     []byte
}

func newFinder(getter genericclioptions.RESTClientGetter, args Args) (*finder, error) {
	f := &finder{Args: args, getter: getter}
	if f.Doing == nil {
		f.Doing = func(string) {}
	}
	config, err := getter.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read how to reach the API server: %w", err)
	}
	if f.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	if f.namespace, f.enforced, err = getter.ToRawKubeConfigLoader().Namespace(); err != nil {
		return nil, fmt.Errorf("read the namespace of the kubeconfig: %w", err)
	}
	return f, f.readStdin()
}

// standard is the name of standard input among files.
const standard = "-"

// readStdin keeps what is there, for it can be read once only. What is wrong
// with the names of files is said by the builder.
func (f *finder) readStdin() error {
	files := slices.DeleteFunc(slices.Clone(f.Files.Filenames), func(name string) bool { return name == standard })
	switch {
	case len(files) == len(f.Files.Filenames) || f.Files.Kustomize != "":
		return nil
	case len(files) < len(f.Files.Filenames)-1:
		return resource.StdinMultiUseError
	}
	var err error
	if f.stdin, err = io.ReadAll(f.Stdin); err != nil {
		return fmt.Errorf("read what is to be deleted from standard input: %w", err)
	}
	if f.stdin == nil {
		f.stdin = []byte{}
	}
	f.Files.Filenames = files
	return nil
}

// finding is a Named in the making.
type finding struct {
	*finder
	Named
	seen    map[impact.Key]bool
	deletes map[schema.GroupVersionResource]bool
}

func (f *finder) find(ctx context.Context) (*Named, error) {
	f.Doing("asking what is to be deleted")
	result := f.build().Do()
	if err := result.Err(); err != nil {
		return nil, unquoted(err)
	}
	found := &finding{finder: f, seen: map[impact.Key]bool{}, deletes: map[schema.GroupVersionResource]bool{}}
	err := result.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		return found.visit(ctx, info)
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("find what is to be deleted: %w", context.Cause(ctx))
	}
	for _, err := range parts(err) {
		switch {
		case apierrors.IsResourceExpired(err):
			return nil, err
		case !f.IgnoreNotFound || !apierrors.IsNotFound(err):
			found.Troubles = append(found.Troubles, unquoted(err))
		}
	}
	return &found.Named, nil
}

// unquoted leaves out the text of a document that has no kind: the builder puts
// all of it into its error, and it may be a Secret.
func unquoted(err error) error {
	if why, _, quotes := strings.Cut(err.Error(), " is missing in '"); quotes {
		return errors.New(why + " is missing")
	}
	return err
}

// parts are the errors that a visitor has collected, each once.
func parts(err error) []error {
	var all utilerrors.Aggregate
	switch {
	case err == nil:
		return nil
	case errors.As(err, &all):
		return utilerrors.Flatten(all).Errors()
	}
	return []error{err}
}

// build is kubectl's own reading of the arguments. What selectors match is asked
// for in pages, and of each object the metadata only; what is in files is looked
// up afterwards.
func (f *finder) build() *resource.Builder {
	b := resource.NewBuilder(f.getter).Unstructured().ContinueOnError().
		NamespaceParam(f.namespace).DefaultNamespace().
		FilenameParam(f.enforced, &f.Files).
		LabelSelectorParam(f.LabelSelector).
		FieldSelectorParam(f.FieldSelector).
		SelectAllParam(f.All).
		AllNamespaces(f.AllNamespaces).
		ResourceTypeOrNameArgs(false, f.Words...).
		RequireObject(false).
		RequestChunksOf(pageSize).
		TransformRequests(func(r *rest.Request) { r.SetHeader("Accept", metadataList) })
	if f.stdin != nil {
		b.Stream(bytes.NewReader(f.stdin), "standard input")
	}
	if f.stdin != nil || len(f.Files.Filenames) > 0 || f.Files.Kustomize != "" {
		b.Flatten()
	}
	return b
}

// visit takes a page of what a selector matches, or one object of a name.
func (f *finding) visit(ctx context.Context, info *resource.Info) error {
	if f.enforced && f.AllNamespaces && info.Namespaced() {
		return fmt.Errorf("delete %s: --namespace does not go with --all-namespaces: give one of the two", info.Mapping.Resource.GroupResource())
	}
	if !f.deletable(info.Mapping.Resource) {
		return fmt.Errorf("delete %s: the API server makes them up when it is asked, and deletes none", info.Mapping.Resource.GroupResource())
	}
	if info.Object != nil && meta.IsListType(info.Object) {
		err := meta.EachListItem(info.Object, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return fmt.Errorf("read the list of %s: %w", info.Mapping.Resource.GroupResource(), err)
			}
			f.add(info.Mapping, m)
			return nil
		})
		f.count()
		return err
	}
	switch {
	case info.Name == "" && info.Source == "":
		return fmt.Errorf("the name of an object of %s is empty", info.Mapping.Resource.GroupResource())
	case info.Name == "":
		return fmt.Errorf("an object in %s has no name", info.Source)
	case info.Namespaced() && info.Namespace == "":
		return fmt.Errorf("%s %s in %s says no namespace, and neither does --all-namespaces: give its own with --namespace", info.Mapping.GroupVersionKind.Kind, info.Name, info.Source)
	}
	m, err := f.metadata.Resource(info.Mapping.Resource).Namespace(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	f.add(info.Mapping, m)
	f.count()
	return nil
}

// count tells how far the finding is. Files may name thousands of objects, each
// of which is asked for.
func (f *finding) count() {
	f.Doing(fmt.Sprintf("asking what is to be deleted: %d objects so far", len(f.Objects)))
}

// deletable says that the API server deletes objects of a kind. Where it does not
// say what it does, kubectl tries.
func (f *finding) deletable(gvr schema.GroupVersionResource) bool {
	if known, ok := f.deletes[gvr]; ok {
		return known
	}
	f.deletes[gvr] = true
	found, err := f.getter.ToDiscoveryClient()
	if err != nil {
		return true
	}
	list, err := found.ServerResourcesForGroupVersion(gvr.GroupVersion().String())
	if err != nil {
		return true
	}
	i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource })
	f.deletes[gvr] = i < 0 || slices.Contains(list.APIResources[i].Verbs, "delete")
	return f.deletes[gvr]
}

func (f *finding) add(mapping *meta.RESTMapping, m metav1.Object) {
	r := &impact.Resource{
		GroupVersionResource: mapping.Resource, Kind: mapping.GroupVersionKind.Kind,
		Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}
	// Metadata is no content of a kind of which judges read more.
	o := impact.NewObject(r, m)
	o.Content = nil
	if key := o.Key(); !f.seen[key] {
		f.seen[key] = true
		f.Objects = append(f.Objects, o)
	}
}

// Complete finds what a delete names in a state that was read afterwards, and
// adds what that one lacks: what may be read by name only, and kinds that
// nothing else depends on. What is not there any more is not among the roots.
func Complete(ctx context.Context, cfg Config, state *impact.State, named []*impact.Object) (roots []*impact.Object, err error) {
	r, err := newReader(cfg)
	if err != nil {
		return nil, err
	}
	missing := make([]*impact.Object, len(named))
	failures := make([]error, len(named))
	inParallel(len(named), func(i int) {
		if _, ok := state.Get(named[i].Key()); !ok {
			missing[i], failures[i] = r.again(ctx, named[i])
		}
	})
	for i, o := range named {
		if failures[i] != nil {
			if gone(failures[i]) {
				continue
			}
			return nil, fmt.Errorf("read %s: %w", o, failures[i])
		}
		if missing[i] != nil {
			state.Add(missing[i])
		}
		known, _ := state.Get(o.Key())
		roots = append(roots, known)
	}
	return roots, nil
}

// again reads an object that only its name led to. Of kinds that no judge reads
// the metadata is enough, which is there.
func (r *reader) again(ctx context.Context, o *impact.Object) (*impact.Object, error) {
	judged, ok := impact.KindOf(o.Resource.GroupResource())
	if !ok {
		return o, nil
	}
	asked := *o.Resource
	asked.Version = judged.Version
	return r.get(ctx, kind{Resource: &asked, empty: judged.New}, o.Namespace, o.Name)
}
