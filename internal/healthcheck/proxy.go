// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"encoding/json"
	"net/http"
	"time"
)

// PendingLimit is how long a change may wait to be written before the proxy is
// not healthy any more: twice the interval at which kube-proxy syncs.
const PendingLimit = time.Minute

// Signs are what health follows from.
type Signs struct {
	// Filled says that the first lists are in force.
	Filled bool
	// Listed is when the first lists were complete; zero if they are not.
	Listed time.Time
	// Pending is when the oldest change came that was not tried yet; zero if
	// there is none.
	Pending time.Time
	// LastUpdated is when the kernel was last written.
	LastUpdated time.Time
	// NodeEligible is false when load balancers shall leave the node alone:
	// it is being deleted, or is about to be (R30).
	NodeEligible bool
	// Stale are the kinds of object that cannot be followed at present. What
	// was known stays in force, so this is no reason to be unhealthy (R31).
	Stale []Stale
}

// Stale is a kind of object that cannot be followed.
type Stale struct {
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`  // in a word
	Missing string    `json:"missing,omitempty"` // permission, such as "list services"
}

// Healthy says that what the API asks for is what the kernel does.
func (s Signs) Healthy(now time.Time) bool { return s.Filled && s.Live(now) }

// Live says that a restart would not help. An agent that waits for its first
// lists is as well as another one would be: what was pinned is in force.
func (s Signs) Live(now time.Time) bool {
	stuck := !s.Filled && late(s.Listed, now)
	return !stuck && !late(s.Pending, now)
}

func late(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= PendingLimit }

// answer is the body of /healthz and /livez.
type answer struct {
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	Healthy      bool      `json:"healthy"`
	NodeEligible *bool     `json:"nodeEligible,omitempty"` // /healthz only
	Stale        []Stale   `json:"stale,omitempty"`
}

// The paths of a proxy's own health.
const (
	HealthzPath = "/healthz"
	LivezPath   = "/livez"
)

// NewHandler serves /healthz and /livez (R30). Each answer is counted by its
// path and status.
func NewHandler(read func() Signs, count func(path string, status int)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(HealthzPath, func(w http.ResponseWriter, _ *http.Request) {
		signs, now := read(), time.Now().UTC()
		healthy := signs.Healthy(now)
		a := answer{CurrentTime: now, Healthy: healthy, NodeEligible: &signs.NodeEligible}
		count(HealthzPath, a.write(w, signs, healthy && signs.NodeEligible))
	})
	mux.HandleFunc(LivezPath, func(w http.ResponseWriter, _ *http.Request) {
		signs, now := read(), time.Now().UTC()
		a := answer{CurrentTime: now, Healthy: signs.Live(now)}
		count(LivezPath, a.write(w, signs, a.Healthy))
	})
	return mux
}

// write answers, and returns the status. A proxy that is well is up to date as
// of now, as kube-proxy's answer has it.
func (a answer) write(w http.ResponseWriter, signs Signs, well bool) int {
	a.LastUpdated, a.Stale = signs.LastUpdated.UTC(), signs.Stale
	if well {
		a.LastUpdated = a.CurrentTime
	}
	return respond(w, well, a)
}

// respond writes a body of JSON with status 200 or 503, which it returns.
func respond(w http.ResponseWriter, well bool, body any) int {
	status := http.StatusOK
	if !well {
		status = http.StatusServiceUnavailable
	}
	text, err := json.Marshal(body)
	if err != nil {
		// Plain fields of plain types are always written.
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A caller that has gone needs no answer.
	_, _ = w.Write(append(text, '\n'))
	return status
}
