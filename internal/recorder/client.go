// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// target is what one follower asks for: a kind in one namespace, or in all.
type target struct {
	journal.Kind
	namespace string
}

// String names the resource as kubectl does.
func (t target) String() string {
	if t.namespace == "" {
		return groupResource(t.Kind).String()
	}
	return groupResource(t.Kind).String() + " in " + t.namespace
}

// holds says whether objects of a namespace are among those asked for.
func (t target) holds(namespace string) bool { return t.namespace == "" || t.namespace == namespace }

func groupResource(k journal.Kind) schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func (t target) trouble(verb string, answered bool, err error) error {
	return reflector.NewTrouble(verb, groupResource(t.Kind), answered, err)
}

// path leads to the kind's objects at an API server.
func (t target) path() []string {
	path := []string{"/api", t.Version}
	if t.Group != "" {
		path = []string{"/apis", t.Group, t.Version}
	}
	if t.namespace != "" {
		path = append(path, "namespaces", t.namespace)
	}
	return append(path, t.Resource)
}

// client asks an API server for objects of any kind, as JSON.
type client struct{ rest rest.Interface }

func newClient(config *rest.Config) (client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return client{}, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return client{c}, nil
}

// pageSize is how many objects of a list are in memory at once.
const pageSize = 200

// page is a part of a list.
type page struct {
	Metadata struct{ ResourceVersion, Continue string }
	Items    []json.RawMessage
}

// list gives out every object that there is, and returns the version of which
// the list is. Errors of the API server are troubles.
func (c client) list(ctx context.Context, t target, give func(map[string]any) error) (version string, err error) {
	for next := ""; ; {
		p, err := c.page(ctx, t, next)
		if err != nil {
			return "", err
		}
		for _, item := range p.Items {
			fields, err := decodeObject(item)
			if err != nil {
				return "", t.trouble("list", true, err)
			}
			if err := give(fields); err != nil {
				return "", err
			}
		}
		version, next = p.Metadata.ResourceVersion, p.Metadata.Continue
		if next == "" {
			return version, nil
		}
	}
}

// page never retries by itself, since what retries it also reports.
func (c client) page(ctx context.Context, t target, from string) (p page, err error) {
	request := c.rest.Get().AbsPath(t.path()...).Param("limit", strconv.Itoa(pageSize)).MaxRetries(0)
	if from != "" {
		request.Param("continue", from)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return page{}, t.trouble("list", false, err)
	}
	body, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil {
		return page{}, t.trouble("list", true, err)
	}
	return p, nil
}

// The types of what a watch tells.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
	failed   = "ERROR"
)

// change is what a watch tells.
type change struct {
	kind   string
	object map[string]any
}

// A server ends a watch after a time of the client's choice, so that not all
// end at once.
const (
	shortestWatch = 5 * time.Minute
	longestWatch  = 10 * time.Minute
)

// watch gives out what happens after a version until the server ends it, which
// is no error. It says when the server has answered.
func (c client) watch(ctx context.Context, t target, version string, opened func(), give func(change) error) error {
	length := shortestWatch + rand.N(longestWatch-shortestWatch)
	body, err := c.rest.Get().AbsPath(t.path()...).
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("resourceVersion", version).
		Param("timeoutSeconds", strconv.Itoa(int(length.Seconds()))).
		MaxRetries(0).
		Stream(ctx)
	if err != nil {
		return t.trouble("watch", false, err)
	}
	defer body.Close()
	opened()
	decoder := json.NewDecoder(body)
	decoder.UseNumber()
	for {
		var event struct {
			Type   string
			Object map[string]any
		}
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && event.Type == failed {
			err = statusOf(event.Object)
		}
		if err != nil {
			return t.trouble("watch", true, err)
		}
		if err := give(change{event.Type, event.Object}); err != nil {
			return err
		}
	}
}

// statusOf is the error that an object of kind Status tells.
func statusOf(object map[string]any) error {
	var status metav1.Status
	if err := json.Unmarshal(journal.Encode(object), &status); err != nil {
		return fmt.Errorf("an error that cannot be read: %w", err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
