// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Helm writes on each object that it installs of which release it is.
const (
	releaseName      = "meta.helm.sh/release-name"
	releaseNamespace = "meta.helm.sh/release-namespace"
	managedBy        = "app.kubernetes.io/managed-by"
	instance         = "app.kubernetes.io/instance"
)

// Release is a Helm release; the zero value is none.
type Release struct{ Namespace, Name string }

// String is NAMESPACE/NAME.
func (r Release) String() string { return r.Namespace + "/" + r.Name }

// Release is that by which the part was installed, as far as that is known.
func (p *Part) Release(o *facts.Objects) (Release, bool) {
	if o == nil {
		return Release{}, false
	}
	var objects []metav1.Object
	if object, is := p.Object.(metav1.Object); is {
		objects = append(objects, object)
	}
	if account := facts.Find[corev1.ServiceAccount](o, p.Name()); account != nil {
		objects = append(objects, account)
	}
	for _, object := range objects {
		r := Release{cmp.Or(object.GetAnnotations()[releaseNamespace], p.Namespace), object.GetAnnotations()[releaseName]}
		// Where no release is known at all, nobody may have looked.
		if r.restorable() && (len(o.Releases) == 0 || r.deployed(o)) {
			return r, true
		}
	}
	// What the chart's own labels say, and how releases are mostly called, counts
	// for a release that is known to be there.
	for _, object := range objects {
		if r := (Release{p.Namespace, object.GetLabels()[instance]}); object.GetLabels()[managedBy] == "Helm" && r.deployed(o) {
			return r, true
		}
	}
	r := Release{p.Namespace, p.usualRelease()}
	return r, r.deployed(o)
}

// usualRelease is what people call the release, by the command that installs it;
// "" if no chart does.
func (p *Part) usualRelease() string {
	chart, is := strings.CutPrefix(p.Repair, "helm upgrade ")
	name, _, _ := strings.Cut(chart, " ")
	if !is {
		return ""
	}
	return name
}

// plain is a name that is no option of a command, and has no slash.
var plain = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

func (r Release) restorable() bool {
	return plain.MatchString(r.Namespace) && plain.MatchString(r.Name)
}

// deployed says whether there is such a release to restore from.
func (r Release) deployed(o *facts.Objects) bool {
	return r.restorable() && slices.ContainsFunc(o.Releases, func(m *metav1.PartialObjectMetadata) bool {
		return m.Namespace == r.Namespace && m.Labels["name"] == r.Name && m.Labels["status"] == "deployed"
	})
}

// Restore is the command that puts back what is missing of a release.
func (r Release) Restore() doctor.Remedy {
	return doctor.Remedy{
		Text:     "Put back what is missing of its Helm release, and nothing else; without --apply the command shows what that is.",
		Commands: []string{printable.Command("fairlead", "restore", "--helm-release", r.String(), "--apply")},
	}
}

// Compare is the command that shows in what the objects of a release differ from
// it.
func (r Release) Compare() doctor.Remedy {
	return doctor.Remedy{
		Text:     "See what somebody changed of its Helm release.",
		Commands: []string{printable.Command("fairlead", "restore", "--helm-release", r.String())},
	}
}

// RestoreRecorded is the command that puts back roles and bindings as they last
// stood in the case's journal; false if that does not have the role.
func RestoreRecorded(c *facts.Case, role, binding rbac.Ref) (doctor.Remedy, bool) {
	at, had := lastIn(c.Events, role)
	if !had {
		return doctor.Remedy{}, false
	}
	if bound, had := lastIn(c.Events, binding); had && bound.Before(at) {
		at = bound
	}
	text := "Put back the roles and bindings that the journal has and the cluster has not; without --apply the command shows which these are."
	if c.Journal == "" {
		text += " JOURNAL is the recorder's file."
	}
	return doctor.Remedy{
		Text: text,
		Commands: []string{printable.Command("fairlead", "restore", "rbac", "--journal", cmp.Or(c.Journal, "JOURNAL"),
			"--at", at.UTC().Format(time.RFC3339Nano), "--apply")},
	}, true
}

// lastIn is the last moment at which events show an object to be there.
func lastIn(events []journal.Event, r rbac.Ref) (at time.Time, had bool) {
	for _, e := range slices.Backward(events) {
		if e.Kind.Group != rbacv1.GroupName || e.Kind.Kind != r.Kind || e.Namespace != r.Namespace || e.Name != r.Name {
			continue
		}
		if e.Type == journal.Deleted || e.Type == journal.Absent {
			return e.Time.Add(-time.Millisecond), true
		}
		return e.Time, true
	}
	return time.Time{}, false
}
