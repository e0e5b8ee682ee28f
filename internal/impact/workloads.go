// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// judgeWorkloads says which programs end, and which of them something starts
// again.
func judgeWorkloads(c *Case) []Consequence {
	e := c.ending()
	if e == nil {
		return nil
	}
	c.Need(Pods, "which pods run")
	var out []Consequence
	for _, top := range e.tops {
		out = append(out, c.stopped(top, e.pods[top]))
		out = append(out, c.withoutTarget(top)...)
	}
	for _, by := range e.remakers {
		out = append(out, c.replaced(by, e.again[by]))
	}
	return append(out, e.quiet()...)
}

// ending sorts pods and what makes them by what becomes of them.
type ending struct {
	tops     []*Object             // what goes for good, as people know it
	pods     map[*Object][]*Object // that run, and go for good with it
	remakers []*Object             // what stays and makes something again
	again    map[*Object][]*Object // that goes, and that it makes again
	static   []*Object             // mirrors of what kubelets run from files
	over     []*Object             // pods and Jobs that have ended
}

func (c *Case) ending() *ending {
	e := &ending{pods: map[*Object][]*Object{}, again: map[*Object][]*Object{}}
	found := false
	for _, gr := range makers {
		for _, o := range c.Deleted(gr) {
			found = true
			c.sort(e, o)
		}
	}
	if !found {
		return nil
	}
	return e
}

func (c *Case) sort(e *ending, o *Object) {
	pod, isPod := o.Content.(*corev1.Pod)
	switch {
	case isPod && isStatic(pod):
		e.static = append(e.static, o)
		return
	case isPod && !runs(pod), isOver(o):
		e.over = append(e.over, o)
		return
	}
	if by := c.remaker(o); by != nil {
		if _, known := e.again[by]; !known {
			e.remakers = append(e.remakers, by)
		}
		e.again[by] = append(e.again[by], o)
		return
	}
	top := c.top(o)
	if _, known := e.pods[top]; !known {
		e.tops = append(e.tops, top)
		e.pods[top] = nil
	}
	if isPod {
		e.pods[top] = append(e.pods[top], o)
	}
}

func isOver(o *Object) bool {
	job, ok := o.Content.(*batchv1.Job)
	return ok && ended(job)
}

// stopped is of something that goes for good, with its pods.
func (c *Case) stopped(top *Object, pods []*Object) Consequence {
	q := Consequence{Severity: Breaks, Rank: len(pods), ID: "stops", Objects: []*Object{top}}
	if left := c.left(top); left > 0 {
		q.Severity, q.Rank = Note, left
		q.Title = fmt.Sprintf("%s of %s %s on, but nothing looks after %s any more", count(left, "pod"), top, verb(left, "runs", "run"), verb(left, "it", "them"))
		q.Detail = []string{"What stays is neither updated nor scaled, and pods without a controller of their own are not replaced when they end."}
		return q
	}
	if len(pods) == 0 && (c.Unknown(Pods) == "" || !wants(top)) {
		return c.idle(q, top)
	}
	q.Title = fmt.Sprintf("%s stops: %s, and nothing starts %s again", top, itsPods(len(pods)), verb(len(pods), "it", "them"))
	switch {
	case top.Resource.GroupResource() == Pods:
		q.Title = top.String() + " ends, and nothing starts it again"
	case top.Resource.GroupResource() == Jobs:
		q.Title = top.String() + " is cut off: " + itsPods(len(pods))
	case len(pods) == 0:
		q.Title = top.String() + " stops, with its pods"
	}
	if k := c.component(top, pods); k != nil {
		q.Severity = severityOf(k)
		q.Title = fmt.Sprintf("%s: %s (%s) stops", k.Sees, k.Title, runningAs(top, len(pods)))
	}
	return q
}

// severityOf is how bad it is if a component stops.
func severityOf(k *rbac.Component) Severity {
	if k.Outage {
		return Outage
	}
	return Breaks
}

func runningAs(top *Object, pods int) string {
	if top.Resource.GroupResource() == Pods {
		return top.String()
	}
	return fmt.Sprintf("%s, %s running", top, count(pods, "pod"))
}

// itsPods are pods that end with what they belong to.
func itsPods(n int) string {
	if n == 1 {
		return "its running pod ends"
	}
	return fmt.Sprintf("its %d running pods end", n)
}

