// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

func TestMounts(t *testing.T) {
	judged(t, []string{"needed-to-start", "account-gone", "pull-secret-gone", "volume-secret-gone", "certificate-gone", "unused", "root-ca", "api-authentication", "helm-release", "token-gone", "config-gone"}, []row{
		{
			name: "an environment", delete: "secret/shop/db",
			want: []string{
				"Breaks needed-to-start: Deployment shop/web (2 pods running) cannot start again without Secret shop/db",
			},
			hits:   []string{"Deployment shop/web (2 pods running)"},
			detail: []string{"Pods that run go on with what they read, until one ends or moves."},
		},
		{
			name: "a projected volume", delete: "configmap/shop/web",
			want: []string{
				"Breaks needed-to-start: Deployment shop/web (2 pods running) cannot start again without ConfigMap shop/web",
			},
			hits: []string{"Deployment shop/web (2 pods running)"},
		},
		{
			name: "what a program does without", delete: "configmap/shop/flags",
			want: []string{
				"Note needed-to-start: Deployment shop/web (2 pods running) starts without ConfigMap shop/flags from now on",
			},
			hits: []string{"Deployment shop/web (2 pods running)"},
		},
		{
			name: "what the next Job needs", delete: "configmap/shop/nightly",
			want: []string{
				"Breaks needed-to-start: CronJob shop/nightly cannot start again without ConfigMap shop/nightly",
			},
			hits: []string{"CronJob shop/nightly"},
		},
		{
			name: "what only a stopped Deployment names", delete: "configmap/shop/nobodys",
			want: []string{
				"Note unused: nothing that runs uses ConfigMap shop/nobodys",
			},
		},
		{
			name: "what only an old revision names", delete: "secret/shop/former",
			want: []string{
				"Note unused: nothing that runs uses Secret shop/former",
			},
		},
		{
			name: "what a single pod has read", delete: "configmap/shop/of-one",
			want: []string{
				"Breaks needed-to-start: Pod shop/alone cannot start again without ConfigMap shop/of-one",
			},
			hits: []string{"Pod shop/alone"},
		},
		{
			name: "the key to a registry", delete: "secret/shop/registry",
			want: []string{
				"Breaks pull-secret-gone: Deployment shop/web (2 pods running) may not pull images any more: Secret shop/registry opens the registry",
			},
			hits: []string{"Deployment shop/web (2 pods running)"},
		},
		{
			name: "the key to a registry, by way of the account", delete: "secret/shop/from-account",
			want: []string{
				"Breaks pull-secret-gone: ServiceAccount shop/web (2 pods running) may not pull images any more: Secret shop/from-account opens the registry",
			},
			hits: []string{"ServiceAccount shop/web (2 pods running)"},
		},
		{
			name: "the same of an account in which nothing runs", delete: "secret/shop/for-nobody",
			want: []string{
				"Note unused: nothing that runs uses Secret shop/for-nobody",
			},
		},
		{
			name: "a certificate of an Ingress", delete: "secret/shop/web-tls",
			want: []string{
				"Breaks certificate-gone: Ingress shop/web no longer serves TLS with its own certificate: it stands in Secret shop/web-tls",
			},
			hits: []string{"Ingress shop/web"},
		},
		{
			name: "the key of a volume", delete: "secret/shop/disk-key",
			want: []string{
				"Breaks volume-secret-gone: volumes of PersistentVolume pv-db cannot be opened any more: Secret shop/disk-key is their key",
			},
			hits: []string{"PersistentVolume pv-db"},
		},
		{
			name: "the certificate of a webhook's server", delete: "secret/certs/hook-tls",
			want: []string{
				"Breaks needed-to-start: Deployment certs/hook (1 pod running) cannot start again without Secret certs/hook-tls",
			},
			hits:   []string{"Deployment certs/hook (1 pod running)"},
			detail: []string{"Pods that run go on with what they read, until one ends or moves.", "Then creates and updates of certificates.certs.example and issuers.certs.example are refused: they answer for ValidatingWebhookConfiguration certs, whose failurePolicy is Fail."},
		},
		{
			name: "the deployed revision of a release", delete: "secret/shop/sh.helm.release.v1.shop.v2",
			want: []string{
				"Breaks helm-release: Helm forgets release shop/shop: Secret shop/sh.helm.release.v1.shop.v2 is its deployed revision",
			},
		},
		{
			name: "a former revision of a release", delete: "secret/shop/sh.helm.release.v1.shop.v1",
			want: []string{
				"Note helm-release: Helm no longer has revision 1 of release shop/shop, which is superseded",
			},
		},
		{
			name: "a token that somebody used", delete: "secret/shop/ci-token",
			want: []string{
				"Breaks token-gone: whoever comes with the token of ServiceAccount shop/idle is refused: it was last used on 2026-01-02",
			},
			hits: []string{"ServiceAccount shop/idle"},
		},
		{
			name: "a token that is invalid", delete: "secret/shop/dead-token",
			want: []string{
				"Note token-gone: Secret shop/dead-token holds a token that is invalid already",
			},
			hits: []string{"ServiceAccount shop/idle"},
		},
		{
			name: "a token that nobody used", delete: "secret/shop/unused-token",
			want: []string{
				"Note token-gone: the token of ServiceAccount shop/idle goes; no use of it is noted",
			},
			hits: []string{"ServiceAccount shop/idle"},
		},
		{
			name: "what the controller manager writes again", delete: "configmap/shop/kube-root-ca.crt",
			want: []string{
				"Note root-ca: ConfigMap shop/kube-root-ca.crt comes back within seconds: the controller manager writes it into every namespace",
			},
		},
		{
			name: "what the API server writes again", delete: "configmap/kube-system/extension-apiserver-authentication",
			want: []string{
				"Note api-authentication: ConfigMap kube-system/extension-apiserver-authentication comes back within a minute: the API server writes it",
			},
		},
		{
			name: "the configuration of Cilium", delete: "configmap/kube-system/cilium-config",
			want: []string{
				"Outage config-gone: pods created from now on have no network when Cilium's agent starts anew: it reads ConfigMap kube-system/cilium-config (2 running pods)",
			},
			hits: []string{"Pod kube-system/cilium-1", "Pod kube-system/cilium-2"},
		},
		{
			name: "one of the same name elsewhere", delete: "configmap/shop/cilium-config",
			want: []string{
				"Note unused: nothing that runs uses ConfigMap shop/cilium-config",
			},
		},
		{
			name: "the configuration of CoreDNS", delete: "configmap/kube-system/coredns",
			want: []string{
				"Outage needed-to-start: names of new Services are not found, and none at all once CoreDNS restarts when CoreDNS starts anew: Deployment kube-system/coredns (1 pod running) cannot start again without ConfigMap kube-system/coredns",
			},
			hits: []string{"Deployment kube-system/coredns (1 pod running)"},
		},
		{
			name: "the configuration of kubeadm", delete: "configmap/kube-system/kubeadm-config",
			want: []string{
				"Breaks config-gone: kubeadm can neither join nodes nor upgrade: it reads ConfigMap kube-system/kubeadm-config",
			},
		},
		{
			name: "a Secret of a component", delete: "secret/kube-system/cilium-ca",
			want: []string{
				"Outage needed-to-start: pods created from now on have no network when Cilium's agent starts anew: DaemonSet kube-system/cilium (2 pods running) cannot start again without Secret kube-system/cilium-ca",
			},
			hits: []string{"DaemonSet kube-system/cilium (2 pods running)"},
		},
		{
			name: "an account", delete: "serviceaccount/shop/web",
			want: []string{
				"Breaks account-gone: Deployment shop/web (2 pods running) loses its token for the API server and starts no new pod: it runs as ServiceAccount shop/web",
			},
			hits:   []string{"Deployment shop/web (2 pods running)"},
			detail: []string{"Once it is there again, new pods start; the tokens of those that run stay void, and they are refused until they are restarted."},
		},
		{
			name: "the default account", delete: "serviceaccount/shop/default",
			want: []string{
				"Note account-gone: ServiceAccount shop/default is made again at once, but the tokens that Cluster shop/pg (1 pod running), CronJob shop/nightly (1 pod running) and 3 more took of it are void",
			},
			hits: []string{"Cluster shop/pg (1 pod running)", "CronJob shop/nightly (1 pod running)", "Pod shop/alone", "ReplicaSet shop/by-itself (1 pod running)", "StatefulSet shop/db (1 pod running)"},
		},
		{
			name: "an account with tokens, as which nothing runs", delete: "serviceaccount/shop/idle",
			want: []string{
				"Breaks token-gone: whoever comes with the token of ServiceAccount shop/idle is refused: it was last used on 2026-01-02",
				"Note token-gone: Secret shop/dead-token holds a token that is invalid already",
				"Note unused: nothing that runs uses ServiceAccount shop/idle",
				"Note token-gone: the token of ServiceAccount shop/idle goes; no use of it is noted",
			},
			hits: []string{"ServiceAccount shop/idle"},
		},
		{
			name: "a component's account", delete: "serviceaccount/kube-system/cilium",
			want: []string{
				"Outage account-gone: pods created from now on have no network when Cilium's agent starts anew: DaemonSet kube-system/cilium (2 pods running) loses its token for the API server and starts no new pod: it runs as ServiceAccount kube-system/cilium",
			},
			hits: []string{"DaemonSet kube-system/cilium (2 pods running)"},
		},
		{
			name: "a Secret with all that needs it", delete: "secret/shop/db deployment/shop/web",
			want: []string{
				"Note unused: nothing that runs uses Secret shop/db",
			},
		},
		{
			name: "several that nobody uses", delete: "configmap/shop/nobodys configmap/shop/cilium-config secret/shop/former",
			want: []string{
				"Note unused: nothing that runs uses ConfigMap shop/cilium-config and ConfigMap shop/nobodys",
				"Note unused: nothing that runs uses Secret shop/former",
			},
		},
	})
}

