// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// stays says that an object does not go.
func (c *Case) stays(o *Object) bool {
	_, gone := c.Gone(o)
	return !gone
}

// runs says that a pod has not ended and is not about to.
func runs(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// running are the pods among objects that run.
func running(objects []*Object) []*Object {
	var out []*Object
	for _, o := range objects {
		if p, ok := o.Content.(*corev1.Pod); ok && runs(p) {
			out = append(out, o)
		}
	}
	return out
}

// isStatic says that a pod only mirrors one that a kubelet has from a file.
func isStatic(p *corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// controller is the object that makes another one again; nil if nothing known does.
func (s *State) controller(o *Object) *Object {
	for _, owner := range o.Owners {
		if owner.Controller {
			if found, ok := s.ByUID(owner.UID); ok {
				return found
			}
		}
	}
	return nil
}

// deepest is how many controllers may stand above each other; references can
// make a ring.
const deepest = 8

// upwards are an object and the controllers above it.
func (s *State) upwards(o *Object) []*Object {
	chain := []*Object{o}
	for up := s.controller(o); up != nil && len(chain) < deepest; up = s.controller(up) {
		chain = append(chain, up)
	}
	return chain
}

// remaker is the controller that stays and makes an object that goes again. A
// CronJob makes the next Job, and not this one.
func (c *Case) remaker(o *Object) *Object {
	for _, up := range c.upwards(o)[1:] {
		if c.stays(up) && !up.Deleting && up.Resource.GroupResource() != CronJobs {
			return up
		}
	}
	return nil
}

// top is the object that people know something by: the Deployment of a pod. It
// is the highest of the controllers that go, or of those that stay.
func (c *Case) top(o *Object) *Object {
	chain := c.upwards(o)
	top := chain[0]
	for _, up := range chain[1:] {
		if c.stays(up) != c.stays(o) {
			break
		}
		top = up
	}
	return top
}

// wants says that an object makes pods as it stands, or at some time to come.
func wants(o *Object) bool {
	positive := func(replicas *int32) bool { return replicas == nil || *replicas > 0 }
	switch content := o.Content.(type) {
	case *appsv1.Deployment:
		return positive(content.Spec.Replicas)
	case *appsv1.ReplicaSet:
		return positive(content.Spec.Replicas)
	case *appsv1.StatefulSet:
		return positive(content.Spec.Replicas)
	case *appsv1.DaemonSet:
		return true
	case *batchv1.Job:
		return !ended(content) && (content.Spec.Suspend == nil || !*content.Spec.Suspend)
	case *batchv1.CronJob:
		return content.Spec.Suspend == nil || !*content.Spec.Suspend
	}
	return false
}

func ended(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// componentOf are the components that pods run as.
var componentOf = newIndex(func(s *State) map[*Object]*rbac.Component {
	out := map[*Object]*rbac.Component{}
	for _, k := range s.Components() {
		for _, pod := range k.Pods {
			out[pod.Object] = &k.Component
		}
	}
	return out
})

// component is the part of the cluster's network that pods run as; nil if they
// are none. Where pods cannot be known, what makes them tells.
func (c *Case) component(of *Object, pods []*Object) *rbac.Component {
	for _, pod := range pods {
		if k := componentOf.of(c.State)[pod]; k != nil {
			return k
		}
	}
	t := template(of)
	if c.Unknown(Pods) == "" || t == nil {
		return nil
	}
	known := rbac.Components()
	if i := slices.IndexFunc(known, func(k rbac.Component) bool { return k.Container != "" && k.Runs(t.Labels, &t.Spec) }); i >= 0 {
		return &known[i]
	}
	return nil
}

// podLabels are the labels of a pod, or of those that an object makes.
func podLabels(o *Object) map[string]string {
	if t := template(o); t != nil {
		return t.Labels
	}
	if pod, ok := o.Content.(*corev1.Pod); ok {
		return pod.Labels
	}
	return nil
}

// user is what stays and uses something that goes.
type user struct {
	*Object            // as people know it
	pods     []*Object // of it that run and use it
	how      string
	optional bool // it does without
}

func (u user) String() string {
	if u.Resource.GroupResource() == Pods || len(u.pods) == 0 {
		return u.Object.String()
	}
	return fmt.Sprintf("%s (%s running)", u.Object, count(len(u.pods), "pod"))
}

// users are those that stay, run or will run, and name an object: pods stand
// together under what makes them.
func (c *Case) users(of Key) []user {
	found := map[*Object]*user{}
	counted := map[*Object]bool{} // pods
	for _, r := range references.of(c.State)[of] {
		if !c.stays(r.from) || !c.alive(r.from) {
			continue
		}
		top := c.top(r.from)
		u := found[top]
		if u == nil {
			u = &user{Object: top, how: r.how, optional: true}
			found[top] = u
		}
		if u.optional && !r.optional {
			u.optional, u.how = false, r.how
		}
		if r.from.Resource.GroupResource() == Pods && !counted[r.from] {
			counted[r.from] = true
			u.pods = append(u.pods, r.from)
		}
	}
	out := make([]user, 0, len(found))
	for _, u := range found {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b user) int {
		return cmp.Or(cmp.Compare(len(b.pods), len(a.pods)), strings.Compare(a.Resource.Kind, b.Resource.Kind),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// alive says that an object runs, or makes what does; of other kinds, that it
// is there.
func (c *Case) alive(o *Object) bool {
	if p, ok := o.Content.(*corev1.Pod); ok {
		return runs(p)
	}
	if template(o) != nil {
		return wants(o)
	}
	return !o.Deleting
}

// needUsers notes that it matters who uses what goes: by all that is made of
// pods or makes them, and by other kinds.
func (c *Case) needUsers(what string, more ...schema.GroupResource) {
	for _, gr := range slices.Concat(makers, more) {
		c.Need(gr, what)
	}
}

// makers are the kinds that make pods, the highest first, and pods.
var makers = []schema.GroupResource{CronJobs, Jobs, Deployments, ReplicaSets, StatefulSets, DaemonSets, Pods}

func podsOf(users []user) int {
	n := 0
	for _, u := range users {
		n += len(u.pods)
	}
	return n
}

// names are how people name things, sorted.
func names[T fmt.Stringer](things []T) []string {
	out := make([]string, len(things))
	for i, t := range things {
		out[i] = t.String()
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// some are the first of a list, as a sentence has them.
func some[T fmt.Stringer](things []T) string {
	return sentence(names(things))
}

// sentence is a list as a sentence has it, short.
func sentence(list []string) string {
	const most = 2
	switch n := len(list); {
	case n == 0:
		return "nothing"
	case n == 1:
		return list[0]
	case n <= most+1:
		return strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	default:
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), n-most)
	}
}

// count is a number of things: "1 pod", "3 pods".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "ss") {
		what += "e"
	}
	if strings.HasSuffix(what, "y") {
		what = strings.TrimSuffix(what, "y") + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// verb is the form of a verb, or of a pronoun, for a number of things.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
