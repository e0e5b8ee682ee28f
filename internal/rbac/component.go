// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// Component is a part of a cluster that its network or its control plane cannot
// do without.
type Component struct {
	ID    string `json:"id"`
	Title string `json:"title"` // Cilium's agent
	// Container, Labels, Args and Env are how its pods are known: the name of a
	// container of theirs, labels, and what that container is started with. A
	// component without a Container is known by its User alone.
	Container string            `json:"container"`
	Labels    map[string]string `json:"labels"`
	Args      []string          `json:"args"`
	Env       map[string]string `json:"env"`
	// Account, Role and Binding are the names that its installer gives to its
	// service account, to its ClusterRole, and to what binds it.
	Account string `json:"account"`
	Role    string `json:"role"`
	Binding string `json:"binding"`
	// User is what the API server knows it by where it comes with a certificate of
	// its own in place of an account, and Groups what such a user is of besides.
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// Needs are what it cannot work without, in all namespaces.
	Needs []rbacv1.PolicyRule `json:"needs"`
	// Restore are rules that get it going again, if that takes more than Needs.
	Restore []rbacv1.PolicyRule `json:"restore"`
	// Local are rules that it needs besides, in its own namespace alone.
	Local []rbacv1.PolicyRule `json:"local"`
	// Sees is what people would see if it stopped or lacked its needs.
	Sees string `json:"sees"`
	// Outage says that the cluster's network, DNS or control plane is down then.
	Outage bool `json:"outage"`
	// Loses says what it does not get if it lacks its needs.
	Loses string `json:"loses"`
	// Repair is how its installer puts its roles back: a command, with NAMESPACE
	// and VERSION in place of its own. It is empty where the API server does so, at
	// its start.
	Repair string `json:"repair"`
	// Source is where the needs are known from.
	Source string `json:"source"`
}

//go:embed components.yaml
var componentsYAML []byte

// data is what components.yaml holds.
type data struct {
	Version    int         `json:"version"`
	Components []Component `json:"components"`
}

// parsed reads the file once: it cannot change.
var parsed = sync.OnceValue(func() data {
	var out data
	if err := yaml.UnmarshalStrict(componentsYAML, &out); err != nil {
		panic("components.yaml, which a test reads: " + err.Error())
	}
	return out
})

// Components are all that are known, those first that people would miss first.
func Components() []Component { return slices.Clone(parsed().Components) }

// DataVersion is the version of what is known of components.
func DataVersion() int { return parsed().Version }

// Requests are what the component cannot do without, each by itself.
func (c *Component) Requests() []Request {
	var out []Request
	for _, rule := range c.Needs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, Request{Verb: verb, Group: group, Resource: resource})
				}
			}
		}
	}
	return out
}

// AsUser is the component where it comes with a certificate of its own.
func (c *Component) AsUser() User {
	return User{Name: c.User, Groups: append([]string{"system:authenticated"}, c.Groups...)}
}

// Runs says whether a pod is one of the component's.
func (c *Component) Runs(labels map[string]string, spec *corev1.PodSpec) bool {
	if c.Container == "" {
		return false
	}
	for key, value := range c.Labels {
		if labels[key] != value {
			return false
		}
	}
	return slices.ContainsFunc(spec.Containers, func(k corev1.Container) bool {
		return k.Name == c.Container && c.startedWith(k)
	})
}

func (c *Component) startedWith(k corev1.Container) bool {
	for name, value := range c.Env {
		if !slices.ContainsFunc(k.Env, func(e corev1.EnvVar) bool { return e.Name == name && e.Value == value }) {
			return false
		}
	}
	line := slices.Concat(k.Command, k.Args)
	return !slices.ContainsFunc(c.Args, func(arg string) bool { return !slices.Contains(line, arg) })
}

// IsItsAccount says whether a pod is to the API server what its service account
// is: not if it is given a kubeconfig of the node's or of a Secret, and not if nobody chose an
// account for it.
func IsItsAccount(spec *corev1.PodSpec) bool {
	return spec.ServiceAccountName != "" && spec.ServiceAccountName != "default" && UsesAccount(spec)
}

