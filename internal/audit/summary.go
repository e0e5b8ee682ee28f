// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// maxCounts bounds the kinds of requests that are counted apart. Those beyond
// are counted together, under no user and no verb.
const maxCounts = 50_000

// Counted is one kind of request.
type Counted struct {
	User      string `json:"user"`
	UserAgent string `json:"userAgent,omitempty"`
	Verb      string `json:"verb"`
	Resource  string `json:"resource"`
}

// Count is how often a kind of request ended, and how.
type Count struct {
	Counted
	Requests int       `json:"requests"`
	Failed   int       `json:"failed"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// Server is what one server's log covers.
type Server struct {
	Name    string    `json:"name"`
	Records int       `json:"records"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Gaps    []Gap     `json:"gaps"`
}

// Gap is a time without any record.
type Gap struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
}

// Summary adds up records. Create it with NewSummary.
type Summary struct {
	gap     time.Duration
	servers map[string]*Server
	counts  map[Counted]*Count
	stages  map[Stage]int
	levels  map[Level]int
	storms  storms
}

// NewSummary returns a summary that calls a silence a gap if it is longer than
// gap.
func NewSummary(gap time.Duration) *Summary {
	return &Summary{
		gap:     gap,
		servers: map[string]*Server{},
		counts:  map[Counted]*Count{},
		stages:  map[Stage]int{},
		levels:  map[Level]int{},
		storms:  newStorms(),
	}
}

// Add takes the next record. Records must come roughly in the order of time.
func (s *Summary) Add(r Record) {
	s.stages[r.Stage]++
	s.levels[r.Level]++
	s.cover(r)
	if !r.Done() {
		return
	}
	s.count(r)
	if r.Writes() && !r.Failed() {
		s.storms.add(r)
	}
}

func (s *Summary) cover(r Record) {
	server := s.servers[r.Server]
	if server == nil {
		server = &Server{Name: r.Server, First: r.Time, Last: r.Time, Gaps: []Gap{}}
		s.servers[r.Server] = server
	}
	server.Records++
	if r.Time.Sub(server.Last) > s.gap {
		server.Gaps = append(server.Gaps, Gap{server.Last, r.Time})
	}
	server.First, server.Last = earlier(server.First, r.Time), later(server.Last, r.Time)
}

func (s *Summary) count(r Record) {
	key := Counted{User: r.User, Verb: r.Verb, Resource: or(r.Resource.String(), "(no resource)")}
	if r.Impersonated != "" {
		key.User += " as " + r.Impersonated
	}
	if r.Writes() {
		key.UserAgent = r.UserAgent
	}
	c := s.counts[key]
	if c == nil && len(s.counts) >= maxCounts {
		key = Counted{Resource: "(others)"}
		c = s.counts[key]
	}
	if c == nil {
		c = &Count{Counted: key, First: r.Time, Last: r.Time}
		s.counts[key] = c
	}
	c.Requests++
	if r.Failed() {
		c.Failed++
	}
	c.First, c.Last = earlier(c.First, r.Time), later(c.Last, r.Time)
}

// Servers returns what each server's log covers, by name.
func (s *Summary) Servers() []Server {
	out := []Server{}
	for _, name := range slices.Sorted(maps.Keys(s.servers)) {
		out = append(out, *s.servers[name])
	}
	return out
}

// Stages returns how many records there are of each stage.
func (s *Summary) Stages() map[Stage]int { return s.stages }

// Levels returns how many records there are of each level.
func (s *Summary) Levels() map[Level]int { return s.levels }

// Requests returns how often each kind of request came, the most frequent first.
// Clients of one user are one.
func (s *Summary) Requests() []Count {
	sums := map[Counted]Count{}
	for key, c := range s.counts {
		key.UserAgent = ""
		sum, ok := sums[key]
		if !ok {
			sum = Count{Counted: key, First: c.First, Last: c.Last}
		}
		sum.Requests += c.Requests
		sum.Failed += c.Failed
		sum.First, sum.Last = earlier(sum.First, c.First), later(sum.Last, c.Last)
		sums[key] = sum
	}
	return sorted(slices.Collect(maps.Values(sums)))
}

// Writers returns who wrote what, with which client, the busiest first.
func (s *Summary) Writers() []Count {
	out := []Count{}
	for key, c := range s.counts {
		if (Record{Verb: key.Verb, Resource: Resource{Resource: key.Resource}}).Writes() && key.Resource != "(no resource)" {
			out = append(out, *c)
		}
	}
	return sorted(out)
}

// Storms returns the storms, the one with most writes first.
func (s *Summary) Storms() []Storm { return s.storms.all() }

func sorted(counts []Count) []Count {
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.User, b.User),
			cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return counts
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