// left counts the running pods that a maker leaves behind, as --cascade=orphan
// has it.
func (c *Case) left(top *Object) int {
	if c.Cascade != Orphan {
		return 0
	}
	n, level := 0, []*Object{top}
	for depth := 0; depth < deepest && len(level) > 0; depth++ {
		var next []*Object
		for _, o := range level {
			for _, dependent := range c.Dependents(o) {
				if c.stays(dependent) {
					next = append(next, dependent)
				}
			}
		}
		n += len(running(next))
		level = next
	}
	return n
}

// idle is of what has no running pod.
func (c *Case) idle(q Consequence, top *Object) Consequence {
	q.Severity, q.Rank = Note, 0
	q.Title = top.String() + " goes; no pod of it runs"
	if cron, ok := top.Content.(*batchv1.CronJob); ok {
		q.Title = top.String() + " goes; it is suspended"
		if wants(top) {
			q.Severity, q.Rank = Breaks, 1
			q.Title = fmt.Sprintf("%s starts no more Jobs (%s)", top, cron.Spec.Schedule)
		}
	}
	return q
}

// replaced is of what a controller makes again.
func (c *Case) replaced(by *Object, objects []*Object) Consequence {
	q := Consequence{Severity: Note, Rank: len(objects), ID: "replaced", Objects: objects}
	pods := running(objects)
	if len(pods) == 0 {
		q.Title = fmt.Sprintf("%s makes again what it needs of %s", by, some(objects))
		if objects[0].Resource.GroupResource() == ReplicaSets && !slices.ContainsFunc(objects, wants) {
			q.Title = fmt.Sprintf("%s cannot be rolled back to %s", by, some(objects))
		}
		return q
	}
	q.Title = fmt.Sprintf("%s of %s %s replaced: %s makes %s again", count(len(pods), "pod"), c.top(by), verb(len(pods), "is", "are"), by, verb(len(pods), "it", "them"))
	if !slices.ContainsFunc(pods, func(pod *Object) bool { return !c.leavesNode(pod) }) {
		q.Title = fmt.Sprintf("%s of %s %s with the node: a DaemonSet makes pods for nodes that stay", count(len(pods), "pod"), by, verb(len(pods), "ends", "end"))
	}
	return q
}

// leavesNode says that a pod goes with its node, and that what made it makes it
// for no other.
func (c *Case) leavesNode(o *Object) bool {
	pod, ok := o.Content.(*corev1.Pod)
	by := c.controller(o)
	return ok && by != nil && by.Resource.GroupResource() == DaemonSets && c.GoneKey(c.State, Key{Nodes, "", pod.Spec.NodeName})
}

// quiet is of what has ended, or goes on in spite of the delete.
func (e *ending) quiet() []Consequence {
	var out []Consequence
	if n := len(e.static); n > 0 {
		out = append(out, Consequence{
			Severity: Note, Rank: n, ID: "static", Objects: e.static,
			Title: some(e.static) + verb(n, " mirrors", " mirror") + " what a kubelet runs from a file: it runs on, and is shown again",
		})
	}
	if n := len(e.over); n > 0 {
		out = append(out, Consequence{
			Severity: Note, Rank: n, ID: "over", Objects: e.over,
			Title: some(e.over) + " had ended; the logs go too",
		})
	}
	return out
}

// budgets are PodDisruptionBudgets by namespace.
var budgets = newIndex(func(s *State) map[string][]budget {
	out := map[string][]budget{}
	for o, b := range Contents[*policyv1.PodDisruptionBudget](s, PodDisruptionBudgets) {
		if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
			out[o.Namespace] = append(out[o.Namespace], budget{o, selector})
		}
	}
	return out
})

type budget struct {
	*Object
	selector labels.Selector
}

// withoutTarget is of autoscalers and budgets that stay without what they are for.
func (c *Case) withoutTarget(top *Object) []Consequence {
	var idle []*Object
	for _, r := range references.of(c.State)[top.Key()] {
		if r.how == scales && c.stays(r.from) {
			idle = append(idle, r.from)
		}
	}
	if made := podLabels(top); len(made) > 0 {
		for _, b := range budgets.of(c.State)[top.Namespace] {
			if c.stays(b.Object) && b.selector.Matches(labels.Set(made)) {
				idle = append(idle, b.Object)
			}
		}
	}
	if len(idle) == 0 {
		return nil
	}
	return []Consequence{{
		Severity: Note, Rank: len(idle), ID: "target-gone", Objects: []*Object{top}, Affected: names(idle),
		Title: fmt.Sprintf("%s %s left without %s", some(idle), verb(len(idle), "is", "are"), top),
	}}
}
