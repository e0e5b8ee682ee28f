// SPDX-License-Identifier: Apache-2.0

// Package judge says how a cluster came through the incident, from what was
// seen of it. It reads and writes what was seen and what was found; it knows
// nothing of how a cluster is run, nor of any proxy.
package judge

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Facts are what was seen while the API servers stopped and started.
type Facts struct {
	Rounds []Round
	// Clients are those that Lines are from: each name with each address that
	// it dials.
	Clients []Client
	Lines   []Line
	// Renewals are the times that kubelets wrote into their leases, by node.
	Renewals map[string][]time.Time
	Unready  []Unready
	Looks    []Look
	// Ill is what the proxies complained of at the end, by node.
	Ill map[string]string
	End time.Time
}

// Round is one API server that stops and comes back. In between, the address
// of all of them is missing for a while.
type Round struct {
	Stopped  string    // the server's name
	Asked    time.Time // to stop
	Emptied  time.Time // default/kubernetes had no endpoint
	Killed   time.Time // the proxies were
	Returned time.Time // the endpoint was back
	Serving  time.Time // the last new proxy had its tables
	Ended    time.Time // the server had
	Ready    time.Time // it was again
}

// window says whether default/kubernetes was empty then.
func (r Round) window(t time.Time) bool { return !t.Before(r.Emptied) && t.Before(r.Returned) }

// goes says whether the server could have closed a connection then because it
// stops.
func (r Round) goes(t time.Time) bool {
	return !t.Before(r.Asked) && t.Before(r.Ended.Add(closingMargin))
}

// closingMargin is for those who learn of an end after the one who waits.
const closingMargin = time.Second

// Client is somebody who asks the API server, by the address that it knows.
type Client struct{ Name, Target string }

// Line is one thing that a client noted.
type Line struct {
	Attempt *Attempt `json:"attempt,omitempty"`
	Watch   *Watch   `json:"watch,omitempty"`
}

// Attempt is a new connection with its first request.
type Attempt struct {
	Client
	Time time.Time     `json:"time"`
	Took time.Duration `json:"took"`
	// Server is the name in the certificate of the one who answered.
	Server string `json:"server"`
	Status int    `json:"status"` // of the answer; 0: there was none
	// Stage is where it failed, if there was no answer.
	Stage Stage  `json:"stage,omitempty"`
	Error string `json:"error,omitempty"`
}

// Stage is a step on the way to an answer.
type Stage string

// The stages, in their order.
const (
	StageDNS     Stage = "dns"
	StageConnect Stage = "connect"
	StageTLS     Stage = "tls"
	StageRequest Stage = "request"
)

// Watch is a watch that has ended. How it was opened is an Attempt.
type Watch struct {
	Client
	Opened time.Time     `json:"opened"`
	Ended  time.Time     `json:"ended"`
	Server string        `json:"server"`
	Events int           `json:"events"`
	Silent time.Duration `json:"silent"`          // the longest time without an event
	Error  string        `json:"error,omitempty"` // "": the server ended it as agreed
}

// Unready is a moment in which a node was not Ready.
type Unready struct {
	Node   string
	Time   time.Time
	Reason string
}

// Look is what one look at the proxy of a node said about the Service
// default/kubernetes.
type Look struct {
	Node string
	Time time.Time
	Saw  Saw
}

// Saw is what a proxy does with connections to a Service.
type Saw string

// What can be seen. The first two say nothing bad of a proxy that was killed.
const (
	SawNobody     Saw = "nobody"     // no proxy answers
	SawNothing    Saw = "nothing"    // it has no row of the Service yet
	SawForwarding Saw = "forwarding" // to endpoints that the API has
	SawUnverified Saw = "unverified" // to endpoints that the API has no more, and that nobody has heard of since
	SawRetained   Saw = "retained"   // to such that have answered a heartbeat
	SawRefusing   Saw = "refusing"   // connections have nowhere to go
)

// ReadLines reads what a client wrote. A last line that it is still writing
// does not count.
func ReadLines(r io.Reader) ([]Line, error) {
	var lines []Line
	for reader := bufio.NewReader(r); ; {
		text, err := reader.ReadBytes('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		if (line.Attempt == nil) == (line.Watch == nil) {
			return nil, fmt.Errorf("line %d is neither of an attempt nor of a watch: %s", len(lines)+1, text)
		}
		lines = append(lines, line)
	}
}
