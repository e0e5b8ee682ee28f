// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// The states of an APIEndpoint.
const (
	EndpointUntried = "untried"
	EndpointAnswers = "answers"
	EndpointUnready = "unready" // answers, and says that it is not ready: starting or stopping
	EndpointSilent  = "silent"  // refused, timed out, reset
	EndpointForeign = "foreign" // something else answers there: its certificate is not the API server's
)

// APIServer is the agent's own way to the API server, past every Service.
type APIServer struct {
	// Current is the URL of the endpoint in use; "" while none has answered.
	Current   string        `json:"current"`
	Since     time.Time     `json:"since"`     // when Current became so
	Answered  time.Time     `json:"answered"`  // the last heartbeat that was answered; zero for none
	Endpoints []APIEndpoint `json:"endpoints"` // as they would be tried
	// StateFile remembers them over restarts; "" for none.
	StateFile      string `json:"stateFile"`
	StateFileError string `json:"stateFileError"`
}

// APIEndpoint is one address at which the API server is, or was.
type APIEndpoint struct {
	URL     string    `json:"url"`
	Sources []string  `json:"sources"` // flag | kubeconfig | pod | slices | file | kernel
	State   string    `json:"state"`
	Since   time.Time `json:"since"` // when State last changed
	Error   string    `json:"error"`
}

// Retention is a backend set that goes on with the backends it had before the
// API emptied it, or with those that the state file remembers.
type Retention struct {
	Service  string    `json:"service"` // namespace/name
	PortName string    `json:"portName"`
	Protocol string    `json:"protocol"`
	Family   string    `json:"family"`
	Role     string    `json:"role"`
	Since    time.Time `json:"since"`
	// Until is when it ends at the latest; null for a restored one that was not
	// empty when it was remembered, which ends when the API is heard of.
	Until    *time.Time `json:"until"`
	Restored bool       `json:"restored"`
	Backends []Backend  `json:"backends"` // of state retained or unverified
}
