// SPDX-License-Identifier: Apache-2.0

// Package timeline makes one HTML file of what happened in a cluster: how many
// backends Services had, who wrote what, when nobody watched, what audit logs
// say, and what was found wrong. Its README.md says how the page is used.
//
// It gets plain data and draws it. Nothing may enter that reads journals or audit
// logs, or that judges what they hold. The page loads nothing: it opens from a
// disk, years later, on a machine without a network.
package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// Data is what a timeline shows, and its JSON, which is a contract. Lists may
// be in any order; in the JSON they are never null.
type Data struct {
	SchemaVersion int    `json:"schemaVersion"` // WriteJSON fills it in
	Title         string `json:"title"`
	Source        string `json:"source"` // of what it was made, for people
	// Span is the time that was asked for; if it is zero, the page shows all. What
	// lasts longer than it is cut off; what happened beyond is shown.
	Span     Span      `json:"span"`
	Notes    []string  `json:"notes"` // what a reader must know of the data
	Services []Service `json:"services"`
	Events   []Event   `json:"events"`
	Gaps     []Gap     `json:"gaps"`
	Marks    []Mark    `json:"marks"`
	Findings []Finding `json:"findings"`
}

// Span is a time with a beginning and an end.
type Span struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Service is how many backends a Service had.
type Service struct {
	Name string `json:"name"` // namespace/name
	// Series may begin before the span, with what was in force when that began.
	Series []Point `json:"series"`
}

// Point is what a Service had from a moment on, until its next point.
type Point struct {
	Time time.Time `json:"time"`
	// Gone says that there was no such Service.
	Gone     bool `json:"gone,omitempty"`
	Backends int  `json:"backends"`
	// Retained are those that it goes on with although the API has none.
	Retained int `json:"retained,omitempty"`
}

// Event is one thing that happened to one object.
type Event struct {
	ID              int64            `json:"id"`
	Time            time.Time        `json:"time"`
	Kind            string           `json:"kind"`
	Namespace       string           `json:"namespace,omitempty"`
	Name            string           `json:"name"`
	Type            string           `json:"type"` // one of journal.Types
	Manager         string           `json:"manager,omitempty"`
	ResourceVersion string           `json:"resourceVersion,omitempty"`
	Diff            []journal.Change `json:"diff,omitempty"`
}

// Gap is a time that nobody watched a kind.
type Gap struct {
	Kind   string    `json:"kind"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Reason string    `json:"reason"`
}

// Mark is a request that an audit log notes.
type Mark struct {
	Time   time.Time `json:"time"`
	User   string    `json:"user"`
	Verb   string    `json:"verb"`
	What   string    `json:"what"`   // EndpointSlice default/kubernetes
	Server string    `json:"server"` // whose log it is
	Event  int64     `json:"event,omitempty"`
}

// Finding is something wrong.
type Finding struct {
	Time     time.Time `json:"time"`
	Cleared  time.Time `json:"cleared,omitzero"` // when it was over, if it was
	Severity Severity  `json:"severity"`
	// Invariant is what does not hold, by a name that stays the same.
	Invariant string `json:"invariant,omitempty"`
	Text      string `json:"text"`              // what broke, in one clause
	Detail    string `json:"detail,omitempty"`  // what more there is to say of it
	Event     int64  `json:"event,omitempty"`   // that brought it about
	Service   string `json:"service,omitempty"` // namespace/name
}

// Severity says how much a finding matters.
type Severity string

const (
	// Alarm is what takes a Service's clients down.
	Alarm Severity = "alarm"
	// Warning is what somebody should look into.
	Warning Severity = "warning"
)

// WriteJSON writes the data as JSON, for programs.
func WriteJSON(w io.Writer, d Data) error {
	d.SchemaVersion = api.SchemaVersion
	d.Notes, d.Services, d.Events = list(d.Notes), list(d.Services), list(d.Events)
	d.Gaps, d.Marks, d.Findings = list(d.Gaps), list(d.Marks), list(d.Findings)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return fmt.Errorf("write the timeline's data: %w", err)
	}
	return nil
}

// list is a list that is never null.
func list[T any](values []T) []T {
	if values == nil {
		return []T{}
	}
	return values
}
