// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// releasesSelector are the Secrets in which Helm keeps its releases.
const releasesSelector = "owner=helm"

// releases are which Helm releases there are: names and labels of their Secrets,
// which the API server gives without what is in them.
func (c *cluster) releases() source {
	return source{
		record: evidence.Record{
			Path: "objects/_helm-releases.json", Kind: evidence.Objects,
			Command: "kubectl get secrets -A -l " + releasesSelector + " --show-labels",
		},
		read: c.listReleases,
	}
}

// errNoReleases is one line of a report, and keeps nobody from anything else.
var errNoReleases = errors.New("this user may not list Secrets, so which Helm releases there are is not known: they are read without their contents, but who may list them may read these, too")

// listReleases asks first whether the user may: a list that is refused would
// stand in audit logs as an attempt to read Secrets.
func (c *cluster) listReleases(ctx context.Context) (output, error) {
	may, err := c.mayListSecrets(ctx)
	if err != nil {
		return output{}, fmt.Errorf("ask whether this user may list Secrets: %w", err)
	}
	if !may {
		return output{}, errNoReleases
	}
	out, err := c.releasePages(ctx, pageSize)
	if apierrors.IsResourceExpired(err) {
		out, err = c.releasePages(ctx, 0)
	}
	return out, err
}

func (c *cluster) mayListSecrets(ctx context.Context) (bool, error) {
	review, err := c.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func (c *cluster) releasePages(ctx context.Context, size int64) (output, error) {
	out := &listWriter{}
	options := metav1.ListOptions{Limit: size, LabelSelector: releasesSelector}
	for {
		page, err := c.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(ctx, options)
		if err != nil {
			return output{}, fmt.Errorf("list the metadata of Helm's Secrets: %w", err)
		}
		for i := range page.Items {
			if err := out.add(release(&page.Items[i])); err != nil {
				return output{}, fmt.Errorf("write Helm release %s/%s: %w", page.Items[i].Namespace, page.Items[i].Name, err)
			}
		}
		options.Continue = page.Continue
		if options.Continue == "" || out.cut {
			return out.close(page.ResourceVersion), nil
		}
	}
}

// release keeps of a Secret's metadata what says which release it is of. An
// annotation may hold a copy of what is in a Secret, so none stays.
func release(m *metav1.PartialObjectMetadata) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: "PartialObjectMetadata"})
	o.SetNamespace(m.Namespace)
	o.SetName(m.Name)
	o.SetCreationTimestamp(m.CreationTimestamp)
	labels := map[string]string{}
	for _, key := range []string{"owner", "name", "version", "status"} {
		labels[key] = m.Labels[key]
	}
	o.SetLabels(labels)
	return o
}
