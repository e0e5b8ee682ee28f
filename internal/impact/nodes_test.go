// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

func TestNodes(t *testing.T) {
	judged(t, []string{"node-gone"}, []row{
		{
			name: "a worker", delete: "node/worker-2",
			want: []string{
				"Breaks node-gone: 4 pods end on Node worker-2, and only those with a controller start elsewhere",
			},
			detail: []string{"A kubelet that runs does not register its node again before it is restarted."},
		},
		{
			name: "a worker with its own pods only", delete: "node/drained",
			want: []string{
				"Note node-gone: Node drained goes; it runs nothing but pods that every node runs",
			},
		},
		{
			name: "a node that is not ready", delete: "node/broken",
			want: []string{
				"Note node-gone: Node broken goes; it is not ready",
			},
		},
		{
			name: "the only node of the control plane", delete: "node/plane",
			want: []string{
				"Outage node-gone: no ready node of the control plane is left: Node plane goes",
			},
		},
		{
			name: "two workers", delete: "node/worker-1 node/worker-2",
			want: []string{
				"Breaks node-gone: 5 pods end on Node worker-1, and only those with a controller start elsewhere",
				"Breaks node-gone: 4 pods end on Node worker-2, and only those with a controller start elsewhere",
			},
		},
		{
			name: "all ready nodes", delete: "node/plane node/worker-1 node/worker-2 node/drained",
			want: []string{
				"Outage node-gone: no node is left to run pods: Node drained, Node plane and 2 more are the only ready ones, and 9 pods end",
			},
		},
		{
			name: "all nodes", delete: "node/plane node/worker-1 node/worker-2 node/drained node/broken",
			want: []string{
				"Outage node-gone: no node is left to run pods: Node drained, Node plane and 2 more are the only ready ones, and 9 pods end",
				"Note node-gone: Node broken goes; it is not ready",
			},
		},
	})
}

// TestDaemonsLeaveWithTheirNode: a DaemonSet makes a pod again on the same node,
// and so not where that goes.
func TestDaemonsLeaveWithTheirNode(t *testing.T) {
	s := impacttest.State(t, `
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: ops}}
---
{apiVersion: v1, kind: Pod, metadata: {name: agent-1, namespace: ops, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, controller: true}]}, spec: {nodeName: n1}, status: {phase: Running}}
---
{apiVersion: v1, kind: Service, metadata: {name: agent, namespace: ops}, spec: {selector: {app: agent}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: agent-x, namespace: ops, labels: {kubernetes.io/service-name: agent, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
endpoints: [{addresses: [10.1.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: agent-1}}]
`)
	for _, c := range []struct {
		delete string
		want   []string
	}{
		{"Node/n1", []string{
			"Service ops/agent answers nobody: it loses its only ready endpoint",
			"Node n1 goes; it runs nothing but pods that every node runs",
			"1 pod of DaemonSet ops/agent ends with the node: a DaemonSet makes pods for nodes that stay",
		}},
		{"Pod/ops/agent-1", []string{
			"Service ops/agent answers nobody until new ones are ready: it loses its only ready endpoint",
			"1 pod of DaemonSet ops/agent is replaced: DaemonSet ops/agent makes it again",
		}},
	} {
		var have []string
		for _, q := range impact.Examine(s, impacttest.Delete(t, s, impact.Background, c.delete)).Consequences {
			have = append(have, q.Title)
		}
		slices.Sort(have)
		slices.Sort(c.want)
		if !slices.Equal(have, c.want) {
			t.Errorf("deleting %s, people would see %q, want %q", c.delete, have, c.want)
		}
	}
}