// UsesAccount says whether a pod can come to the API server as its service
// account, chosen or not: not if it is given another identity, and not if it is
// denied a token and takes none by itself.
func UsesAccount(spec *corev1.PodSpec) bool {
	if auto := spec.AutomountServiceAccountToken; auto != nil && !*auto && !slices.ContainsFunc(spec.Volumes, holdsToken) {
		return false
	}
	return !slices.ContainsFunc(spec.Containers, func(k corev1.Container) bool { return readsHostConfig(spec, k) })
}

func holdsToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

func readsHostConfig(spec *corev1.PodSpec, k corev1.Container) bool {
	line := strings.Join(slices.Concat(k.Command, k.Args), " ")
	for _, m := range k.VolumeMounts {
		for _, v := range spec.Volumes {
			source, foreign := "", false
			switch {
			case v.HostPath != nil:
				source, foreign = v.HostPath.Path, true
			case v.Secret != nil:
				source, foreign = v.Secret.SecretName, true
			}
			if v.Name != m.Name || !foreign {
				continue
			}
			if strings.Contains(source, "kubeconfig") || strings.Contains(line, "kubeconfig="+m.MountPath) {
				return true
			}
		}
	}
	return false
}

// Restoration are the rules that get the component going again.
func (c *Component) Restoration() []rbacv1.PolicyRule {
	if len(c.Restore) > 0 {
		return c.Restore
	}
	return c.Needs
}

// Rules are the rules that allow requests, one for each resource.
func Rules(requests []Request) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, r := range requests {
		i := slices.IndexFunc(out, func(o rbacv1.PolicyRule) bool { return o.APIGroups[0] == r.Group && o.Resources[0] == r.Resource })
		if i < 0 {
			i = len(out)
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}})
		}
		out[i].Verbs = append(out[i].Verbs, r.Verb)
	}
	return out
}

// Summary names requests in few words, the verbs of a resource together.
func Summary(requests []Request) string {
	var names []string
	for _, r := range Rules(requests) {
		names = append(names, phrase(r.Verbs, whatOf(r.APIGroups[0], r.Resources[0])))
	}
	return strings.Join(few(names, most), ", ")
}

// most is how many names a summary has.
const most = 3

// few are the first of names, and how many there are besides.
func few(names []string, most int) []string {
	if len(names) > most+1 {
		return append(names[:most:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return names
}

// RoleManifest is a ClusterRole as YAML.
func RoleManifest(name string, rules []rbacv1.PolicyRule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: %s\nrules:\n", scalar(name))
	for _, r := range rules {
		fmt.Fprintf(&b, "- apiGroups: %s\n  resources: %s\n  verbs: %s\n", flow(r.APIGroups), flow(r.Resources), flow(r.Verbs))
	}
	return b.String()
}

// BindingManifest is a ClusterRoleBinding for one service account, as YAML.
func BindingManifest(name, role, namespace, account string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: " + scalar(name) +
		"\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: " + scalar(role) +
		"\nsubjects:\n- kind: ServiceAccount\n  namespace: " + scalar(namespace) + "\n  name: " + scalar(account) + "\n"
}

// flow writes a list of YAML on one line.
func flow(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = scalar(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// plainScalar is what YAML takes for a string as it stands; what looks like a
// number, a boolean or null is none.
var (
	plainScalar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._:/-]*[A-Za-z0-9]$`)
	otherType   = regexp.MustCompile(`(?i)^(null|true|false|yes|no|on|off)$`)
)

// scalar writes a string of YAML on one line, whatever is in it: a name that
// came from a stranger is not to end the document, nor that which it stands in.
func scalar(s string) string {
	if plainScalar.MatchString(s) && !otherType.MatchString(s) {
		return s
	}
	return strconv.QuoteToASCII(s)
}
