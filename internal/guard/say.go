// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/printable"
)

const (
	// longestWarning is what API servers pass on of a warning.
	longestWarning = 256
	// longestMessage keeps a refusal to what people read.
	longestMessage = 600
	mostTold       = 5
)

// say is what whoever deletes reads as warnings.
func (r *review) say() []string {
	var out []string
	if r.verdict == overridden {
		out = append(out, fmt.Sprintf("%s goes anyway, as its annotation says: %s", r.title(), r.reason))
	}
	// Of a refusal the message has the first one.
	told := 0
	for i, c := range r.consequences {
		if c.Severity < impact.Breaks || told == mostTold {
			break
		}
		if i > 0 || r.verdict != denied {
			out = append(out, c.Severity.String()+": "+c.Title)
		}
		told++
	}
	if left := r.harms() - told; left > 0 {
		out = append(out, fmt.Sprintf("and %d more: fairlead preflight delete tells them", left))
	}
	out = append(out, r.warnings...)
	if r.harms() == 0 && r.takesOthers() {
		out = append(out, r.incomplete[:min(len(r.incomplete), mostTold)]...)
	}
	for i := range out {
		out[i] = shortened("fairlead guard: "+printable.Line(out[i]), longestWarning)
	}
	return out
}

// harms is how many consequences break something.
func (r *review) harms() (n int) {
	for _, c := range r.consequences {
		if c.Severity >= impact.Breaks {
			n++
		}
	}
	return n
}

// takesOthers says that the object is of a kind with which others go that the
// guard may not see, so that a silence about them would be misread.
func (r *review) takesOthers() bool {
	if r.object == nil {
		return false
	}
	gr := r.object.Resource.GroupResource()
	return gr == impact.Definitions || gr == impact.Namespaces
}

// refusal is the message of a refused delete: why, and how to go on.
func (r *review) refusal() string {
	why := r.consequences[0].Severity.String() + ": " + printable.Line(r.consequences[0].Title)
	if more := r.harms() - 1; more > 0 {
		why += fmt.Sprintf(" (and %d more)", more)
	}
	words := []string{"kubectl", "annotate", strings.ToLower(r.Kind.Kind), r.Name}
	if r.object.Namespace != "" {
		words = append(words, "-n", r.object.Namespace)
	}
	return shortened(why, longestMessage) + "; to delete it anyway, say why: " + printable.Command(append(words, Override+"=REASON")...)
}

// shortened cuts between letters.
func shortened(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	return string(letters[:most-1]) + "…"
}

// trace is what the API server's audit log keeps of the answer.
func (r *review) trace() map[string]string {
	notes := map[string]string{"verdict": r.verdict}
	if r.reason != "" {
		notes["reason"] = printable.Line(r.reason)
	}
	if len(r.consequences) > 0 {
		notes["severity"] = r.consequences[0].Severity.String()
		notes["consequence"] = printable.Line(r.consequences[0].Title)
	}
	if r.verdict == unjudged && len(r.warnings) > 0 {
		notes["why"] = printable.Line(r.warnings[len(r.warnings)-1])
	}
	if len(r.incomplete) > 0 {
		notes["not-known"] = printable.Line(strings.Join(r.incomplete, "; "))
	}
	return notes
}

// tell counts and logs an answer. Of what is allowed only what somebody should
// look at later is logged.
func (g *Guard) tell(r *review) {
	g.metrics.reviews.WithLabelValues(r.verdict).Inc()
	g.metrics.duration.Observe(time.Since(r.at).Seconds())
	level := slog.LevelInfo
	switch r.verdict {
	case allowed, controller:
		level = slog.LevelDebug
	case overridden, unjudged:
		level = slog.LevelWarn
	}
	attributes := []any{"user", r.UserInfo.Username, "object", r.title(), "resource", r.Resource.Resource, "dryRun", r.dry(), "request", r.UID}
	for key, value := range r.trace() {
		attributes = append(attributes, key, value)
	}
	g.log.Log(context.Background(), level, "delete", attributes...)
}
