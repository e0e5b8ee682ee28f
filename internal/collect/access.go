// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// access asks the API server whether the components that run may do what they
// cannot do without. Whoever may not ask that leaves it to the roles.
func (c *cluster) access() group {
	asked := c.questions()
	if len(asked) == 0 {
		return nil
	}
	return group{{
		record: evidence.Record{
			Path: "access.json", Kind: evidence.Access,
			Command: "kubectl auth can-i --all-namespaces --as=" + asked[0].Spec.User + " " + asked[0].Spec.ResourceAttributes.Verb + " " +
				rbac.GroupResource(asked[0].Spec.ResourceAttributes.Group, asked[0].Spec.ResourceAttributes.Resource),
		},
		read: absent(func(ctx context.Context) (output, error) { return c.ask(ctx, asked) }),
	}}
}

// questions are what each component in the cluster needs, asked for the service
// accounts of its pods.
func (c *cluster) questions() (all []authorizationv1.SubjectAccessReview) {
	seen := map[string]bool{}
	for _, component := range rbac.Components() {
		for i := range c.pods {
			pod := &c.pods[i]
			if !component.Runs(pod.Labels, &pod.Spec) || !rbac.IsItsAccount(&pod.Spec) {
				continue
			}
			user := "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName
			if seen[component.ID+user] {
				continue
			}
			seen[component.ID+user] = true
			for _, request := range component.Requests() {
				all = append(all, question(user, pod.Namespace, request))
			}
		}
	}
	return all
}

func question(user, namespace string, r rbac.Request) authorizationv1.SubjectAccessReview {
	return authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			// A service account is known to roles by these groups as well.
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name,
			},
		},
	}
}

func (c *cluster) ask(ctx context.Context, asked []authorizationv1.SubjectAccessReview) (output, error) {
	answers := slices.Clone(asked)
	for i := range answers {
		got, err := c.typed.AuthorizationV1().SubjectAccessReviews().Create(ctx, &asked[i], metav1.CreateOptions{})
		if err != nil {
			return output{}, fmt.Errorf("ask what %s may do: %w", asked[i].Spec.User, err)
		}
		answers[i].Status = got.Status
	}
	return inJSON(map[string]any{"apiVersion": "v1", "kind": "List", "items": answers}, nil)
}
