// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// hook is one webhook of a configuration.
type hook struct {
	config   *Object
	mutates  bool
	fails    bool // the write, if nobody answers
	rules    []admissionv1.RuleWithOperations
	client   admissionv1.WebhookClientConfig
	selector *metav1.LabelSelector // of namespaces
}

// hooksOf are the webhooks of a configuration.
func hooksOf(o *Object) []hook {
	var out []hook
	add := func(mutates bool, policy *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations, client admissionv1.WebhookClientConfig, of *metav1.LabelSelector) {
		fails := policy == nil || *policy == admissionv1.Fail
		out = append(out, hook{o, mutates, fails, rules, client, of})
	}
	switch content := o.Content.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for _, w := range content.Webhooks {
			add(false, w.FailurePolicy, w.Rules, w.ClientConfig, w.NamespaceSelector)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for _, w := range content.Webhooks {
			add(true, w.FailurePolicy, w.Rules, w.ClientConfig, w.NamespaceSelector)
		}
	}
	return out
}

func (h hook) service() (Key, bool) {
	ref := h.client.Service
	if ref == nil {
		return Key{}, false
	}
	return Key{Services, ref.Namespace, ref.Name}, true
}

// hooks are all webhooks by the Service that answers for them.
var hooks = newIndex(func(s *State) map[Key][]hook {
	out := map[Key][]hook{}
	for _, gr := range []schema.GroupResource{ValidatingWebhooks, MutatingWebhooks} {
		for _, o := range s.Of(gr) {
			for _, h := range hooksOf(o) {
				if key, ok := h.service(); ok {
					out[key] = append(out[key], h)
				}
			}
		}
	}
	return out
})

// judgeAdmission says which writes are no longer checked or completed, and which
// ones fail because nobody is left to do it.
func judgeAdmission(c *Case) []Consequence {
	var out []Consequence
	for _, gr := range []schema.GroupResource{ValidatingWebhooks, MutatingWebhooks} {
		for _, o := range c.Deleted(gr) {
			out = append(out, c.hooksGone(o, gr == MutatingWebhooks))
		}
	}
	out = append(out, c.admissionPolicies()...)
	if !c.touchesServing() {
		return out
	}
	for _, gr := range []schema.GroupResource{ValidatingWebhooks, MutatingWebhooks} {
		c.Need(gr, "which of them are answered by what goes")
	}
	for service, behind := range hooks.of(c.State) {
		if f := c.fate(service); f.ends() {
			out = append(out, c.unanswered(f, behind)...)
		}
	}
	return out
}

// hooksGone is of a configuration that goes.
func (c *Case) hooksGone(o *Object, mutates bool) Consequence {
	q := Consequence{Severity: Breaks, Rank: 1, ID: "webhook-gone", Objects: []*Object{o}}
	var live, dead []admissionv1.RuleWithOperations
	for _, h := range hooksOf(o) {
		if c.answered(h) {
			live = append(live, h.rules...)
		} else {
			dead = append(dead, h.rules...)
		}
	}
	switch {
	case len(live) == 0 && len(dead) == 0:
		q.Severity, q.Rank, q.Title = Note, 0, o.String()+" goes; it has no rule"
	case len(live) == 0:
		q.Severity, q.Rank, q.Title = Note, 0, fmt.Sprintf("nobody answers for %s as it is: its checks of %s do not work", o, writes(dead))
	case mutates:
		q.Title = fmt.Sprintf("%s are stored as they come: %s no longer completes them", writes(live), o)
		q.Detail = []string{"What it puts into objects, such as sidecars and defaults, is missing in those written from now on."}
	default:
		q.Title = fmt.Sprintf("opens: %s are no longer checked by %s", writes(live), o)
	}
	return q
}

// answered says that somebody answers a webhook; of one outside of the cluster
// that cannot be seen.
func (c *Case) answered(h hook) bool {
	service, ok := h.service()
	if !ok {
		return true
	}
	c.Need(EndpointSlices, "which webhooks are answered")
	return len(servings.of(c.State)[service]) > 0 || c.Unknown(EndpointSlices) != ""
}

