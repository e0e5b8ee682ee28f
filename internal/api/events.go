// SPDX-License-Identifier: Apache-2.0

package api

// What an Event tells of.
const (
	EventRefused  = "refused"  // a connection, or a packet
	EventRetained = "retained" // a set goes on with the backends it had before the API emptied it
	EventRestored = "restored" // a set goes on with what the state file remembers
	EventVerified = "verified" // a heartbeat was answered at a backend that is kept
	EventForeign  = "foreign"  // something else answers there: it is kept no longer
	EventEnded    = "ended"    // nothing is kept for the set any more
	EventEndpoint = "endpoint" // the agent talks to the API server elsewhere, or nowhere
)

// Event is one line of `monitor -o json`: a refused connection, or a step that
// somebody should know of. Where none was refused, of the Refusal's fields
// those are filled that say something: the time, the Service port, and the
// reason, which tells the step in words.
type Event struct {
	Event string `json:"event"`
	Refusal
	// Family and Role name the set that a step of a retention is about.
	Family string `json:"family,omitempty"`
	Role   string `json:"role,omitempty"`
}

// Released is the JSON of `release`: what was retained until then.
type Released struct {
	SchemaVersion int         `json:"schemaVersion"`
	Service       string      `json:"service"` // namespace/name
	Retained      []Retention `json:"retained"`
}
