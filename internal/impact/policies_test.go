// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestPolicies(t *testing.T) {
	judged(t, []string{"opens", "closes", "policy-gone", "autoscaler-gone", "budget-gone", "quota-gone", "limits-gone"}, []row{
		{
			name: "the policy that lets nothing in, beside another one", delete: "networkpolicy/shop/web-deny",
			want: []string{
				"Note policy-gone: NetworkPolicy shop/web-deny goes; other policies close what it does, and it allows nothing",
			},
		},
		{
			name: "the policy that lets something in, beside another one", delete: "networkpolicy/shop/web-allow",
			want: []string{
				"Breaks closes: what NetworkPolicy shop/web-allow let through to Deployment shop/web (2 pods running) is refused: NetworkPolicy shop/web-deny still isolates it",
			},
			hits: []string{"Pod shop/web-2-a", "Pod shop/web-2-b"},
		},
		{
			name: "both", delete: "networkpolicy/shop/web-deny networkpolicy/shop/web-allow",
			want: []string{
				"Breaks opens: opens: anybody may connect to Deployment shop/web (2 pods running)",
				"Breaks opens: opens: anybody may connect to Deployment shop/web (2 pods running)",
			},
			hits: []string{"Pod shop/web-2-a", "Pod shop/web-2-b"},
		},
		{
			name: "the only one of a pod", delete: "networkpolicy/shop/db",
			want: []string{
				"Breaks opens: opens: anybody may connect to StatefulSet shop/db (1 pod running)",
			},
			hits: []string{"Pod shop/db-0"},
		},
		{
			name: "the only one, both ways", delete: "networkpolicy/shop/alone",
			want: []string{
				"Breaks opens: opens: Pod shop/alone may connect to anybody",
				"Breaks opens: opens: anybody may connect to Pod shop/alone",
			},
			hits: []string{"Pod shop/alone"},
		},
		{
			name: "one that selects no running pod", delete: "networkpolicy/shop/for-stopped",
			want: []string{
				"Note policy-gone: NetworkPolicy shop/for-stopped goes; it selects no running pod",
			},
		},
		{
			name: "one with the pods that it selects", delete: "networkpolicy/shop/db statefulset/shop/db",
			want: []string{
				"Note policy-gone: NetworkPolicy shop/db goes; it selects no running pod",
			},
		},
		{
			name: "an autoscaler", delete: "horizontalpodautoscaler/shop/web",
			want: []string{
				"Breaks autoscaler-gone: Deployment shop/web is scaled no more: it stays at the pods that it has, whatever its load",
			},
			hits: []string{"Deployment shop/web"},
		},
		{
			name: "an autoscaler of what is stopped", delete: "horizontalpodautoscaler/shop/stopped",
			want: []string{
				"Note autoscaler-gone: HorizontalPodAutoscaler shop/stopped goes; Deployment shop/stopped, which it scales, is not there or stopped",
			},
		},
		{
			name: "an autoscaler with its target", delete: "horizontalpodautoscaler/shop/web deployment/shop/web",
			want: []string{
				"Note autoscaler-gone: HorizontalPodAutoscaler shop/web goes; Deployment shop/web, which it scales, is not there or stopped",
			},
		},
		{
			name: "a disruption budget", delete: "poddisruptionbudget/shop/web",
			want: []string{
				"Note budget-gone: PodDisruptionBudget shop/web no longer holds back who drains a node",
			},
		},
		{
			name: "a quota", delete: "resourcequota/shop/quota",
			want: []string{
				"Note quota-gone: Namespace shop may use more: ResourceQuota shop/quota goes",
			},
		},
		{
			name: "limits", delete: "limitrange/shop/limits",
			want: []string{
				"Note limits-gone: new containers in Namespace shop get no defaults and bounds of LimitRange shop/limits",
			},
		},
	})
}
