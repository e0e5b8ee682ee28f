// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// Retention is which Services keep the last backends of a set that the API
// empties, and for how long. It is for the API server's own Services: every
// other Service is empty as soon as its objects say so.
type Retention struct {
	Services []model.Name
	Limit    time.Duration // 0: nothing is kept
}

// Memory is what is known of the Services under Retention. It is plain data,
// and outlives the agent in a file.
type Memory struct {
	Services []RememberedService `json:"services"` // sorted by name
}

// RememberedService is one of them, as the API had it last.
type RememberedService struct {
	Object *model.Service  `json:"object"`
	Sets   []RememberedSet `json:"sets"` // sorted by key
}

// RememberedSet is what a backend set had before it became empty, or has.
type RememberedSet struct {
	PortName string         `json:"portName"`
	Protocol model.Protocol `json:"protocol"`
	Family   model.Family   `json:"family"`
	Role     model.Role     `json:"role"`
	// Backends are those that the API had last, without those that were seen to
	// belong to something else since.
	Backends []model.Backend `json:"backends"`
	Emptied  time.Time       `json:"emptied"` // since when the set is empty; zero: it is not
	Ended    Ending          `json:"ended"`   // why nothing is kept although it is empty
}

// Ending is why a retention ended while the set was still empty.
type Ending string

// The endings. A set that gets endpoints again begins anew.
const (
	NotEnded      Ending = ""
	EndedLimit    Ending = "limit"    // its time was over
	EndedReleased Ending = "released" // the operator said so
)

// Verdict is what a heartbeat found at a backend's address.
type Verdict uint8

// The verdicts.
const (
	VerdictSilent  Verdict = iota // nobody answered, which says nothing
	VerdictAnswers                // a server whose certificate is the API server's
	VerdictForeign                // something else: nobody is sent there any more
)

// Retained is a set that forwards to what it had before the API emptied it, or
// to what a file remembers of it.
type Retained struct {
	Key      model.SetKey
	Since    time.Time       // when the set became empty
	Until    time.Time       // when the retention ends at the latest; zero for a restored set
	Restored bool            // from the file, before the API was heard of
	Backends []model.Backend // of state retained or unverified
	// Unheard are those that have not answered while others have. Nobody is sent
	// there unless they do: the others may go in the meantime.
	Unheard []model.Backend
}

// RetentionEvent is a step in a retention, for those who watch.
type RetentionEvent struct {
	Time time.Time
	Key  model.SetKey
	What string // retained | restored | verified | foreign | ended
	Text string // in words: of how many backends, why
}
