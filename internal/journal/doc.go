// SPDX-License-Identifier: Apache-2.0

// Package journal keeps what happened to objects of the Kubernetes API in one
// SQLite file: every event with its writer and what it changed, and the times
// that nobody watched. People may query the file themselves: docs/journal.md
// documents its tables and views, which are a contract.
//
// Nothing may enter that knows what an object means, or where events come
// from. Whoever appends has left secrets out before: what comes in is stored.
package journal

import (
	"encoding/json"
	"errors"
	"time"
)

var (
	// ErrForeign is a file that is no journal, be it a SQLite file or not.
	ErrForeign = errors.New("it is not a journal")
	// ErrNewer is a journal of a format that only a later version knows.
	ErrNewer = errors.New("a later version of fairlead wrote it")
	// ErrTorn is a journal of which a part is lost. What can be read of it comes
	// before the error.
	ErrTorn = errors.New("a part of it is lost")
)

// Type says what happened to an object.
type Type string

// The types of events.
const (
	Listed   Type = "listed"   // it was there when watching began
	Added    Type = "added"    // a watch saw it come
	Modified Type = "modified" // it changed
	Deleted  Type = "deleted"  // a watch saw it go
	Absent   Type = "absent"   // a list found it gone; when it went is unknown
)

// Types are all types of events.
func Types() []Type { return []Type{Listed, Added, Modified, Deleted, Absent} }

// Kind names the objects of one resource of the API.
type Kind struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"` // as in URLs: services
	Kind     string `json:"kind"`     // as in manifests: Service
}

// Event is one thing that happened to one object.
type Event struct {
	ID              int64     `json:"id"`   // by order of arrival; Append gives it
	Time            time.Time `json:"time"` // when it was received
	Kind            Kind      `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Type            Type      `json:"type"`
	// Of managedFields: who wrote last, how, and when by its server's clock.
	Manager     string    `json:"manager,omitempty"`
	Operation   string    `json:"operation,omitempty"`
	Subresource string    `json:"subresource,omitempty"`
	ManagedAt   time.Time `json:"managedAt,omitzero"`
	// List is the list that brought it; 0: a watch did, or it is not known.
	List int64 `json:"list,omitempty"`
	// Diff is what changed since the event before it of the same object.
	Diff []Change `json:"diff,omitempty"`
	// Content is the object without managedFields and secrets; of one that is
	// gone, its last state.
	Content json.RawMessage `json:"content,omitempty"`
}

// List is one list of the objects of a kind, by which a watch begins, and of
// which it needs another one after a gap.
type List struct {
	ID        int64 // BeginList gives it
	Kind      Kind
	Namespace string // empty: all of them
	Began     time.Time
	Reason    string // ListStart, or why it had to be asked for again
	// Ended is zero for a list that is not complete: its recorder ended in it. Then
	// what follows is zero as well.
	Ended           time.Time
	ResourceVersion string // what it is of
	Objects         int
	LastEvent       int64 // the last event before it was complete, of any kind
}

// ListStart is the reason of a list with which watching began.
const ListStart = "start"

// Gap is a time that nobody watched a kind.
type Gap struct {
	Kind        Kind      `json:"kind"`
	Began       time.Time `json:"began"`
	Ended       time.Time `json:"ended"`
	Reason      string    `json:"reason"`
	FromVersion string    `json:"fromVersion,omitempty"` // the last resourceVersion seen before
	ToVersion   string    `json:"toVersion,omitempty"`   // the first one seen after
}
