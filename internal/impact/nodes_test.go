// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

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
