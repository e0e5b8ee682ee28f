// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestClasses(t *testing.T) {
	judged(t, []string{"priority-class-gone", "runtime-class-gone", "ingress-class-gone"}, []row{
		{
			name: "a priority in use", delete: "priorityclass/high",
			want: []string{
				"Breaks priority-class-gone: new pods of Deployment shop/web (2 pods running) are refused: they name PriorityClass high",
			},
			hits: []string{"Deployment shop/web (2 pods running)"},
		},
		{
			name: "a priority that a stopped Deployment names", delete: "priorityclass/low",
			want: []string{
				"Note priority-class-gone: nothing that runs names PriorityClass low",
			},
		},
		{
			name: "a priority that a single pod had", delete: "priorityclass/solo",
			want: []string{
				"Note priority-class-gone: Pod shop/alone cannot be created again as it is: it names PriorityClass solo",
			},
			hits: []string{"Pod shop/alone"},
		},
		{
			name: "a priority of Kubernetes' own", delete: "priorityclass/system-node-critical",
			want: []string{
				"Note priority-class-gone: the API server does not let PriorityClass system-node-critical go",
			},
		},
		{
			name: "a priority with all that names it", delete: "priorityclass/high deployment/shop/web",
			want: []string{
				"Note priority-class-gone: nothing that runs names PriorityClass high",
			},
		},
		{
			name: "a runtime in use", delete: "runtimeclass/kata",
			want: []string{
				"Breaks runtime-class-gone: new pods of Deployment shop/web (2 pods running) are refused: they name RuntimeClass kata",
			},
			hits: []string{"Deployment shop/web (2 pods running)"},
		},
		{
			name: "a runtime that nothing names", delete: "runtimeclass/gvisor",
			want: []string{
				"Note runtime-class-gone: nothing that runs names RuntimeClass gvisor",
			},
		},
		{
			name: "a runtime whose pods go and come again", delete: "runtimeclass/kata pod/shop/web-2-a pod/shop/web-2-b",
			want: []string{
				"Breaks runtime-class-gone: new pods of Deployment shop/web are refused: they name RuntimeClass kata",
			},
			hits: []string{"Deployment shop/web"},
		},
		{
			name: "an Ingress class in use", delete: "ingressclass/nginx",
			want: []string{
				"Breaks ingress-class-gone: Ingress shop/web may no longer be served: it is of IngressClass nginx",
			},
			hits: []string{"Ingress shop/web"},
		},
		{
			name: "an Ingress class in use, named in the old way", delete: "ingressclass/haproxy",
			want: []string{
				"Breaks ingress-class-gone: Ingress shop/old may no longer be served: it is of IngressClass haproxy",
			},
			hits: []string{"Ingress shop/old"},
		},
		{
			name: "an Ingress class with its Ingress", delete: "ingressclass/nginx ingress/shop/web",
			want: []string{
				"Note ingress-class-gone: no Ingress is of IngressClass nginx",
			},
		},
		{
			name: "the default Ingress class", delete: "ingressclass/spare",
			want: []string{
				"Note ingress-class-gone: no Ingress is of IngressClass spare",
			},
			detail: []string{"It is the default: new Ingresses that name no class get none."},
		},
	})
}
