// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// judgeRights says who may no longer do what: components of the cluster first,
// then the pods, users and groups that lose something. What another binding still
// grants is not lost.
func judgeRights(c *Case) []Consequence {
	d := departureOf(c)
	if d == nil {
		return nil
	}
	touched := d.touched()
	if len(d.gone) > 0 {
		for _, gr := range accessKinds {
			c.Need(gr, "who is bound to what, and what else still grants it")
		}
	}
	if len(touched) > 0 {
		c.Need(Pods, "which pods lose rights")
	}
	j := &rights{departure: d, known: rbac.Components(), hits: map[int]*hit{}, told: map[*Object]bool{}}
	for _, s := range touched {
		j.subject(s)
	}
	return slices.Concat(j.components(), j.controllers(), j.others, j.notes())
}

// rights collects what subjects lose.
type rights struct {
	*departure
	known   []rbac.Component
	hits    map[int]*hit // by component, as an index of known
	manager []subject    // accounts of controllers in kube-controller-manager
	others  []Consequence
	idle    []subject        // lose something, and nobody is known to be them
	told    map[*Object]bool // stand in a consequence
}

// subject is somebody who loses something.
type subject struct {
	rbacv1.Subject
	losses []rbac.Loss
	pods   []PodOf
}

func (s *subject) account() account { return account{s.Namespace, s.Name} }

// hit is a component that loses what it cannot do without.
type hit struct {
	as    []subject
	needs []rbac.Request // lost
}

// subject judges what one loses.
func (j *rights) subject(of rbacv1.Subject) {
	switch s := (subject{Subject: of, losses: j.lost(userOf(of))}); {
	case of.Kind == rbacv1.ServiceAccountKind:
		s.pods = j.here(s.account())
		j.serviceAccount(s)
	case of.Kind == rbacv1.GroupKind:
		j.group(s)
	default:
		j.user(s)
	}
}

func (j *rights) serviceAccount(s subject) {
	if len(s.losses) == 0 || j.takesDown(s) {
		return
	}
	switch {
	case len(s.pods) > 0:
		j.others = append(j.others, j.workload(s, "", j.workloads(s.pods)))
	case j.goesAlong(s.account()):
		j.tell(s.losses)
	case isController(s):
		j.manager = append(j.manager, s)
	default:
		j.absent(s)
	}
}

// goesAlong says that an account goes with its namespace, and so with whoever
// could come as it.
func (j *rights) goesAlong(a account) bool {
	o := j.accounts[a]
	if o == nil {
		return false
	}
	cause, _ := j.Gone(o)
	return cause.By != nil
}

// takesDown notes the components that run as an account and lose what they need.
func (j *rights) takesDown(s subject) bool {
	down := false
	runsAs := residentsNow.of(j.State).components[s.account()]
	if len(s.pods) == 0 {
		if runsAs = nil; j.Unknown(Pods) != "" {
			runsAs = named(j.known, s.Name)
		}
	}
	for _, i := range runsAs {
		k := &j.known[i]
		as := s
		as.pods = slices.DeleteFunc(slices.Clone(s.pods), func(p PodOf) bool { return !k.Runs(p.Pod.Labels, &p.Pod.Spec) })
		if len(s.pods) == 0 || len(as.pods) > 0 {
			down = j.hit(i, k, as) || down
		}
	}
	return down
}

// named are the components whose installers give them an account of that name.
func named(known []rbac.Component, name string) (out []int) {
	for i, k := range known {
		if k.Account == name {
			out = append(out, i)
		}
	}
	return out
}

// hit notes a component if it loses what it needs.
func (j *rights) hit(i int, k *rbac.Component, as subject) bool {
	var lost []rbac.Request
	for _, r := range k.Requests() {
		if slices.ContainsFunc(as.losses, func(l rbac.Loss) bool { return l.Covers(r) }) {
			lost = append(lost, r)
		}
	}
	if len(lost) == 0 {
		return false
	}
	h := j.hits[i]
	if h == nil {
		h = &hit{}
		j.hits[i] = h
	}
	// Whoever loses something by several groups, and by himself, is hit once.
	if slices.ContainsFunc(h.as, func(s subject) bool { return s.Kind == as.Kind && s.account() == as.account() }) {
		return true
	}
	h.as = append(h.as, as)
	for _, r := range lost {
		if !slices.Contains(h.needs, r) {
			h.needs = append(h.needs, r)
		}
	}
	return true
}

