// SPDX-License-Identifier: Apache-2.0

package guard

import (
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/deploy"
	"github.com/fairlead-io/fairlead/internal/impact"
)

// ManifestOptions say what Manifests writes.
type ManifestOptions struct {
	Namespace string
	Image     string
	Enforce   bool // deny, where the default is to warn
	Secrets   bool // follow the names of Secrets and ConfigMaps too
	AllRBAC   bool // have every delete of RBAC objects looked at
	// URL is where a guard answers that runs outside of the cluster; empty: it
	// runs in it, as a Deployment behind a Service.
	URL string
}

//go:embed manifests.yaml
var manifestsText string

var manifestsTemplate = template.Must(template.New("manifests").
	Funcs(template.FuncMap{"base64": base64.StdEncoding.EncodeToString, "list": flow, "quote": strconv.Quote}).
	Parse(manifestsText))

// Manifests writes everything that a cluster needs to have its deletes judged,
// with a certificate that nobody has seen before.
func Manifests(w io.Writer, o ManifestOptions, now time.Time) error {
	host, err := o.host()
	if err != nil {
		return err
	}
	certificate, err := newPair(host, now)
	if err != nil {
		return err
	}
	policy := deploy.Guard
	if !o.Enforce {
		policy = strings.ReplaceAll(policy, "validationActions: [Deny, Audit]", "validationActions: [Warn, Audit]")
	}
	return manifestsTemplate.Execute(w, map[string]any{
		"Options": o, "Authority": certificate.authority, "Certificate": certificate.certificate, "Key": certificate.key,
		"Rules": Rules(o.Secrets), "Cluster": judged(false), "Namespaced": judged(true), "Policy": policy,
	})
}

// host is where API servers find the guard. It refuses what would not be one
// document of YAML, or what no API server takes.
func (o ManifestOptions) host() (string, error) {
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return "", fmt.Errorf("%q is no name of a namespace: %s", o.Namespace, problems[0])
	}
	if o.Image == "" || strings.ContainsFunc(o.Image, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%q is no name of an image", o.Image)
	}
	if o.URL == "" {
		return "fairlead-guard." + o.Namespace + ".svc", nil
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("the URL of a guard is as https://HOST:PORT/validate")
	}
	return u.Hostname(), nil
}

// Rules are all that a guard may do.
func Rules(secrets bool) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, g := range byGroup(Watched(secrets)) {
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{g.Group}, Resources: g.Resources, Verbs: []string{"list", "watch"}})
	}
	return out
}

// group are resources of one group and version.
type group struct {
	Group, Version string
	Resources      []string
}

func byGroup(kinds []impact.Kind) []group {
	var out []group
	for _, k := range kinds {
		i := slices.IndexFunc(out, func(g group) bool { return g.Group == k.Group && g.Version == k.Version })
		if i < 0 {
			i = len(out)
			out = append(out, group{Group: k.Group, Version: k.Version})
		}
		out[i].Resources = append(out[i].Resources, k.Resource)
	}
	return out
}

// judged are the kinds that an API server asks about: all that judges read, or
// those that are in namespaces. It asks nobody about its admission objects
// themselves, so that no webhook can lock a cluster up.
func judged(namespaced bool) []group {
	return byGroup(slices.DeleteFunc(impact.Kinds(), func(k impact.Kind) bool {
		return k.Group == impact.ValidatingWebhooks.Group || namespaced && clusterWide(k.Resource)
	}))
}

// clusterWide says that objects of a resource are in no namespace.
func clusterWide(resource string) bool {
	return slices.Contains([]string{
		"namespaces", "nodes", "persistentvolumes", "ingressclasses", "clusterroles", "clusterrolebindings", "customresourcedefinitions",
		"apiservices", "storageclasses", "csidrivers", "volumeattachments", "priorityclasses", "runtimeclasses",
	}, resource)
}

// flow writes names as a list of YAML.
func flow(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
