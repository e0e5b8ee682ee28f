// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestAggregation(t *testing.T) {
	judged(t, []string{"api-group-gone", "api-group-down"}, []row{
		{
			name: "metrics", delete: "apiservice/v1beta1.metrics.k8s.io",
			want: []string{
				"Breaks api-group-gone: kubectl top fails, and nothing is scaled by CPU or memory (1 autoscaler): the API server serves metrics.k8s.io/v1beta1 no more",
			},
			hits: []string{"HorizontalPodAutoscaler shop/web"},
		},
		{
			name: "a group of the API server's own", delete: "apiservice/v1.apps",
			want: []string{
				"Note api-group-gone: APIService v1.apps goes; the API server serves apps/v1 all the same, and writes it again when it starts anew",
			},
		},
		{
			name: "a group whose server is down", delete: "apiservice/v1.dead.example",
			want: []string{
				"Note api-group-gone: APIService v1.dead.example goes; it is not available as it is",
			},
		},
		{
			name: "a group of which nobody knows whether its server answers", delete: "apiservice/v1.doubtful.example",
			want: []string{
				"Breaks api-group-gone: kinds of doubtful.example can be neither read nor written: the API server serves doubtful.example/v1 no more",
			},
		},
		{
			name: "a group of an operator", delete: "apiservice/v1.orders.example",
			want: []string{
				"Breaks api-group-gone: kinds of orders.example can be neither read nor written: the API server serves orders.example/v1 no more",
			},
		},
		{
			name: "the Service of a group's server", delete: "service/kube-system/metrics-server",
			want: []string{
				"Breaks api-group-down: kubectl top fails, and nothing is scaled by CPU or memory (1 autoscaler): requests for metrics.k8s.io/v1beta1 are answered with 503, as its server goes",
			},
			hits:   []string{"APIService v1beta1.metrics.k8s.io", "HorizontalPodAutoscaler shop/web"},
			detail: []string{"Namespaces that are deleted hang meanwhile, as nobody can tell what of that group is in them."},
		},
		{
			name: "the Deployment of a group's server", delete: "deployment/kube-system/metrics-server",
			want: []string{
				"Breaks api-group-down: kubectl top fails, and nothing is scaled by CPU or memory (1 autoscaler): requests for metrics.k8s.io/v1beta1 are answered with 503, as its server goes",
			},
			hits: []string{"APIService v1beta1.metrics.k8s.io", "HorizontalPodAutoscaler shop/web"},
		},
		{
			name: "the pod of a group's server", delete: "pod/kube-system/metrics-server-1-a",
			want: []string{
				"Breaks api-group-down: kubectl top fails, and nothing is scaled by CPU or memory (1 autoscaler) until new pods are ready: requests for metrics.k8s.io/v1beta1 are answered with 503, as its server goes",
			},
			hits: []string{"APIService v1beta1.metrics.k8s.io", "HorizontalPodAutoscaler shop/web"},
		},
		{
			name: "one of two pods of a group's server", delete: "pod/shop/web-2-a",
		},
		{
			name: "a Service that nobody answers anyway", delete: "service/shop/nobody",
		},
		{
			name: "a server with its group", delete: "service/kube-system/metrics-server apiservice/v1beta1.metrics.k8s.io",
			want: []string{
				"Breaks api-group-gone: kubectl top fails, and nothing is scaled by CPU or memory (1 autoscaler): the API server serves metrics.k8s.io/v1beta1 no more",
			},
			hits: []string{"HorizontalPodAutoscaler shop/web"},
		},
		{
			name: "the slice of a group's server", delete: "endpointslice/kube-system/metrics-server-1",
		},
		{
			name: "a Service behind no group", delete: "service/certs/hook",
		},
	})
}
