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
	var ready []*Object
	for _, o := range gone {
		node, ok := o.Content.(*corev1.Node)
		switch {
		case !ok:
		case !isReady(node):
			out = append(out, Consequence{Severity: Note, ID: "node-gone", Objects: []*Object{o}, Title: o.String() + " goes; it is not ready"})
		case left == 0:
			ready = append(ready, o)
		default:
			out = append(out, c.nodeGone(o, node, leftPlane))
		}
	}
	if len(ready) > 0 {
		out = append(out, c.lastNodes(ready))
	}
	return out
}

// again is what people wait for in vain.
const again = "A kubelet that runs does not register its node again before it is restarted."

// lastNodes is of all nodes that are ready.
func (c *Case) lastNodes(nodes []*Object) Consequence {
	q := Consequence{Severity: Outage, ID: "node-gone", Objects: nodes, Detail: []string{again}}
	for _, o := range nodes {
		q.Rank += len(c.evicted(o.Name))
	}
	q.Title = fmt.Sprintf("no node is left to run pods: %s %s", some(nodes), verb(len(nodes), "is the only ready one", "are the only ready ones"))
	if q.Rank > 0 {
		q.Title += ", and " + count(q.Rank, "pod") + verb(q.Rank, " ends", " end")
	}
	return q
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

func (c *Case) nodeGone(o *Object, node *corev1.Node, leftPlane int) Consequence {
	q := Consequence{Severity: Breaks, ID: "node-gone", Objects: []*Object{o}, Detail: []string{again}}
	evicted := c.evicted(node.Name)
	q.Rank = len(evicted)
	ends := count(q.Rank, "pod") + verb(q.Rank, " ends", " end")
	switch {
	case leftPlane == 0 && ofControlPlane(node):
		q.Severity = Outage
		q.Title = "no ready node of the control plane is left: " + o.String() + " goes"
	case len(evicted) == 0:
		q.Severity = Note
		q.Title = o.String() + " goes; it runs nothing but pods that every node runs"
	default:
		q.Title = fmt.Sprintf("%s on %s, and only those with a controller start elsewhere", ends, o)
	}
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