// group judges a group, and those of its members that are known.
func (j *rights) group(s subject) {
	if len(s.losses) == 0 {
		return
	}
	var poorer []PodOf
	for _, a := range j.members(s.Name) {
		member := subject{Subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: a.namespace, Name: a.name}, losses: j.lost(a.user()), pods: j.here(a)}
		if len(member.losses) > 0 && !j.takesDown(member) {
			poorer = append(poorer, member.pods...)
		}
	}
	for i, k := range j.known {
		if k.User != "" && slices.Contains(k.Groups, s.Name) {
			as := rbacv1.Subject{Kind: rbacv1.UserKind, Name: k.User}
			j.hit(i, &k, subject{Subject: as, losses: j.lost(k.AsUser())})
		}
	}
	q := j.person(s, "group "+s.Name)
	q.Rank = max(q.Rank, len(poorer)) + 1
	if len(poorer) > 0 {
		q.Affected = append(q.Affected, j.workloads(poorer)...)
		slices.Sort(q.Affected)
		q.Detail = append(q.Detail, fmt.Sprintf("%s that %s lose%s what nothing else grants to %s.",
			count(len(poorer), "pod"), verb(len(poorer), "runs", "run"), verb(len(poorer), "s", ""), verb(len(poorer), "it", "them")))
	}
	j.others = append(j.others, q)
}

func (j *rights) user(s subject) {
	if len(s.losses) == 0 {
		return
	}
	for i, k := range j.known {
		if k.User != s.Name {
			continue
		}
		as := s
		as.losses = j.lost(k.AsUser())
		if j.hit(i, &k, as) {
			return
		}
	}
	j.others = append(j.others, j.person(s, "user "+s.Name))
}

// person is the consequence for a user, or for whoever is of a group.
func (j *rights) person(s subject, who string) Consequence {
	q := j.consequence(s.losses, nil, Breaks, fmt.Sprintf("%s may no longer %s", who, rbac.LossSummary(s.losses)))
	q.Rank = 1
	q.Affected = []string{s.Kind + " " + s.Name}
	q.Detail = append(q.Detail, "Whether anybody uses that cannot be seen here.")
	cluster := slices.ContainsFunc(s.losses, func(l rbac.Loss) bool { return l.Namespace == "" })
	if isKubelet(s.Subject) && cluster {
		q.Severity, q.Rank = Outage, residentsNow.of(j.State).running
		q.Title = fmt.Sprintf("kubelets (%s) may no longer %s", who, rbac.LossSummary(s.losses))
		q.Detail = append(q.Detail, "An API server with the node authorizer goes on to allow them what it knows of.")
	}
	return q
}

func isKubelet(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.GroupKind && s.Name == "system:nodes" || s.Kind == rbacv1.UserKind && strings.HasPrefix(s.Name, "system:node:")
}

// isController says that an account is one by which kube-controller-manager runs
// one of its controllers: such an account has no pods.
func isController(s subject) bool {
	const prefix = "system:controller:"
	return s.Namespace == "kube-system" && slices.ContainsFunc(s.losses, func(l rbac.Loss) bool {
		return slices.ContainsFunc(l.By, func(g rbac.Grant) bool {
			return strings.HasPrefix(g.Binding.Name, prefix) || strings.HasPrefix(g.Role.Name, prefix)
		})
	})
}

// absent judges an account under which no pod runs.
func (j *rights) absent(s subject) {
	switch made := j.makers(s.account()); {
	case len(made) > 0:
		j.others = append(j.others, j.workload(s, " from the next run on", made))
	case j.Unknown(Pods) != "":
		q := j.workload(s, "", []string{"ServiceAccount " + s.account().String()})
		q.Detail = append(q.Detail, "Whether pods run as it is not known: "+j.Unknown(Pods)+".")
		j.others = append(j.others, q)
	default:
		j.idle = append(j.idle, s)
	}
}

// makers are the objects that stay and make pods with an account later on, or
// would now if they could.
func (j *rights) makers(a account) []string {
	var out []*Object
	for _, o := range makersNow.of(j.State)[a] {
		if j.stays(o) && j.stays(j.top(o)) {
			out = append(out, j.top(o))
		}
	}
	return names(out)
}

// makersNow are the objects that make pods, by the pods' account.
var makersNow = newIndex(func(s *State) map[account][]*Object {
	out := map[account][]*Object{}
	for _, gr := range makers {
		for _, o := range s.Of(gr) {
			if t := template(o); t != nil && wants(o) && rbac.UsesAccount(&t.Spec) {
				a := account{o.Namespace, cmp.Or(t.Spec.ServiceAccountName, "default")}
				out[a] = append(out[a], o)
			}
		}
	}
	return out
})