// unanswered is of webhooks that stay when those who answer go.
func (c *Case) unanswered(f *fate, behind []hook) []Consequence {
	type group struct {
		config *Object
		fails  bool
	}
	rules := map[group][]admissionv1.RuleWithOperations{}
	mutates := map[group]bool{}
	for _, h := range behind {
		if c.stays(h.config) && c.concerns(h) {
			g := group{h.config, h.fails}
			rules[g] = append(rules[g], h.rules...)
			mutates[g] = h.mutates
		}
	}
	until := "until somebody puts it back"
	if !f.forGood() {
		until = "until new pods are ready"
	}
	var out []Consequence
	for g, list := range rules {
		q := Consequence{Severity: Breaks, Rank: 1, ID: "webhook-ignored", Objects: f.causes(), Affected: []string{g.config.String()}}
		what := writes(list)
		switch {
		case g.fails:
			q.ID, q.Rank = "writes-fail", breadth(list)
			if f.forGood() {
				q.Severity = Outage
			}
			q.Title = fmt.Sprintf("%s are refused %s: nobody answers for %s, whose failurePolicy is Fail", what, until, g.config)
		case mutates[g]:
			q.Title = fmt.Sprintf("%s are silently stored as they come %s: nobody answers for %s", what, until, g.config)
		default:
			q.Title = fmt.Sprintf("opens: %s are silently not checked %s: nobody answers for %s", what, until, g.config)
		}
		q.Detail = []string{fmt.Sprintf("It is answered by Service %s/%s.", f.key.Namespace, f.key.Name)}
		out = append(out, q)
	}
	return out
}

// concerns says that a webhook sees writes in some namespace that stays.
func (c *Case) concerns(h hook) bool {
	if h.selector == nil || len(h.selector.MatchLabels)+len(h.selector.MatchExpressions) == 0 {
		return true
	}
	if c.Unknown(Namespaces) != "" || slices.ContainsFunc(h.rules, unbound) {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(h.selector)
	if err != nil {
		return true
	}
	for o, namespace := range Contents[*corev1.Namespace](c.State, Namespaces) {
		of := map[string]string{corev1.LabelMetadataName: o.Name}
		for key, value := range namespace.Labels {
			of[key] = value
		}
		if c.stays(o) && selector.Matches(labels.Set(of)) {
			return true
		}
	}
	return false
}

// unbound says that a rule may be about objects that are in no namespace, which
// no selector of namespaces holds back.
func unbound(r admissionv1.RuleWithOperations) bool {
	return r.Scope == nil || *r.Scope != admissionv1.NamespacedScope
}

// breadth ranks webhooks by how much they see.
func breadth(rules []admissionv1.RuleWithOperations) int {
	n := 0
	for _, r := range rules {
		n += len(r.Resources)
		if slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*") {
			n += 100
		}
		if slices.Contains(r.APIGroups, "") || slices.Contains(r.APIGroups, "*") {
			n += 10
		}
	}
	return max(1, n)
}

// writes says of rules which writes they are about: "creates and updates of pods".
func writes(rules []admissionv1.RuleWithOperations) string {
	var operations, resources []string
	for _, r := range rules {
		for _, operation := range r.Operations {
			operations = append(operations, operationNames[operation])
		}
		resources = append(resources, hookedBy(r.Rule)...)
	}
	slices.Sort(operations)
	operations = slices.Compact(operations)
	if slices.Contains(operations, operationNames[admissionv1.OperationAll]) {
		operations = []string{operationNames[admissionv1.OperationAll]}
	}
	slices.Sort(resources)
	return strings.Join(operations, " and ") + " of " + sentence(slices.Compact(resources))
}

var operationNames = map[admissionv1.OperationType]string{
	admissionv1.Create: "creates", admissionv1.Update: "updates", admissionv1.Delete: "deletes",
	admissionv1.Connect: "connections", admissionv1.OperationAll: "writes",
}

