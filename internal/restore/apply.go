// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/redact"
)

// Apply makes what is missing, in the plan's order, and says of each object
// what became of it. One that fails keeps no other from being made.
func (c *Cluster) Apply(ctx context.Context, p *Plan, each func(*Item)) error {
	made := map[string]bool{} // names of definitions
	for _, item := range p.Items {
		if item.State != Missing {
			continue
		}
		// Nobody needs to wait for a kind whose definition was not made.
		if definition := item.at.resource.GroupResource().String(); item.at.coming && !made[definition] {
			item.become(Failed, "its kind is not served: CustomResourceDefinition %s was not made", definition)
		} else if err := c.create(ctx, item); err != nil {
			item.become(Failed, "%s", explain(item, err))
		}
		made[item.Name] = made[item.Name] || item.Kind == "CustomResourceDefinition" && item.State != Failed
		each(item)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// create makes an object, unless somebody else has made it meanwhile.
func (c *Cluster) create(ctx context.Context, item *Item) (err error) {
	if item.at.coming {
		if item.at, err = c.awaits(ctx, item.object.GroupVersionKind()); err != nil {
			return err
		}
	}
	_, err = c.objects(item.at, item.Namespace).Get(ctx, item.Name, metav1.GetOptions{})
	if err == nil {
		item.become(Same, "somebody else has made it meanwhile: run restore again to compare it")
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if _, err := c.apply(ctx, item.at, item.object.Unstructured, metav1.PatchOptions{}); err != nil {
		return err
	}
	item.State, item.Why = Created, ""
	if item.Kind == "CustomResourceDefinition" {
		return c.established(ctx, item.at, item.Name)
	}
	return nil
}

// escalation stands in the refusal of a role or a binding by which a user would
// give others what he does not have. Rules follow it, of which there are many.
const escalation = "attempting to grant RBAC permissions not currently held"

// unfit is how the API server names a field of another type than its kind has;
// the value follows, whatever it is.
var unfit = regexp.MustCompile(`(?m)(?:\): |^\s*)(\.[^\n]*?): expected (\w+), got `)

// explain says in one line why a request failed, without values of the object:
// the API server quotes those that it refuses.
func explain(item *Item, err error) string {
	switch {
	case strings.Contains(err.Error(), escalation):
		return "the API server lets nobody grant permissions that he does not hold himself: do it as a cluster administrator, or as a user who may use the verbs escalate and bind on roles"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return fmt.Sprintf("namespace %s is being deleted: wait until it is gone, then run restore again", item.Namespace)
	case apierrors.IsForbidden(err):
		return "the API server forbids it: " + redact.Text(err.Error())
	case apierrors.IsConflict(err):
		return "another field manager has fields of it, and nothing is forced: " + redact.Text(err.Error())
	}
	if found := unfit.FindAllStringSubmatch(err.Error(), -1); found != nil {
		var wrong []string
		for _, match := range found {
			wrong = append(wrong, match[1]+", which must be a "+match[2])
		}
		return "the API server refuses its " + few(wrong)
	}
	if strings.Contains(err.Error(), "illegal base64") {
		return "the API server refuses its fields: one that must be in base64 is not"
	}
	if status := apierrors.APIStatus(nil); apierrors.IsInvalid(err) && errors.As(err, &status) {
		return "the API server refuses its " + fields(status.Status().Details, item.Kind != "Secret")
	}
	return redact.Text(err.Error())
}

// fields names those that an API server refuses and, if reasons are to be told,
// why.
func fields(details *metav1.StatusDetails, reasons bool) string {
	if details == nil || len(details.Causes) == 0 {
		return "fields"
	}
	var names []string
	for _, cause := range details.Causes {
		name := cause.Field
		if reasons {
			name += ": " + redact.Text(withoutValue(cause.Message))
		}
		names = append(names, name)
	}
	return few(names)
}

// quoting is how the message of a cause begins that quotes a value, and
// quotedValue is the value, as far as one can tell where it ends: a text in
// quotes, an object, a list, or a number.
var (
	quoting     = regexp.MustCompile(`^(?:Invalid value|Duplicate value|Unsupported value|Not found)`)
	quotedValue = regexp.MustCompile(`(?s)^: (?:"(?:[^"\\]|\\.)*"|[^"].*[\]}]|[^":\s{]+)(?:: |$)`)
)

// withoutValue leaves out of the message of a cause the value that it quotes,
// and what follows in further lines: differences of whole objects.
func withoutValue(message string) string {
	kind := quoting.FindString(message)
	rest := message[len(kind):]
	if kind != "" {
		value := quotedValue.FindString(rest)
		if rest = rest[len(value):]; value == "" || rest == "" {
			return kind
		}
		kind += ": "
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return kind + rest
}

// YAML is the object that is wanted, without the values of secrets.
func (i *Item) YAML() (string, error) {
	u := i.object.DeepCopy()
	redact.New().Object(i.at.resource.Group, i.at.resource.Resource, "", u.Object, nil)
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return "", fmt.Errorf("write %s as YAML: %w", i, err)
	}
	return string(text), nil
}
