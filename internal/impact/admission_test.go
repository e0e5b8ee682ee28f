// SPDX-License-Identifier: Apache-2.0

package impact_test

import "testing"

func TestAdmission(t *testing.T) {
	judged(t, []string{"webhook-gone", "webhook-ignored", "writes-fail", "policy-unbound"}, []row{
		{
			name: "a validating webhook", delete: "validatingwebhookconfiguration/certs",
			want: []string{
				"Breaks webhook-gone: opens: creates and updates of certificates.certs.example and issuers.certs.example are no longer checked by ValidatingWebhookConfiguration certs",
			},
		},
		{
			name: "a mutating webhook", delete: "mutatingwebhookconfiguration/inject",
			want: []string{
				"Breaks webhook-gone: creates of pods are stored as they come: MutatingWebhookConfiguration inject no longer completes them",
			},
			detail: []string{"What it puts into objects, such as sidecars and defaults, is missing in those written from now on."},
		},
		{
			name: "a webhook that nobody answers", delete: "validatingwebhookconfiguration/dead",
			want: []string{
				"Note webhook-gone: nobody answers for ValidatingWebhookConfiguration dead as it is: its checks of writes of secrets do not work",
			},
		},
		{
			name: "a webhook that is answered from outside", delete: "validatingwebhookconfiguration/outside",
			want: []string{
				"Breaks webhook-gone: opens: deletes of everything are no longer checked by ValidatingWebhookConfiguration outside",
			},
		},
		{
			name: "a configuration without webhooks", delete: "validatingwebhookconfiguration/empty",
			want: []string{
				"Note webhook-gone: ValidatingWebhookConfiguration empty goes; it has no rule",
			},
		},
		{
			name: "a policy in force", delete: "validatingadmissionpolicy/no-latest",
			want: []string{
				"Breaks policy-unbound: opens: creates and updates of deployments.apps are no longer checked by ValidatingAdmissionPolicy no-latest",
			},
			hits: []string{"ValidatingAdmissionPolicyBinding no-latest", "ValidatingAdmissionPolicyBinding no-latest-test"},
		},
		{
			name: "one of two bindings", delete: "validatingadmissionpolicybinding/no-latest",
			want: []string{
				"Breaks policy-unbound: opens: creates and updates of deployments.apps are no longer checked by ValidatingAdmissionPolicy no-latest where ValidatingAdmissionPolicyBinding no-latest says so",
			},
			detail: []string{"It stays in force by ValidatingAdmissionPolicyBinding no-latest-test."},
		},
		{
			name: "both bindings", delete: "validatingadmissionpolicybinding/no-latest validatingadmissionpolicybinding/no-latest-test",
			want: []string{
				"Breaks policy-unbound: opens: creates and updates of deployments.apps are no longer checked by ValidatingAdmissionPolicy no-latest",
				"Breaks policy-unbound: opens: creates and updates of deployments.apps are no longer checked by ValidatingAdmissionPolicy no-latest",
			},
		},
		{
			name: "a binding that only notes", delete: "validatingadmissionpolicybinding/no-latest-note",
			want: []string{
				"Note policy-unbound: ValidatingAdmissionPolicyBinding no-latest-note goes; no write is refused by it",
			},
		},
		{
			name: "a policy that nothing binds", delete: "validatingadmissionpolicy/draft",
			want: []string{
				"Note policy-unbound: ValidatingAdmissionPolicy draft goes; no write is refused by it",
			},
		},
		{
			name: "a binding of no policy", delete: "validatingadmissionpolicybinding/orphan",
			want: []string{
				"Note policy-unbound: ValidatingAdmissionPolicyBinding orphan goes; there is no ValidatingAdmissionPolicy gone",
			},
		},
		{
			name: "a policy with its bindings", delete: "validatingadmissionpolicy/no-latest validatingadmissionpolicybinding/no-latest validatingadmissionpolicybinding/no-latest-test",
			want: []string{
				"Breaks policy-unbound: opens: creates and updates of deployments.apps are no longer checked by ValidatingAdmissionPolicy no-latest",
			},
		},
		{
			name: "the Service behind webhooks", delete: "service/certs/hook",
			want: []string{
				"Outage writes-fail: creates and updates of certificates.certs.example and issuers.certs.example are refused until somebody puts it back: nobody answers for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail",
				"Breaks webhook-ignored: creates of pods are silently stored as they come until somebody puts it back: nobody answers for MutatingWebhookConfiguration inject",
			},
			hits: []string{"ValidatingWebhookConfiguration certs"},
		},
		{
			name: "the Deployment behind webhooks", delete: "deployment/certs/hook",
			want: []string{
				"Outage writes-fail: creates and updates of certificates.certs.example and issuers.certs.example are refused until somebody puts it back: nobody answers for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail",
				"Breaks webhook-ignored: creates of pods are silently stored as they come until somebody puts it back: nobody answers for MutatingWebhookConfiguration inject",
			},
			hits: []string{"ValidatingWebhookConfiguration certs"},
		},
		{
			name: "the pod behind webhooks, which is made again", delete: "pod/certs/hook-1-a",
			want: []string{
				"Breaks writes-fail: creates and updates of certificates.certs.example and issuers.certs.example are refused until new pods are ready: nobody answers for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail",
				"Breaks webhook-ignored: creates of pods are silently stored as they come until new pods are ready: nobody answers for MutatingWebhookConfiguration inject",
			},
			hits: []string{"ValidatingWebhookConfiguration certs"},
		},
		{
			name: "the node of the pod behind webhooks", delete: "node/worker-1",
			want: []string{
				"Breaks writes-fail: creates and updates of certificates.certs.example and issuers.certs.example are refused until new pods are ready: nobody answers for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail",
				"Breaks webhook-ignored: creates of pods are silently stored as they come until new pods are ready: nobody answers for MutatingWebhookConfiguration inject",
			},
			hits: []string{"ValidatingWebhookConfiguration certs"},
			by:   []string{"Node worker-1"},
		},
		{
			name: "the namespace behind webhooks", delete: "namespace/certs",
			want: []string{
				"Outage writes-fail: creates and updates of certificates.certs.example and issuers.certs.example are refused until somebody puts it back: nobody answers for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail",
				"Breaks webhook-ignored: creates of pods are silently stored as they come until somebody puts it back: nobody answers for MutatingWebhookConfiguration inject",
			},
			hits: []string{"ValidatingWebhookConfiguration certs"},
		},
		{
			name: "all of it", delete: "namespace/certs validatingwebhookconfiguration/certs mutatingwebhookconfiguration/inject",
			want: []string{
				"Breaks webhook-gone: creates of pods are stored as they come: MutatingWebhookConfiguration inject no longer completes them",
				"Breaks webhook-gone: opens: creates and updates of certificates.certs.example and issuers.certs.example are no longer checked by ValidatingWebhookConfiguration certs",
			},
		},
		{
			name: "a Service behind no webhook", delete: "service/shop/web",
		},
	})
}