// TestMountsInANamespaceThatGoes: what controllers write into every namespace
// does not come back into one that goes, and is not worth a word.
func TestMountsInANamespaceThatGoes(t *testing.T) {
	s := impacttest.State(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: old}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: old}}
---
{apiVersion: v1, kind: Pod, metadata: {name: user, namespace: old}, status: {phase: Running}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: old}}
`)
	for _, c := range []struct {
		delete string
		want   []string
	}{
		{"Namespace/old", []string{"unused: nothing that runs uses ConfigMap old/settings"}},
		{"ConfigMap/old/kube-root-ca.crt", []string{"root-ca: ConfigMap old/kube-root-ca.crt comes back within seconds: the controller manager writes it into every namespace"}},
		{"ServiceAccount/old/default", []string{"account-gone: ServiceAccount old/default is made again at once, but the tokens that Pod old/user took of it are void"}},
	} {
		var have []string
		for _, q := range impact.Examine(s, impacttest.Delete(t, s, impact.Background, c.delete)).Consequences {
			if slices.Contains([]string{"root-ca", "unused", "account-gone"}, q.ID) {
				have = append(have, q.ID+": "+q.Title)
			}
		}
		if !slices.Equal(have, c.want) {
			t.Errorf("deleting %s, people would see %q, want %q", c.delete, have, c.want)
		}
	}
}
