// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// printed is what Manifests writes, by kind, read strictly.
type printed struct {
	role       rbacv1.ClusterRole
	secret     corev1.Secret
	deployment appsv1.Deployment
	service    corev1.Service
	webhooks   admissionregistrationv1.ValidatingWebhookConfiguration
	policy     admissionregistrationv1.ValidatingAdmissionPolicy
	binding    admissionregistrationv1.ValidatingAdmissionPolicyBinding
	kinds      []string
}

func printManifests(t *testing.T, o ManifestOptions) printed {
	t.Helper()
	var text bytes.Buffer
	if err := Manifests(&text, o, time.Now()); err != nil {
		t.Fatal(err)
	}
	var p printed
	into := map[string]any{
		"ClusterRole": &p.role, "Secret": &p.secret, "Deployment": &p.deployment, "Service": &p.service, "ValidatingWebhookConfiguration": &p.webhooks,
		"ValidatingAdmissionPolicy": &p.policy, "ValidatingAdmissionPolicyBinding": &p.binding, "ServiceAccount": &corev1.ServiceAccount{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
	}
	for data, err := range reflector.Documents(text.Bytes()) {
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(data, &kind); err != nil {
			t.Fatal(err)
		}
		p.kinds = append(p.kinds, kind.Kind)
		if err := yaml.UnmarshalStrict(data, into[kind.Kind]); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
	}
	return p
}

func TestManifests(t *testing.T) {
	usual := ManifestOptions{Namespace: "guard", Image: "registry.example.com/fairlead:v1"}
	t.Run("everything that is needed is there", func(t *testing.T) {
		want := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret", "Service", "Deployment",
			"ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
		if have := printManifests(t, usual).kinds; !slices.Equal(have, want) {
			t.Errorf("%q", have)
		}
	})
	t.Run("it may list and watch what judges read, and nothing confidential", func(t *testing.T) {
		for _, rule := range printManifests(t, usual).role.Rules {
			if !slices.Equal(rule.Verbs, []string{"list", "watch"}) || slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Resources, "configmaps") || slices.Contains(rule.Resources, "*") {
				t.Errorf("%+v", rule)
			}
		}
	})
	t.Run("unless it is told to", func(t *testing.T) {
		o := usual
		o.Secrets = true
		p := printManifests(t, o)
		if !slices.Contains(p.role.Rules[0].Resources, "secrets") || !slices.Contains(p.deployment.Spec.Template.Spec.Containers[0].Args, "--watch-secrets") {
			t.Errorf("%+v", p.role.Rules[0])
		}
	})
	t.Run("no webhook can hold a cluster up, nor see what is not opted in", func(t *testing.T) {
		for _, w := range printManifests(t, usual).webhooks.Webhooks {
			if *w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds != 2 || *w.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun {
				t.Errorf("%s: %+v", w.Name, w)
			}
			selected := w.ObjectSelector.MatchLabels[Label] == LabelOn || w.NamespaceSelector != nil && w.NamespaceSelector.MatchLabels[Label] == LabelOn
			if !selected {
				t.Errorf("%s selects what is not labelled", w.Name)
			}
			for _, rule := range w.Rules {
				if !slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}) {
					t.Errorf("%s: %v", w.Name, rule.Operations)
				}
			}
		}
	})
	t.Run("all kinds that judges read are asked about, but for those of admission", func(t *testing.T) {
		rules := printManifests(t, usual).webhooks.Webhooks[0].Rules
		for _, kind := range impact.Kinds() {
			asked := slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
				return r.APIGroups[0] == kind.Group && r.APIVersions[0] == kind.Version && slices.Contains(r.Resources, kind.Resource)
			})
			if asked == (kind.Group == "admissionregistration.k8s.io") {
				t.Errorf("%s: %v", kind.GroupResource(), asked)
			}
		}
	})
	for name, enforce := range map[string]bool{"it warns": false, "or denies if told to": true} {
		t.Run(name, func(t *testing.T) {
			o := usual
			o.Enforce = enforce
			p := printManifests(t, o)
			actions := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit}
			flag := "--warn"
			if enforce {
				actions[0], flag = admissionregistrationv1.Deny, "--enforce"
			}
			if !slices.Equal(p.binding.Spec.ValidationActions, actions) || !slices.Contains(p.deployment.Spec.Template.Spec.Containers[0].Args, flag) {
				t.Errorf("%v %v", p.binding.Spec.ValidationActions, p.deployment.Spec.Template.Spec.Containers[0].Args)
			}
		})
	}
	t.Run("API servers can verify the certificate by what the webhooks trust, and it is another one each time", func(t *testing.T) {
		first, second := printManifests(t, usual), printManifests(t, usual)
		verify := func(p printed, authority []byte) error {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(authority)
			block, _ := pem.Decode(p.secret.Data[corev1.TLSCertKey])
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return err
			}
			_, err = c.Verify(x509.VerifyOptions{Roots: pool, DNSName: "fairlead-guard.guard.svc"})
			return err
		}
		if err := verify(first, first.webhooks.Webhooks[0].ClientConfig.CABundle); err != nil {
			t.Error(err)
		}
		if err := verify(first, second.webhooks.Webhooks[0].ClientConfig.CABundle); err == nil {
			t.Error("two outputs have one authority")
		}
	})
	t.Run("a guard that runs elsewhere needs no Deployment", func(t *testing.T) {
		o := usual
		o.URL = "https://192.0.2.10:9443/validate"
		p := printManifests(t, o)
		if slices.Contains(p.kinds, "Deployment") || *p.webhooks.Webhooks[0].ClientConfig.URL != o.URL {
			t.Errorf("%q", p.kinds)
		}
	})
}

func TestManifestsRefuse(t *testing.T) {
	good := ManifestOptions{Namespace: "guard", Image: "fairlead"}
	for name, edit := range map[string]func(*ManifestOptions){
		"a namespace that is none":       func(o *ManifestOptions) { o.Namespace = "x\n---\nkind: Pod" },
		"no namespace":                   func(o *ManifestOptions) { o.Namespace = "" },
		"an image of two lines":          func(o *ManifestOptions) { o.Image = "fairlead\nhostNetwork: true" },
		"no image":                       func(o *ManifestOptions) { o.Image = "" },
		"a URL without TLS":              func(o *ManifestOptions) { o.URL = "http://127.0.0.1/validate" },
		"a URL with a password":          func(o *ManifestOptions) { o.URL = "https://ann:secret@127.0.0.1/validate" },
		"a URL without a host":           func(o *ManifestOptions) { o.URL = "https:///validate" },
		"a URL that API servers refuse":  func(o *ManifestOptions) { o.URL = "https://127.0.0.1/validate?x=y" },
		"what cannot be read as a URL":   func(o *ManifestOptions) { o.URL = "https://[::1" },
		"a URL that would end the quote": func(o *ManifestOptions) { o.URL = "https://\"\n" },
	} {
		t.Run(name, func(t *testing.T) {
			o, text := good, bytes.Buffer{}
			edit(&o)
			if err := Manifests(&text, o, time.Now()); err == nil || text.Len() > 0 || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: %s", err, text.String())
			}
		})
	}
}
