// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// judgeNodes says which pods end with their node, and what is left to run them.
func judgeNodes(c *Case) []Consequence {
	gone := c.Deleted(Nodes)
	if len(gone) == 0 {
		return nil
	}
	c.Need(Pods, "what runs on nodes that go")
	var out []Consequence
	left, leftPlane := c.readyNodes()
	for _, o := range gone {
		if node, ok := o.Content.(*corev1.Node); ok {
			out = append(out, c.nodeGone(o, node, left, leftPlane))
		}
	}
	return out
}

// readyNodes counts the ready nodes that stay, and those of the control plane.
func (c *Case) readyNodes() (all, plane int) {
	for o, node := range Contents[*corev1.Node](c.State, Nodes) {
		if !c.stays(o) || !isReady(node) {
			continue
		}
		all++
		if ofControlPlane(node) {
			plane++
		}
	}
	return all, plane
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func ofControlPlane(n *corev1.Node) bool {
	_, now := n.Labels["node-role.kubernetes.io/control-plane"]
	_, before := n.Labels["node-role.kubernetes.io/master"]
	return now || before
}

func (c *Case) nodeGone(o *Object, node *corev1.Node, left, leftPlane int) Consequence {
	q := Consequence{Severity: Breaks, ID: "node-gone", Objects: []*Object{o}}
	again := "A kubelet that runs does not register its node again before it is restarted."
	evicted := c.evicted(node.Name)
	q.Rank = len(evicted)
	ends := count(q.Rank, "pod") + verb(q.Rank, " ends", " end")
	switch {
	case !isReady(node):
		q.Severity, q.Rank = Note, 0
		q.Title = o.String() + " goes; it is not ready"
		return q
	case left == 0:
		q.Severity = Outage
		q.Title = fmt.Sprintf("no node is left that runs pods: %s on %s", ends, o)
	case leftPlane == 0 && ofControlPlane(node):
		q.Severity = Outage
		q.Title = "no ready node of the control plane is left: " + o.String() + " goes"
	case len(evicted) == 0:
		q.Severity = Note
		q.Title = o.String() + " goes; it runs nothing but pods that every node runs"
	default:
		q.Title = fmt.Sprintf("%s on %s, and only those with a controller start elsewhere", ends, o)
	}
	q.Detail = []string{again}
	return q
}

// evicted are the pods that run on a node and belong somewhere else without it:
// not those that every node runs.
func (c *Case) evicted(node string) []*Object {
	var out []*Object
	for _, p := range c.PodsOn(node) {
		if !runs(p.Pod) || isStatic(p.Pod) {
			continue
		}
		if by := c.controller(p.Object); by != nil && by.Resource.GroupResource() == DaemonSets {
			continue
		}
		out = append(out, p.Object)
	}
	return out
}
