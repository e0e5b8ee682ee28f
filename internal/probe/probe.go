// SPDX-License-Identifier: Apache-2.0

// Package probe tries connections from several places of a node, and finds by
// their differences which layer answers them.
//
// It opens sockets and says what came of it. What a Service should do may not
// enter, nor how to ask a cluster: Services come as plain addresses. Nothing is
// sent but what opens a connection, a request without credentials and a question
// for a name.
package probe

import (
	"encoding/json"
	"fmt"
	"time"
)

// Outcome is what came of a connection.
type Outcome string

// The outcomes. NotPermitted to Reset are errors of the kernel's, which tell
// apart who said no.
const (
	OK              Outcome = "ok"
	NotPermitted    Outcome = "not-permitted"    // EPERM, EACCES: a program or a rule on this node
	Refused         Outcome = "refused"          // ECONNREFUSED
	HostUnreachable Outcome = "host-unreachable" // EHOSTUNREACH
	NetUnreachable  Outcome = "net-unreachable"  // ENETUNREACH, or EINVAL of a blackhole
	Reset           Outcome = "reset"            // ECONNRESET, after the handshake
	Timeout         Outcome = "timeout"          // nobody said anything
	BadAnswer       Outcome = "bad-answer"       // somebody answered, and not what was asked for
	Failed          Outcome = "failed"           // it could not be tried
)

// Purpose is what an address is for, and with it what is asked of it.
type Purpose string

// The purposes. An address of a Service is followed by the one of those behind
// it, which are tried without any Service.
const (
	APIService Purpose = "api-service" // GET /readyz over TLS
	APIDirect  Purpose = "api-direct"
	DNSService Purpose = "dns-service" // a question over UDP
	DNSDirect  Purpose = "dns-direct"
	DNSLocal   Purpose = "dns-local" // a cache on the node
	Frontend   Purpose = "frontend"  // a connection that is closed at once
	Backend    Purpose = "backend"
	Gateway    Purpose = "gateway" // whoever says anything, be it a refusal, was reached
	Peer       Purpose = "peer"
)

// Direct is the purpose of those behind an address of this one; "" if it is no
// Service's.
func (p Purpose) Direct() Purpose {
	return map[Purpose]Purpose{APIService: APIDirect, DNSService: DNSDirect, Frontend: Backend}[p]
}

// Step is how far a connection got.
type Step string

// The steps. What the call itself says was decided before a packet left, in
// StepConnect by programs on the cgroup, by a security module or by routing.
const (
	StepConnect   Step = "connect"   // the call itself said no
	StepHandshake Step = "handshake" // a packet was sent, and what came back said no, or nothing did
	StepSend      Step = "send"      // the call that sends said no
	StepAnswer    Step = "answer"    // there was a connection, and no good answer over it
)

// Layer is who answered.
type Layer string

// The layers. LayerService is said where socket and packet cannot be told
// apart, but both the backends and the way to them are known to be well.
const (
	LayerSocket  Layer = "socket"  // programs on the cgroup
	LayerPacket  Layer = "packet"  // rules and programs on packets on this node
	LayerService Layer = "service" // one of these two
	LayerBackend Layer = "backend" // who listens at the address, or nobody there
	LayerNetwork Layer = "network" // between this place and the address
	LayerUnknown Layer = "cannot tell"
)

// The places. A pod is FromPod and NAMESPACE/NAME.
const (
	FromPod     = "pod "
	FromHost    = "host"    // the host's network, where the data plane's programs see it
	FromOutside = "outside" // the same, where they do not
	FromExempt  = "exempt"  // the same as host, and the socket is marked as the agent's own
)

// Result is one target from one place, and what the difference to other places
// tells.
type Result struct {
	Purpose Purpose   `json:"purpose"`
	Target  string    `json:"target"`       // ADDR:PORT/PROTO
	Service string    `json:"service"`      // NAMESPACE/NAME; "" if it is none's
	From    string    `json:"from"`         // host | outside | exempt | pod NAMESPACE/NAME | namespace PATH
	Time    time.Time `json:"time"`         // when it began
	Millis  int64     `json:"milliseconds"` // how long it took
	Outcome Outcome   `json:"outcome"`      //
	Step    Step      `json:"step"`         // at which it failed; "" if it worked
	Errno   string    `json:"errno"`        // such as EPERM; "" if there was none
	Error   string    `json:"error"`        // in the kernel's words; "" if it worked
	ICMP    string    `json:"icmp"`         // the notice that came back, such as "port unreachable"
	Sender  string    `json:"sender"`       // who sent it
	Route   string    `json:"route"`        // "ok" or an error, where the routing table was asked
	Answer  string    `json:"answer"`       // what came back, shortened
	Layer   Layer     `json:"layer"`        // who answered; "" if it worked
	Because []string  `json:"because"`      // the differences by which that is known
}

// Works says whether the target answered as it should.
func (r *Result) Works() bool { return r.Outcome == OK }

// Fails says whether it was tried and did not work.
func (r *Result) Fails() bool { return r.Outcome != OK && r.Outcome != Failed }

// Parse reads what was written as a JSON array of results.
func Parse(text []byte) ([]Result, error) {
	var results []Result
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("read the results of a probe: %w", err)
	}
	for i, r := range results {
		if r.Purpose == "" || r.Target == "" || r.From == "" || r.Outcome == "" {
			return nil, fmt.Errorf("read the results of a probe: number %d has no purpose, target, place or outcome", i+1)
		}
	}
	return results, nil
}