// workloads are pods as people know them: Deployment shop/till (3 pods).
func (j *rights) workloads(pods []PodOf) []string {
	n := map[*Object]int{}
	for _, p := range pods {
		n[j.top(p.Object)]++
	}
	var out []string
	for o, n := range n {
		if o.Resource.GroupResource() == Pods {
			out = append(out, o.String())
			continue
		}
		out = append(out, fmt.Sprintf("%s (%s)", o, count(n, "pod")))
	}
	slices.Sort(out)
	return out
}

// workload is the consequence for what runs as an account.
func (j *rights) workload(s subject, when string, who []string) Consequence {
	a := s.account()
	title := fmt.Sprintf("%s may no longer %s%s", sentence(who), rbac.LossSummary(s.losses), when)
	if j.accounts[a] != nil {
		title = fmt.Sprintf("%s is nobody to the API server any more: %s loses its account", sentence(who), verb(len(s.pods), "the pod", "each pod"))
	}
	q := j.consequence(s.losses, []account{a}, Breaks, title)
	q.Rank = max(len(s.pods), 1)
	q.Affected = slices.Concat([]string{"ServiceAccount " + a.String()}, who)
	slices.Sort(q.Affected)
	q.Affected = slices.Compact(q.Affected)
	return q
}

// components are the consequences for those that lose what they need.
func (j *rights) components() []Consequence {
	var out []Consequence
	for _, i := range slices.Sorted(maps.Keys(j.hits)) {
		k, h := &j.known[i], j.hits[i]
		var losses []rbac.Loss
		var pods []PodOf
		var accounts []account
		var who, affected []string
		for _, s := range h.as {
			losses, pods = append(losses, s.losses...), append(pods, s.pods...)
			accounts = append(accounts, s.account())
			who, affected = append(who, j.name(s)), append(affected, s.Kind+" "+strings.TrimPrefix(s.account().String(), "/"))
		}
		q := j.consequence(losses, accounts, severityOf(k), fmt.Sprintf("%s: %s (%s) may no longer %s", k.Sees, k.Title, strings.Join(who, "; "), rbac.Summary(h.needs)))
		j.foremost(&q, h.needs, losses)
		q.Rank = len(pods)
		q.Affected = slices.Compact(slices.Sorted(slices.Values(slices.Concat(affected, j.workloads(pods)))))
		q.Detail = append(q.Detail, "What runs goes on with what it knows; what changes from then on it does not hear of.")
		if k.Outage {
			// Those that people miss first of all stand first in the list.
			q.Rank = residentsNow.of(j.State).running + len(j.known) - i
		}
		j.unused(k, h, &q)
		out = append(out, q)
	}
	return out
}

// foremost puts the objects first by which a component loses what it needs, before
// those by which it loses what it could do without.
func (j *rights) foremost(q *Consequence, needs []rbac.Request, losses []rbac.Loss) {
	essential := j.causes(slices.DeleteFunc(slices.Clone(losses), func(l rbac.Loss) bool { return !slices.ContainsFunc(needs, l.Covers) }))
	after := func(o *Object) int {
		if slices.Contains(essential, o) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(q.Objects, func(a, b *Object) int { return cmp.Compare(after(a), after(b)) })
}

// unused makes it milder that a component loses its rights as a user if its pods
// are known, and are somebody else.
func (j *rights) unused(k *rbac.Component, h *hit, q *Consequence) {
	onlyUser := !slices.ContainsFunc(h.as, func(s subject) bool { return s.Kind != rbacv1.UserKind })
	i := slices.IndexFunc(j.Components(), func(r Running) bool { return r.ID == k.ID })
	if !onlyUser || i < 0 || slices.ContainsFunc(j.Components()[i].Pods, func(p PodOf) bool { return !rbac.UsesAccount(&p.Pod.Spec) }) {
		return
	}
	q.Severity, q.Rank = Breaks, 1
	q.Title = fmt.Sprintf("user %s may no longer %s", k.User, rbac.Summary(h.needs))
	q.Detail = []string{fmt.Sprintf("The pods of %s here come as their service account; whether it also runs outside of pods cannot be seen here.", k.Title)}
}

// name is a subject of a component's in brackets.
func (j *rights) name(s subject) string {
	switch {
	case s.Kind == rbacv1.UserKind:
		return "user " + s.Name
	case len(s.pods) == 0:
		return s.account().String()
	}
	return fmt.Sprintf("%s, %s running", s.account(), count(len(s.pods), "pod"))
}
