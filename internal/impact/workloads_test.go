// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestWorkloads(t *testing.T) {
	judged(t, []string{"stops", "replaced", "static", "over", "target-gone"}, []row{
		{
			name: "a Deployment", delete: "deployment/shop/web",
			want: []string{
				"Breaks stops: Deployment shop/web stops: its 2 running pods end, and nothing starts them again",
				"Note target-gone: HorizontalPodAutoscaler shop/web and PodDisruptionBudget shop/web are left without Deployment shop/web",
			},
		},
		{
			name: "a StatefulSet", delete: "statefulset/shop/db",
			want: []string{
				"Breaks stops: StatefulSet shop/db stops: its running pod ends, and nothing starts it again",
			},
		},
		{
			name: "a component's DaemonSet", delete: "daemonset/kube-system/cilium",
			want: []string{
				"Outage stops: pods created from now on have no network: Cilium's agent (DaemonSet kube-system/cilium, 2 pods running) stops",
			},
		},
		{
			name: "a component without which no network stops", delete: "deployment/kube-system/metrics-server",
			want: []string{
				"Breaks stops: kubectl top answers nothing, and autoscalers by CPU and memory stand still: metrics-server (Deployment kube-system/metrics-server, 1 pod running) stops",
			},
		},
		{
			name: "a pod of a component's DaemonSet", delete: "pod/kube-system/cilium-1",
			want: []string{
				"Note replaced: 1 pod of DaemonSet kube-system/cilium is replaced: DaemonSet kube-system/cilium makes it again",
			},
		},
		{
			name: "a pod of a Deployment", delete: "pod/shop/web-2-a",
			want: []string{
				"Note replaced: 1 pod of Deployment shop/web is replaced: ReplicaSet shop/web-2 makes it again",
			},
		},
		{
			name: "a pod that nothing makes again", delete: "pod/shop/alone",
			want: []string{
				"Breaks stops: Pod shop/alone ends, and nothing starts it again",
			},
		},
		{
			name: "a pod that an operator makes again", delete: "pod/shop/pg-1",
			want: []string{
				"Note replaced: 1 pod of Cluster shop/pg is replaced: Cluster shop/pg makes it again",
			},
		},
		{
			name: "what an operator runs", delete: "cluster/shop/pg",
			want: []string{
				"Breaks stops: Cluster shop/pg stops: its running pod ends, and nothing starts it again",
			},
		},
		{
			name: "a ReplicaSet in use", delete: "replicaset/shop/web-2",
			want: []string{
				"Note replaced: 2 pods of Deployment shop/web are replaced: Deployment shop/web makes them again",
			},
		},
		{
			name: "a ReplicaSet of an old revision", delete: "replicaset/shop/web-1",
			want: []string{
				"Note replaced: Deployment shop/web cannot be rolled back to ReplicaSet shop/web-1",
			},
		},
		{
			name: "a ReplicaSet that nobody made", delete: "replicaset/shop/by-itself",
			want: []string{
				"Breaks stops: ReplicaSet shop/by-itself stops: its running pod ends, and nothing starts it again",
			},
		},
		{
			name: "a Deployment scaled to zero", delete: "deployment/shop/stopped",
			want: []string{
				"Note target-gone: HorizontalPodAutoscaler shop/stopped is left without Deployment shop/stopped",
				"Note stops: Deployment shop/stopped goes; no pod of it runs",
			},
			hits: []string{"HorizontalPodAutoscaler shop/stopped"},
		},
		{
			name: "a CronJob with a running Job", delete: "cronjob/shop/nightly",
			want: []string{
				"Breaks stops: CronJob shop/nightly stops: its running pod ends, and nothing starts it again",
				"Note over: Job shop/nightly-1 and Pod shop/nightly-1-x had ended; the logs go too",
			},
		},
		{
			name: "a CronJob that is suspended", delete: "cronjob/shop/paused",
			want: []string{
				"Note stops: CronJob shop/paused goes; it is suspended",
			},
		},
		{
			name: "a Job that has ended", delete: "job/shop/nightly-1",
			want: []string{
				"Note over: Job shop/nightly-1 and Pod shop/nightly-1-x had ended; the logs go too",
			},
		},
		{
			name: "a Job that runs", delete: "job/shop/nightly-2",
			want: []string{
				"Breaks stops: Job shop/nightly-2 is cut off: its running pod ends",
			},
		},
		{
			name: "a pod that has ended", delete: "pod/shop/nightly-1-x",
			want: []string{
				"Note over: Pod shop/nightly-1-x had ended; the logs go too",
			},
		},
		{
			name: "a static pod", delete: "pod/kube-system/kube-apiserver-plane",
			want: []string{
				"Note static: Pod kube-system/kube-apiserver-plane mirrors what a kubelet runs from a file: it runs on, and is shown again",
			},
		},
		{
			name: "a Deployment without its pods", delete: "--cascade=orphan deployment/shop/web",
			want: []string{
				"Note stops: 2 pods of Deployment shop/web run on, but nothing looks after them any more",
				"Note target-gone: HorizontalPodAutoscaler shop/web and PodDisruptionBudget shop/web are left without Deployment shop/web",
			},
			detail: []string{"What stays is neither updated nor scaled, and pods without a controller of their own are not replaced when they end."},
		},
		{
			name: "a DaemonSet without its pods", delete: "--cascade=orphan daemonset/kube-system/cilium",
			want: []string{
				"Note stops: 2 pods of DaemonSet kube-system/cilium run on, but nothing looks after them any more",
			},
		},
		{
			name: "pods of two controllers", delete: "pod/shop/web-2-a pod/shop/web-2-b pod/kube-system/cilium-2",
			want: []string{
				"Note replaced: 2 pods of Deployment shop/web are replaced: ReplicaSet shop/web-2 makes them again",
				"Note replaced: 1 pod of DaemonSet kube-system/cilium is replaced: DaemonSet kube-system/cilium makes it again",
			},
		},
	})
}
