// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Manifest is YAML of roles of a name that give exactly these needs: a
// ClusterRole for what is needed everywhere, and a Role in each namespace for
// what is needed there. Whom they are for is left to who binds them.
func Manifest(name string, needs []Need) (string, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, n := range needs {
		rules[n.Namespace] = append(rules[n.Namespace], n.policyRule())
	}
	var texts []string
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		text, err := yaml.Marshal(role(name, namespace, rules[namespace]))
		if err != nil {
			return "", fmt.Errorf("write a role of %q: %w", name, err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "---\n"), nil
}

func role(name, namespace string, rules []rbacv1.PolicyRule) any {
	of := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	if namespace == "" {
		return rbacv1.ClusterRole{TypeMeta: of("ClusterRole"), ObjectMeta: meta, Rules: rules}
	}
	return rbacv1.Role{TypeMeta: of("Role"), ObjectMeta: meta, Rules: rules}
}

func (r Rule) policyRule() rbacv1.PolicyRule {
	if r.Path != "" {
		return rbacv1.PolicyRule{Verbs: r.Verbs, NonResourceURLs: []string{r.Path}}
	}
	return rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: r.Names}
}
