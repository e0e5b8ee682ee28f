// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// served by others than the API server itself, by their Service.
var aggregated = newIndex(func(s *State) map[Key][]*Object {
	out := map[Key][]*Object{}
	for o, api := range Contents[*APIService](s, APIServices) {
		if ref := api.Spec.Service; ref != nil {
			key := Key{Services, ref.Namespace, ref.Name}
			out[key] = append(out[key], o)
		}
	}
	return out
})

// judgeAggregation says which API groups are served no more.
func judgeAggregation(c *Case) []Consequence {
	var out []Consequence
	for _, o := range c.Deleted(APIServices) {
		if api, ok := o.Content.(*APIService); ok {
			out = append(out, c.groupGone(o, api))
		}
	}
	if !c.touchesServing() {
		return out
	}
	c.Need(APIServices, "which API groups are served by what goes")
	for service, apis := range aggregated.of(c.State) {
		f := c.fate(service)
		if !f.ends() {
			continue
		}
		for _, o := range apis {
			if api, ok := o.Content.(*APIService); ok && c.stays(o) && api.available() {
				out = append(out, c.groupDown(o, api, f))
			}
		}
	}
	return out
}

func (c *Case) groupGone(o *Object, api *APIService) Consequence {
	q := Consequence{Severity: Note, ID: "api-group-gone", Objects: []*Object{o}}
	group := api.Spec.Group + "/" + api.Spec.Version
	switch {
	case api.Spec.Service == nil && c.isDefined(api):
		q.Title = o.String() + " comes back within seconds: the API server writes it for a CustomResourceDefinition"
	case api.Spec.Service == nil:
		q.Title = fmt.Sprintf("%s goes; the API server serves %s all the same, and writes it again when it starts anew", o, group)
	case !api.available():
		q.Title = o.String() + " goes; it is not available as it is"
	default:
		q.Severity, q.Rank = Breaks, 1
		q.Title = c.withoutGroup(api, &q) + ": the API server serves " + group + " no more"
	}
	return q
}

// isDefined says that a CustomResourceDefinition stays of which the API server
// keeps an APIService. Those of its own groups it writes once, when it starts.
func (c *Case) isDefined(api *APIService) bool {
	c.Need(Definitions, "which APIServices come back")
	for o, d := range Contents[*Definition](c.State, Definitions) {
		if c.stays(o) && d.Spec.Group == api.Spec.Group {
			return true
		}
	}
	return false
}

// groupDown is of an APIService that stays without anybody behind it.
func (c *Case) groupDown(o *Object, api *APIService, f *fate) Consequence {
	q := Consequence{Severity: Breaks, Rank: 1, ID: "api-group-down", Objects: f.causes()}
	until := ""
	if !f.forGood() {
		until = " until new pods are ready"
	}
	q.Title = fmt.Sprintf("%s%s: requests for %s/%s are answered with 503, as its server goes", c.withoutGroup(api, &q), until, api.Spec.Group, api.Spec.Version)
	q.Affected = append([]string{o.String()}, q.Affected...)
	q.Detail = append(q.Detail, "Namespaces that are deleted hang meanwhile, as nobody can tell what of that group is in them.")
	return q
}

// withoutGroup says what people miss.
func (c *Case) withoutGroup(api *APIService, q *Consequence) string {
	var hit []*Object
	sees := "kinds of " + api.Spec.Group + " can be neither read nor written"
	switch api.Spec.Group {
	case "metrics.k8s.io":
		hit = c.autoscalersBy(autoscalingv2.ResourceMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType)
		sees = "kubectl top fails, and nothing is scaled by CPU or memory"
	case "custom.metrics.k8s.io":
		hit = c.autoscalersBy(autoscalingv2.PodsMetricSourceType, autoscalingv2.ObjectMetricSourceType)
		sees = "nothing is scaled by metrics of pods and objects"
	case "external.metrics.k8s.io":
		hit = c.autoscalersBy(autoscalingv2.ExternalMetricSourceType)
		sees = "nothing is scaled by metrics from outside"
	default:
		return sees
	}
	c.Need(Autoscalers, "which of them read metrics that are served no more")
	q.Affected = names(hit)
	q.Rank += len(hit)
	return fmt.Sprintf("%s (%s)", sees, count(len(hit), "autoscaler"))
}

// autoscalersBy counts the autoscalers that stay and read a kind of metric.
func (c *Case) autoscalersBy(types ...autoscalingv2.MetricSourceType) []*Object {
	var out []*Object
	for o, a := range Contents[*autoscalingv2.HorizontalPodAutoscaler](c.State, Autoscalers) {
		if c.stays(o) && slices.ContainsFunc(a.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool { return slices.Contains(types, m.Type) }) {
			out = append(out, o)
		}
	}
	return out
}
