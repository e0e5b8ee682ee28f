// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"maps"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The kinds of which judges need no more than that they are there.
var (
	quotas = core("resourcequotas")
	limits = core("limitranges")
)

// judgePolicies says what rules no longer hold: who may reach whom, how many
// pods there are, and how many may go.
func judgePolicies(c *Case) []Consequence {
	var out []Consequence
	for _, o := range c.Deleted(NetworkPolicies) {
		if policy, ok := o.Content.(*networkingv1.NetworkPolicy); ok {
			out = append(out, c.policyGone(o, policy)...)
		}
	}
	for _, o := range c.Deleted(Autoscalers) {
		if scaler, ok := o.Content.(*autoscalingv2.HorizontalPodAutoscaler); ok {
			out = append(out, c.autoscalerGone(o, scaler))
		}
	}
	for _, o := range c.Deleted(PodDisruptionBudgets) {
		out = append(out, note(o, "budget-gone", o.String()+" no longer holds back who drains a node"))
	}
	for _, o := range c.Deleted(quotas) {
		out = append(out, note(o, "quota-gone", fmt.Sprintf("Namespace %s may use more: %s goes", o.Namespace, o)))
	}
	for _, o := range c.Deleted(limits) {
		out = append(out, note(o, "limits-gone", fmt.Sprintf("new containers in Namespace %s get no defaults and bounds of %s", o.Namespace, o)))
	}
	return out
}

func note(o *Object, id, title string) Consequence {
	return Consequence{Severity: Note, ID: id, Objects: []*Object{o}, Title: title}
}

// networkPolicies are NetworkPolicies by namespace, with their selectors.
var networkPolicies = newIndex(func(s *State) map[string][]networkPolicy {
	out := map[string][]networkPolicy{}
	for o, policy := range Contents[*networkingv1.NetworkPolicy](s, NetworkPolicies) {
		if p, err := newNetworkPolicy(o, policy); err == nil {
			out[o.Namespace] = append(out[o.Namespace], p)
		}
	}
	return out
})

type networkPolicy struct {
	*Object
	selector labels.Selector
	types    []networkingv1.PolicyType
}

func newNetworkPolicy(o *Object, p *networkingv1.NetworkPolicy) (networkPolicy, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	types := p.Spec.PolicyTypes
	if len(types) == 0 { // as the API server fills it in
		types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			types = append(types, networkingv1.PolicyTypeEgress)
		}
	}
	return networkPolicy{o, selector, types}, err
}

// directions are what a policy closes, as people would see it open.
var directions = []struct {
	of            networkingv1.PolicyType
	opens, closes string
}{
	{networkingv1.PolicyTypeIngress, "anybody may connect to %s", "what %s let through to %s is refused: %s still %s it"},
	{networkingv1.PolicyTypeEgress, "%s may connect to anybody", "what %s let out of %s is refused: %s still %s it"},
}

// policyGone is of the pods that a NetworkPolicy selects: with the last policy
// of a direction they are open to all, and with any other they lose what that
// one allowed.
func (c *Case) policyGone(o *Object, policy *networkingv1.NetworkPolicy) []Consequence {
	c.Need(Pods, "which pods policies that go select")
	gone, err := newNetworkPolicy(o, policy)
	if err != nil {
		return []Consequence{note(o, "policy-gone", o.String()+" goes; its selector is not valid")}
	}
	var stay []networkPolicy
	for _, p := range networkPolicies.of(c.State)[o.Namespace] {
		if c.stays(p.Object) {
			stay = append(stay, p)
		}
	}
	var selected []*Object
	for _, p := range c.PodsIn(o.Namespace) {
		if runs(p.Pod) && c.stays(p.Object) && gone.selector.Matches(labels.Set(p.Pod.Labels)) {
			selected = append(selected, p.Object)
		}
	}
	if len(selected) == 0 {
		return []Consequence{note(o, "policy-gone", o.String()+" goes; it selects no running pod")}
	}
	var out []Consequence
	for _, d := range directions {
		if !slices.Contains(gone.types, d.of) {
			continue
		}
		var open, shut []*Object
		others := map[*Object]bool{}
		for _, pod := range selected {
			left := isolating(stay, d.of, pod)
			for _, p := range left {
				others[p] = true
			}
			if len(left) == 0 {
				open = append(open, pod)
			} else {
				shut = append(shut, pod)
			}
		}
		if len(open) > 0 {
			out = append(out, Consequence{
				Severity: Breaks, Rank: len(open), ID: "opens", Objects: []*Object{o}, Affected: names(open),
				Title: fmt.Sprintf("opens: "+d.opens, c.together(open)),
			})
		}
		if len(shut) > 0 && allows(policy, d.of) {
			by := slices.Collect(maps.Keys(others))
			out = append(out, Consequence{
				Severity: Breaks, Rank: len(shut), ID: "closes", Objects: []*Object{o}, Affected: names(shut),
				Title: fmt.Sprintf(d.closes, o, c.together(shut), some(by), verb(len(by), "isolates", "isolate")),
			})
		}
	}
	if len(out) == 0 {
		return []Consequence{note(o, "policy-gone", o.String()+" goes; other policies close what it does, and it allows nothing")}
	}
	return out
}

func isolating(policies []networkPolicy, of networkingv1.PolicyType, pod *Object) []*Object {
	var out []*Object
	for _, p := range policies {
		if slices.Contains(p.types, of) && p.selector.Matches(labels.Set(podLabels(pod))) {
			out = append(out, p.Object)
		}
	}
	return out
}

// allows says that a policy lets something through in a direction.
func allows(p *networkingv1.NetworkPolicy, of networkingv1.PolicyType) bool {
	if of == networkingv1.PolicyTypeIngress {
		return len(p.Spec.Ingress) > 0
	}
	return len(p.Spec.Egress) > 0
}

// together names pods by what people know them by.
func (c *Case) together(pods []*Object) string {
	of := map[*Object][]*Object{}
	for _, pod := range pods {
		of[c.top(pod)] = append(of[c.top(pod)], pod)
	}
	var out []user
	for top, pods := range of {
		out = append(out, user{Object: top, pods: pods})
	}
	return some(out)
}

func (c *Case) autoscalerGone(o *Object, a *autoscalingv2.HorizontalPodAutoscaler) Consequence {
	ref := a.Spec.ScaleTargetRef
	target := fmt.Sprintf("%s %s/%s", ref.Kind, o.Namespace, ref.Name)
	gr, known := scalable[ref.Kind]
	q := note(o, "autoscaler-gone", fmt.Sprintf("%s goes; %s, which it scales, is not there or stopped", o, target))
	if known {
		c.Need(gr, "what autoscalers that go scale")
		scaled, ok := c.Get(Key{gr, o.Namespace, ref.Name})
		if !ok || !c.stays(scaled) || !wants(scaled) {
			return q
		}
	}
	q.Severity, q.Rank, q.Affected = Breaks, 1, []string{target}
	q.Title = fmt.Sprintf("%s is scaled no more: it stays at the pods that it has, whatever its load", target)
	return q
}
