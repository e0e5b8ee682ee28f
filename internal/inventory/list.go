// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
)

const (
	// pageSize is how many objects an API server gives in one answer, and so how
	// many are in memory as text.
	pageSize = 500
	// tries is how often a list is begun again that expired between its pages.
	tries = 3
)

// The answers to ask for where metadata is enough. An API server that cannot
// leave out the rest gives all of it.
const (
	whole        = "application/json"
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + whole
	metadataOne  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," + whole
)

// list is what is known of a kind; err is why it is not all.
type list struct {
	objects []*impact.Object
	err     error
}

// list reads all objects of a kind. A list that expires between its pages, as
// long ones do, is begun again.
func (r *reader) list(ctx context.Context, k kind) (l list) {
	for range tries {
		l = r.pages(ctx, k)
		if !apierrors.IsResourceExpired(l.err) {
			break
		}
		r.count(k, -len(l.objects), 0)
	}
	r.count(k, 0, 1)
	return l
}

func (r *reader) pages(ctx context.Context, k kind) (l list) {
	for next := ""; ; {
		p, err := r.page(ctx, k, next)
		if err == nil {
			err = l.add(k, p.Items)
		}
		if err != nil {
			l.err = err
			return l
		}
		r.count(k, len(p.Items), 0)
		if next = p.Metadata.Continue; next == "" {
			return l
		}
	}
}

// page is a part of a list.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []jsontext.Value `json:"items"`
}

func (r *reader) page(ctx context.Context, k kind, from string) (p page, err error) {
	request := r.rest.Get().AbsPath(k.path("")...).Param("limit", strconv.Itoa(pageSize)).
		SetHeader("Accept", k.accept(metadataList))
	if from != "" {
		request.Param("continue", from)
	}
	return p, answer(request.Do(ctx), &p)
}

func (l *list) add(k kind, items []jsontext.Value) error {
	for _, item := range items {
		content := k.empty()
		if err := decode(item, content); err != nil {
			return err
		}
		l.objects = append(l.objects, impact.NewObject(k.Resource, content))
	}
	return nil
}

// get reads one object as judges want to have it.
func (r *reader) get(ctx context.Context, k kind, namespace, name string) (*impact.Object, error) {
	request := r.rest.Get().AbsPath(append(k.path(namespace), name)...).SetHeader("Accept", k.accept(metadataOne))
	content := k.empty()
	if err := answer(request.Do(ctx), content); err != nil {
		return nil, err
	}
	return impact.NewObject(k.Resource, content), nil
}

func (k kind) accept(metadata string) string {
	if _, ok := k.empty().(*metav1.PartialObjectMetadata); ok {
		return metadata
	}
	return whole
}

// path is where the API serves a kind's objects, of one namespace or of all.
func (k kind) path(namespace string) []string {
	path := []string{"apis", k.Group, k.Version}
	if k.Group == "" {
		path = []string{"api", k.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(path, k.Resource.Resource)
}

// unread passes over what every object has most of, and nobody reads.
var unread = json.WithUnmarshalers(json.UnmarshalFromFunc(func(from *jsontext.Decoder, _ *[]metav1.ManagedFieldsEntry) error {
	return from.SkipValue()
}))

// answer reads what an API server gave, or why it did not.
func answer(result rest.Result, into any) error {
	if err := result.Error(); err != nil {
		return err
	}
	text, err := result.Raw()
	if err != nil {
		return err
	}
	return decode(text, into)
}

func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into, unread); err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	return nil
}
