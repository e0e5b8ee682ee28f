// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// Label opts an object in, or all objects of a namespace that has it, and
// Override has a delete allowed whatever it breaks; its value says why.
const (
	Label    = "fairlead.io/guard"
	LabelOn  = "on"
	Override = "fairlead.io/delete-anyway"
)

// View is what a guard judges by.
type View interface {
	// State is the cluster as of a moment ago, or why nobody should judge by it.
	State() (*impact.State, error)
	// With is the cluster at this moment, with an object as it is given.
	With(*impact.Object) *impact.State
}

// Guard judges deletes.
type Guard struct {
	view    View
	enforce bool
	log     *slog.Logger
	metrics *Metrics
	gone    departures
	bursts  bursts
}

// New returns a guard that warns, or with enforce denies.
func New(view View, enforce bool, m *Metrics, log *slog.Logger) *Guard {
	return &Guard{view: view, enforce: enforce, metrics: m, log: log}
}

// The verdicts, as metrics, logs and audit annotations name them.
const (
	allowed    = "allowed"    // nothing that is in use breaks
	warned     = "warned"     // something would break, and the guard only warns
	denied     = "denied"     // something would break
	overridden = "overridden" // something may break, and the annotation says to go on
	controller = "controller" // the cluster's own controllers finish what somebody began
	unjudged   = "unjudged"   // the guard does not know enough, or broke
)

func verdicts() []string {
	return []string{allowed, warned, denied, overridden, controller, unjudged}
}

// review is a request on its way to an answer.
type review struct {
	*admissionv1.AdmissionRequest
	at     time.Time
	object *impact.Object
	labels map[string]string
	reason string // of the override; "" if there is none

	verdict      string
	consequences []impact.Consequence
	warnings     []string
	incomplete   []string
}

// Review answers a request. It never fails: a request that cannot be judged is
// allowed, with a warning.
func (g *Guard) Review(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	r := &review{AdmissionRequest: request, at: time.Now()}
	g.judgeSafely(r)
	g.tell(r)
	return g.answer(r)
}

// judgeSafely is the one place where a defect of the guard or of a judge ends:
// it must not be in the way of a delete.
func (g *Guard) judgeSafely(r *review) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		g.log.Error("a judge has a defect, and the delete is allowed: report it", "object", r.title(), "panic", p, "stack", string(debug.Stack()))
		r.unjudged("it has a defect, which its log shows")
	}()
	g.judge(r)
}

func (r *review) unjudged(why string) {
	r.verdict, r.consequences = unjudged, nil
	r.warnings = append(r.warnings, "this delete is not judged: "+why)
}

func (g *Guard) judge(r *review) {
	if r.Operation != admissionv1.Delete || r.SubResource != "" {
		r.unjudged(fmt.Sprintf("the guard judges deletes of objects, and this is %s of %s", r.Operation, r.title()))
		return
	}
	if err := r.decode(); err != nil {
		r.unjudged(err.Error())
		return
	}
	if automatic(r.UserInfo) || r.object.Deleting {
		r.verdict = controller
		return
	}
	if !r.dry() {
		g.countBurst(r)
	}
	state, err := g.view.State()
	if err != nil {
		r.unjudged(err.Error())
		return
	}
	state, r.object = g.current(state, r.object)
	g.weigh(r, state)
	r.verdict = g.verdict(r, state)
	if r.verdict == denied {
		g.gone.withdraw(r.object.UID)
	}
}

// decode reads the object that is to go, and what it says of itself.
func (r *review) decode() error {
	o, content, err := decodeObject(r.Resource, r.Kind.Kind, r.OldObject.Raw)
	if err != nil {
		return err
	}
	r.object, r.labels = o, content.GetLabels()
	if r.Name == "" { // a request to delete a whole collection names none of its objects
		r.Name = o.Name
	}
	r.reason = strings.TrimSpace(content.GetAnnotations()[Override])
	return nil
}

// current is a State that has the object as it is in the request, and the
// object in it. The watches may be behind the request.
func (g *Guard) current(s *impact.State, o *impact.Object) (*impact.State, *impact.Object) {
	known, there := s.Get(o.Key())
	if there && known.UID == o.UID && versionOf(known) == versionOf(o) {
		return s, known
	}
	return g.view.With(o), o
}

