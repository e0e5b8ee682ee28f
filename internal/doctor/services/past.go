// SPDX-License-Identifier: Apache-2.0

package services

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// Moment is one EndpointSlice of a Service as an event of a journal left it.
type Moment struct {
	Service // with that slice alone
	Event   *journal.Event
}

// Past are the EndpointSlices that a Service had one after the other, oldest
// first. What an event does not tell, or tells damaged, is left out.
func Past(events []journal.Event, namespace, name string) []Moment {
	var out []Moment
	for i := range events {
		e := &events[i]
		if e.Kind.Resource != "endpointslices" || e.Namespace != namespace {
			continue
		}
		slice := &discoveryv1.EndpointSlice{}
		if err := json.Unmarshal(e.Content, slice); err != nil || slice.Labels[discoveryv1.LabelServiceName] != name {
			continue
		}
		if e.Type == journal.Deleted || e.Type == journal.Absent {
			slice.Endpoints = nil
		}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		out = append(out, Moment{Service{service, []*discoveryv1.EndpointSlice{slice}}, e})
	}
	return out
}