func hookedBy(r admissionv1.Rule) []string {
	var out []string
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			switch {
			case strings.HasPrefix(resource, "*") && group == "*":
				out = append(out, "everything")
			case strings.HasPrefix(resource, "*") && group == "":
				out = append(out, "everything of the core group")
			case strings.HasPrefix(resource, "*"):
				out = append(out, "everything of "+group)
			case group == "*":
				out = append(out, resource)
			default:
				out = append(out, rbac.GroupResource(group, resource))
			}
		}
	}
	return out
}

// bindings are ValidatingAdmissionPolicyBindings by the policy that they name.
var bindings = newIndex(func(s *State) map[string][]*Object {
	out := map[string][]*Object{}
	for o, b := range Contents[*admissionv1.ValidatingAdmissionPolicyBinding](s, AdmissionBindings) {
		out[b.Spec.PolicyName] = append(out[b.Spec.PolicyName], o)
	}
	return out
})

// admissionPolicies is of ValidatingAdmissionPolicies that go or lose a binding.
func (c *Case) admissionPolicies() []Consequence {
	var out []Consequence
	for _, o := range c.Deleted(AdmissionPolicies) {
		c.Need(AdmissionBindings, "which policies are in force")
		out = append(out, c.unbindings(o.Name, o, bindings.of(c.State)[o.Name]))
	}
	for _, o := range c.Deleted(AdmissionBindings) {
		b, ok := o.Content.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if !ok || c.GoneKey(c.State, Key{AdmissionPolicies, "", b.Spec.PolicyName}) {
			continue
		}
		c.Need(AdmissionPolicies, "which policies are in force")
		out = append(out, c.unbindings(b.Spec.PolicyName, o, []*Object{o}))
	}
	return out
}

// unbindings is of a policy that some bindings put in force no more, because of
// the policy or a binding.
func (c *Case) unbindings(name string, gone *Object, ends []*Object) Consequence {
	q := Consequence{Severity: Note, ID: "policy-unbound", Objects: []*Object{gone}}
	p, ok := c.Get(Key{AdmissionPolicies, "", name})
	policy, read := (*admissionv1.ValidatingAdmissionPolicy)(nil), false
	if ok {
		policy, read = p.Content.(*admissionv1.ValidatingAdmissionPolicy)
	}
	switch {
	case !read && c.Unknown(AdmissionPolicies) == "":
		q.Title = fmt.Sprintf("%s goes; there is no ValidatingAdmissionPolicy %s", gone, name)
		return q
	case !slices.ContainsFunc(ends, denies):
		q.Title = gone.String() + " goes; no write is refused by it"
		return q
	}
	q.Severity, q.Rank = Breaks, 1
	q.Affected = names(slices.DeleteFunc(slices.Clone(ends), func(o *Object) bool { return !c.stays(o) || !denies(o) }))
	what := "writes"
	if read && policy.Spec.MatchConstraints != nil {
		var rules []admissionv1.RuleWithOperations
		for _, r := range policy.Spec.MatchConstraints.ResourceRules {
			rules = append(rules, r.RuleWithOperations)
		}
		what = writes(rules)
	}
	q.Title = fmt.Sprintf("opens: %s are no longer checked by ValidatingAdmissionPolicy %s", what, name)
	var rest []*Object
	for _, o := range bindings.of(c.State)[name] {
		if c.stays(o) && p != gone && denies(o) {
			rest = append(rest, o)
		}
	}
	if len(rest) > 0 {
		q.Title += fmt.Sprintf(" where %s says so", gone)
		q.Detail = []string{"It stays in force by " + some(rest) + "."}
	}
	return q
}

// denies says that a binding refuses writes, and does not only note them.
func denies(o *Object) bool {
	b, ok := o.Content.(*admissionv1.ValidatingAdmissionPolicyBinding)
	return ok && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
}
