// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// readAccess reads what the API server said to SubjectAccessReviews: a List of
// them, or several documents. A review that was not answered is not among the
// facts.
func readAccess(_ *Case, s *Sample, r *evidence.Record) error {
	found := false
	for data, err := range reflector.Documents(r.Content) {
		if err != nil {
			return fmt.Errorf("read a list of SubjectAccessReviews: %w", err)
		}
		var list struct {
			Items []review `json:"items"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return fmt.Errorf("read a list of SubjectAccessReviews: %w", err)
		}
		found = found || list.Items != nil
		for i := range list.Items {
			if a, answered := access(&list.Items[i]); answered {
				a.Record = r
				s.Access = append(s.Access, a)
			}
		}
	}
	if !found {
		return errors.New("it holds no list of SubjectAccessReviews")
	}
	return nil
}

// review is a SubjectAccessReview that may not have been answered.
type review struct {
	Spec   authorizationv1.SubjectAccessReviewSpec    `json:"spec"`
	Status *authorizationv1.SubjectAccessReviewStatus `json:"status"`
}

// access is what a review says. One that ended in an error says nothing.
func access(r *review) (Access, bool) {
	of, status := r.Spec.ResourceAttributes, r.Status
	if of == nil || status == nil || r.Spec.User == "" {
		return Access{}, false
	}
	if !status.Allowed && status.EvaluationError != "" && status.Reason == "" {
		return Access{}, false
	}
	resource := of.Resource
	if of.Subresource != "" {
		resource += "/" + of.Subresource
	}
	return Access{
		User: r.Spec.User, Verb: of.Verb, Group: of.Group, Resource: resource, Name: of.Name, Namespace: of.Namespace,
		Allowed: status.Allowed, Reason: status.Reason,
	}, true
}
