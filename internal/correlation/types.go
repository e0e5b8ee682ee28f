// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// Options say what to join.
type Options struct {
	Journal *journal.Journal
	// Logs are files of audit logs, or folders of them, in any order.
	Logs []string
	// Policy is that of the servers, if it is known.
	Policy *audit.Policy
	// Scope picks the objects and the time that are looked at.
	Scope Scope
	// Silence is how long a log says nothing before that is a gap in it.
	Silence time.Duration
	// Change is called for every change with its request, in the journal's order.
	Change func(Change) error
	// Record is called for every record, in the order of time.
	Record func(audit.Record)
}

// Scope picks events as a journal.Filter does, and records likewise.
type Scope struct {
	Kinds, Namespaces, Names []string
	Since, Until             time.Time
}

// Request is what a record says of a request.
type Request struct {
	Time         time.Time   `json:"time"` // by the server's clock
	Server       string      `json:"server"`
	User         string      `json:"user"`
	Impersonated string      `json:"impersonated,omitempty"`
	UserAgent    string      `json:"userAgent,omitempty"`
	SourceIPs    []string    `json:"sourceIPs"`
	Verb         string      `json:"verb"`
	Resource     string      `json:"resource"`
	Namespace    string      `json:"namespace,omitempty"`
	Name         string      `json:"name,omitempty"`
	Code         int         `json:"code,omitempty"`
	Level        audit.Level `json:"level,omitempty"`
	Stage        audit.Stage `json:"stage,omitempty"`
	AuditID      string      `json:"auditID,omitempty"`
	File         string      `json:"file"`
	Line         int         `json:"line"`
}

// Change is an event with the request that made it.
type Change struct {
	// Event has no content.
	Event   journal.Event `json:"event"`
	Request Request       `json:"request"`
	// Exact says that the versions agree; otherwise it is the request that fits
	// best.
	Exact bool `json:"exact"`
	// DelaySeconds is how long after the request's end the event was received, by
	// clocks that are corrected if they differ by more than a second.
	DelaySeconds float64 `json:"delaySeconds"`
}

// Missing is a change that no record explains.
type Missing struct {
	Event  journal.Event `json:"event"` // without content
	Reason Reason        `json:"reason"`
}

// Unseen is a request that changed something by its record, and of which the
// journal has no event.
type Unseen struct {
	Request Request `json:"request"`
	Reason  Reason  `json:"reason"`
}

// Code names a reason.
type Code string

// The likely reasons for a change without a record.
const (
	// ReasonGap is an event that a list found after a time without a watch.
	ReasonGap Code = "recorder-gap"
	// ReasonPolicy is a rule of the policy that notes nothing of it.
	ReasonPolicy Code = "policy"
	// ReasonStopping is a server that was stopping, whose log is not here or ends
	// too early.
	ReasonStopping Code = "server-stopping"
	// ReasonUncovered is a time that the logs do not cover.
	ReasonUncovered Code = "not-covered"
	// ReasonUnlogged is a resource, or a writer of it, of which the logs hold no
	// write at all.
	ReasonUnlogged Code = "not-logged"
	// ReasonLevel is a record that may be the one, and lacks what would tell.
	ReasonLevel Code = "level"
	// ReasonExpired is an object that goes when its time is over.
	ReasonExpired Code = "expired"
	// ReasonUnknown is that one cannot tell.
	ReasonUnknown Code = "cannot-tell"
)

// The reasons for a request without an event. ReasonGap and ReasonUnknown are
// others.
const (
	// ReasonTorn is a journal of which a part is lost.
	ReasonTorn Code = "journal-torn"
	// ReasonUnchanged is a request that left the object as it was.
	ReasonUnchanged Code = "no-change"
	// ReasonDryRun is a request that only asked what would happen.
	ReasonDryRun Code = "dry-run"
	// ReasonStoresNothing is a request of something that is not stored.
	ReasonStoresNothing Code = "stores-nothing"
	// ReasonOutside is a time, or a namespace, that the journal does not cover.
	ReasonOutside Code = "not-recorded"
)

// Reason is why one of two is missing.
type Reason struct {
	Code     Code     `json:"code"`
	Text     string   `json:"text"`
	Evidence []string `json:"evidence"`
}

// Clock is how a server's clock differs from the recorder's.
type Clock struct {
	Server string `json:"server"`
	// BehindSeconds is how far the server's clock is behind the recorder's. What a
	// watch takes is part of it, some milliseconds.
	BehindSeconds float64 `json:"behindSeconds"`
	// Pairs are how many pairs of one version say so. With none it is an estimate
	// from the times in managedFields, to about a second.
	Pairs int `json:"pairs"`
}

// Behind is how far the server's clock is behind.
func (c Clock) Behind() time.Duration { return time.Duration(c.BehindSeconds * float64(time.Second)) }

// Writer is who wrote what, as the journal and the logs call him.
type Writer struct {
	Manager   string    `json:"manager"`
	User      string    `json:"user"`
	UserAgent string    `json:"userAgent,omitempty"`
	Verb      string    `json:"verb"`
	Resource  string    `json:"resource"`
	Changes   int       `json:"changes"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// Storm is a storm of writes, and what came of it.
type Storm struct {
	audit.Storm
	// Events are the changes that the journal has of the object meanwhile; -1 if
	// it does not record such objects.
	Events int `json:"events"`
}

// Report is what a join found, but for the changes with their records.
type Report struct {
	// From and To are what the journal covers.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Changes are all events that are changes; Explained are those that have a
	// request, Exact those of them whose versions agree.
	Changes   int `json:"changes"`
	Explained int `json:"explained"`
	Exact     int `json:"exact"`
	// Missing are changes without a record. Of each kind and manager the first are
	// here; MissingOmitted counts the others.
	Missing        []Missing `json:"missing"`
	MissingOmitted int       `json:"missingOmitted"`
	// Unseen are records of writes without an event that nothing explains.
	Unseen        []Unseen `json:"unseen"`
	UnseenOmitted int      `json:"unseenOmitted"`
	// Expected counts records of writes that have no event for a good reason.
	Expected map[Code]int `json:"expected"`
	// NotRecorded counts successful writes of resources that the journal has not.
	NotRecorded map[string]int `json:"notRecorded"`
	Clocks      []Clock        `json:"clocks"`
	Writers     []Writer       `json:"writers"`
	Storms      []Storm        `json:"storms"`
	// Summary is what the logs say by themselves, and Losses what was lost of them.
	Summary *audit.Summary `json:"-"`
	Losses  audit.Losses   `json:"-"`
}
