// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Facts is what the agent reads of itself for one scrape.
type Facts struct {
	Sources []Source
	// Problems are objects that cannot be read.
	Problems int

	Services  int
	Frontends map[string]int // by status
	// NoLocalEndpoints counts Service ports by traffic policy and family.
	NoLocalEndpoints map[Policy]int

	LastSynced   time.Time
	LastQueued   time.Time
	LastCompared time.Time
	Repaired     uint64

	Maps       []Map
	EventsLost uint64
	Packets    []api.PacketCount

	HealthChecks       int
	HealthChecksFailed int

	APIServer *api.APIServer // nil where the source is a folder
	Retained  []api.Retention
}

// Source is what is known of one kind of object.
type Source struct {
	Kind              string
	Objects           int
	Synced            bool
	Stale             Stale
	Received, Pending uint64 // events
}

// Stale is since when a kind cannot be followed, which request fails, and why
// in a word. The zero value is of a kind that is followed.
type Stale struct {
	Since                  time.Time
	Reason, Verb, Resource string
}

// Policy is a traffic policy of one family: what kube-proxy counts Service
// ports by.
type Policy struct{ Traffic, Family string }

// Map is the use of one map of the kernel's.
type Map struct {
	Name                      string
	Used, Capacity, Evictions uint64
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// list is every metric that is read off Facts.
var list = slices.Concat(generalFacts, apiServerFacts)

var generalFacts = []metric[Facts]{
	sources("fairlead_changes_total", help("Changes of objects that were heard of", "sync_proxy_rules_endpoint_changes_total", "sync_proxy_rules_service_changes_total"),
		counter, func(s Source) float64 { return float64(s.Received) }),
	sources("fairlead_changes_pending", help("Changes of objects that were heard of and not tried yet", "sync_proxy_rules_endpoint_changes_pending", "sync_proxy_rules_service_changes_pending"),
		gauge, func(s Source) float64 { return float64(s.Pending) }),
	sources("fairlead_source_objects", help("Objects known"), gauge, func(s Source) float64 { return float64(s.Objects) }),
	sources("fairlead_source_synced", help("1 once the first list is complete"), gauge, func(s Source) float64 { return truth(s.Synced) }),
	{
		Name: "fairlead_source_stale", Type: gauge, Labels: []string{"kind", "reason", "verb", "resource"},
		Help: help("1 while the kind cannot be followed, with the request that fails and why in a word; what was known stays in force"),
		Read: func(f Facts, emit func(float64, ...string)) {
			for _, s := range f.Sources {
				emit(truth(!s.Stale.Since.IsZero()), s.Kind, s.Stale.Reason, s.Stale.Verb, s.Stale.Resource)
			}
		},
	},
	{
		Name: "fairlead_source_stale_since_seconds", Type: gauge, Labels: []string{"kind"},
		Help: help("When the kind became stale, in seconds since 1970; left out while it is followed"),
		Read: func(f Facts, emit func(float64, ...string)) {
			for _, s := range f.Sources {
				if !s.Stale.Since.IsZero() {
					emit(seconds(s.Stale.Since), s.Kind)
				}
			}
		},
	},
	value("fairlead_unreadable_objects", help("Objects or files that cannot be read; their last good content stays in force"),
		gauge, func(f Facts) float64 { return float64(f.Problems) }),
	value("fairlead_services", help("Services known, those without frontends included"), gauge, func(f Facts) float64 { return float64(f.Services) }),
	{
		Name: "fairlead_frontends", Help: help("Frontends by status: Done, Pending, or Error for those that could not be written"), Type: gauge, Labels: []string{"status"},
		Read: func(f Facts, emit func(float64, ...string)) {
			for status, n := range f.Frontends {
				emit(float64(n), status)
			}
		},
	},
	{
		Name: "fairlead_no_local_endpoints", Type: gauge, Labels: []string{"traffic_policy", "ip_family"},
		Help: help("Service ports whose traffic policy is Local and that have endpoints on other nodes only", "sync_proxy_rules_no_local_endpoints_total"),
		Read: func(f Facts, emit func(float64, ...string)) {
			for policy, n := range f.NoLocalEndpoints {
				emit(float64(n), policy.Traffic, policy.Family)
			}
		},
	},
	timestamp("fairlead_sync_last_timestamp_seconds", help("When the kernel was last written", "sync_proxy_rules_last_timestamp_seconds"),
		func(f Facts) time.Time { return f.LastSynced }),
	timestamp("fairlead_sync_last_queued_timestamp_seconds", help("When a change was last heard of; if this is much later than the last write, something hangs", "sync_proxy_rules_last_queued_timestamp_seconds"),
		func(f Facts) time.Time { return f.LastQueued }),
	timestamp("fairlead_compared_timestamp_seconds", help("When the kernel's maps were last compared with the tables"),
		func(f Facts) time.Time { return f.LastCompared }),
	value("fairlead_repaired_entries_total", help("Entries of the kernel's maps that someone else had changed"), counter, func(f Facts) float64 { return float64(f.Repaired) }),
	maps("fairlead_map_entries", help("Entries in use of a map in the kernel"), gauge, func(m Map) float64 { return float64(m.Used) }),
	maps("fairlead_map_capacity", help("Entries that a map in the kernel has room for"), gauge, func(m Map) float64 { return float64(m.Capacity) }),
	maps("fairlead_map_evictions_total", help("Entries that a map in the kernel forgot for want of room"), counter, func(m Map) float64 { return float64(m.Evictions) }),
	value("fairlead_refusal_events_lost_total", help("Refused connections that are missing in fairlead_refused_connections_total"), counter, func(f Facts) float64 { return float64(f.EventsLost) }),
	{Name: "fairlead_packets_total", Help: help("Packets on the wire that were neither plainly translated nor refused, by what was the matter"), Type: counter, Labels: []string{"what"}, Read: func(f Facts, emit func(float64, ...string)) {
		for _, p := range f.Packets {
			emit(float64(p.Count), p.What)
		}
	}},
	value("fairlead_health_checks", help("Services whose health-check node port is answered here"), gauge, func(f Facts) float64 { return float64(f.HealthChecks) }),
	value("fairlead_health_checks_failed", help("Services whose health-check node port cannot be listened on everywhere"), gauge, func(f Facts) float64 { return float64(f.HealthChecksFailed) }),
}

func sources(name, help string, kind prometheus.ValueType, read func(Source) float64) metric[Facts] {
	return metric[Facts]{Name: name, Help: help, Type: kind, Labels: []string{"kind"}, Read: func(f Facts, emit func(float64, ...string)) {
		for _, s := range f.Sources {
			emit(read(s), s.Kind)
		}
	}}
}

func maps(name, help string, kind prometheus.ValueType, read func(Map) float64) metric[Facts] {
	return metric[Facts]{Name: name, Help: help, Type: kind, Labels: []string{"map"}, Read: func(f Facts, emit func(float64, ...string)) {
		for _, m := range f.Maps {
			emit(read(m), m.Name)
		}
	}}
}

// timestamp is left out as long as nothing happened.
func timestamp(name, help string, read func(Facts) time.Time) metric[Facts] {
	return metric[Facts]{Name: name, Help: help, Type: gauge, Read: func(f Facts, emit func(float64, ...string)) {
		if at := read(f); !at.IsZero() {
			emit(seconds(at))
		}
	}}
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