func versionOf(o *impact.Object) string {
	if o.Content == nil {
		return ""
	}
	return o.Content.GetResourceVersion()
}

// weigh finds what people would see if the object went, after those that went
// of late: a second binding must not count on a first one that is gone.
func (g *Guard) weigh(r *review, s *impact.State) {
	if !r.dry() {
		g.gone.add(r.object.UID, r.at)
	}
	going := g.gone.among(s, r.object.UID, r.at)
	cascade := r.cascade()
	d := impact.Delete(s, append([]*impact.Object{r.object}, going...), cascade)
	report := impact.Examine(s, d)
	r.incomplete = report.Incomplete
	r.consequences = report.Consequences
	if len(going) > 0 {
		r.consequences = causedBy(impact.Delete(s, []*impact.Object{r.object}, cascade), report.Consequences)
	}
	r.warnings = append(r.warnings, lastGrants(s, d, r.object)...)
}

// causedBy are the consequences to which what goes in a deletion adds.
func causedBy(d *impact.Deletion, all []impact.Consequence) []impact.Consequence {
	var own []impact.Consequence
	for _, c := range all {
		for _, o := range c.Objects {
			if _, goes := d.Gone(o); goes {
				own = append(own, c)
				break
			}
		}
	}
	return own
}

func (g *Guard) verdict(r *review, s *impact.State) string {
	harm := len(r.consequences) > 0 && r.consequences[0].Severity >= impact.Breaks
	switch {
	case r.reason != "":
		return overridden
	case !harm:
		return allowed
	case g.enforce && r.guarded(s):
		return denied
	}
	return warned
}

// guarded says that an object is opted in, itself or with its namespace. Of
// others bursts are counted, and nothing is denied.
func (r *review) guarded(s *impact.State) bool {
	if value, own := r.labels[Label]; own {
		return value == LabelOn
	}
	namespace, there := s.Get(impact.Key{GroupResource: impact.Namespaces, Name: r.Namespace})
	return there && namespace.Content != nil && namespace.Content.GetLabels()[Label] == LabelOn
}

func (r *review) dry() bool { return r.DryRun != nil && *r.DryRun }

// cascade is what the request says of the objects that the deleted one owns.
func (r *review) cascade() impact.Cascade {
	var options metav1.DeleteOptions
	if json.Unmarshal(r.Options.Raw, &options) != nil {
		return impact.Background
	}
	policy := options.PropagationPolicy
	switch {
	case policy != nil && *policy == metav1.DeletePropagationOrphan,
		policy == nil && options.OrphanDependents != nil && *options.OrphanDependents:
		return impact.Orphan
	case policy != nil && *policy == metav1.DeletePropagationForeground:
		return impact.Foreground
	}
	return impact.Background
}

func (g *Guard) countBurst(r *review) {
	n := g.bursts.note(r.UserInfo.Username, r.at)
	if n < burstSize {
		return
	}
	if n == burstSize {
		g.metrics.bursts.Inc()
		g.log.Warn("a burst of deletes", "user", r.UserInfo.Username, "deletes", n, "within", burstLength, "last", r.title())
	}
	r.warnings = append(r.warnings, fmt.Sprintf("%d deletes by %s within %s: is the selector the right one?", n, r.UserInfo.Username, burstLength))
}

// title names the object of a request for people.
func (r *review) title() string {
	kind := cmp.Or(r.Kind.Kind, r.Resource.Resource)
	if r.Namespace == "" || r.Resource.Resource == impact.Namespaces.Resource {
		return printable.Line(kind + " " + r.Name)
	}
	return printable.Line(kind + " " + r.Namespace + "/" + r.Name)
}

// answer says it to the API server, and to whoever deletes.
func (g *Guard) answer(r *review) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: r.verdict != denied, AuditAnnotations: r.trace()}
	if r.verdict == denied {
		response.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: r.refusal(),
		}
	}
	response.Warnings = r.say()
	return response
}
