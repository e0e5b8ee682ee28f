// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// lease adds an identity lease's event.
func (s *story) lease(after time.Duration, host string, what journal.Type) {
	e := s.event(after, leases, what, "apiserver-"+host, fmt.Sprint(1000+len(s.events)), "kube-apiserver")
	e.Namespace = "kube-system"
	e.Content = json.RawMessage(`{"metadata":{"labels":{"apiserver.kubernetes.io/identity":"kube-apiserver","kubernetes.io/hostname":"` + host + `"}}}`)
}

// renews has a server renew its lease from some time to another.
func (s *story) renews(host string, from, to time.Duration) {
	for at := from; at <= to; at += 10 * second {
		s.lease(at, host, journal.Modified)
	}
}

// empties has an API server take its address out of default/kubernetes.
func (s *story) empties(after time.Duration) {
	e := s.event(after, slicesOf, journal.Modified, "kubernetes", "5000", "kube-apiserver")
	e.Namespace = "default"
	e.Diff = []journal.Change{{Path: "/endpoints", Op: "replace", Old: json.RawMessage(`[{}]`), New: json.RawMessage(`null`)}}
}

// inOrder is the order in which events were received.
func (s *story) inOrder() {
	for i := range s.events {
		for j := i; j > 0 && s.events[j].Time.Before(s.events[j-1].Time); j-- {
			s.events[j], s.events[j-1] = s.events[j-1], s.events[j]
		}
	}
}

// Why the change of a Service, or of default/kubernetes, has no record.
func TestReasons(t *testing.T) {
	change := func(s *story) { s.event(minute, services, journal.Modified, "web", "10", "kubectl") }
	// others are writes of Services and slices that have their records.
	others := func(s *story) {
		for i, kind := range []journal.Kind{services, slicesOf} {
			for j, client := range []string{"kubectl", "kube-apiserver"} {
				name, version := fmt.Sprint("other", i, j), fmt.Sprint(100+10*i+j)
				s.event(0, kind, journal.Modified, name, version, client)
				s.record("cp1.log", line{verb: "update", name: name, version: version, kind: kind, client: client + "/v1"})
			}
		}
	}
	const noted = "- level: Metadata\n"
	cases := []struct {
		name   string
		policy string
		tell   func(*story)
		code   Code
		text   string // a part of the text and the evidence
	}{
		{"a rule notes nothing of it, whoever asks", "rules: [{level: Metadata, users: [ann], verbs: [get]}, {level: None, resources: [{resources: [services]}]}]",
			func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy, "rule 2 of the policy notes nothing of it"},
		{"no rule is about it", "rules: [{level: Metadata, verbs: [get]}]",
			func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy, "no rule of the policy is about it"},
		{"a rule leaves out the stage at which requests end", "rules: [{level: Metadata, omitStages: [ResponseComplete]}]",
			func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy, "rule 1 of the policy leaves out the stage ResponseComplete"},
		{"a rule notes nothing of a user who is known to write so", "rules: [{level: None, users: [ann]}, {level: Metadata}]",
			func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy, "likely rule 1 of the policy notes nothing of it\nupdate of services by ann, who writes as kubectl"},
		{"a rule notes nothing of an API server itself", "rules: [{level: None, users: ['system:apiserver']}, {level: Metadata}]",
			func(s *story) { s.empties(minute); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy, "likely rule 1 of the policy"},
		{"a rule notes nothing of users who may be the one", "rules: [{level: None, userGroups: [ops], users: [zoe]}, {level: Metadata}]",
			func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonPolicy,
			"rule 1 of the policy notes nothing of it, if it is of users zoe in groups ops; the journal does not say who asked"},
		{"a list found it after nobody had watched", "", func(s *story) {
			change(s)
			s.gaps = []journal.Gap{{Kind: services, Began: noon, Ended: noon.Add(minute), Reason: "410 Gone"}}
			s.alive("cp1.log", 0, 2*minute)
		}, ReasonGap, "no watch from 2026-05-04T12:00:00.000Z to 2026-05-04T12:01:00.000Z: 410 Gone"},
		{"the logs hold no write of the resource", "", func(s *story) { change(s); s.alive("cp1.log", 0, 2*minute) },
			ReasonUnlogged, "the logs hold no write of them at all"},
		{"the logs hold no write of the resource by that manager", "", func(s *story) {
			s.event(minute, services, journal.Modified, "web", "10", "helm")
			others(s)
			s.alive("cp1.log", 0, 2*minute)
		}, ReasonUnlogged, "what helm does to services: the logs hold no such write\nthey hold 2 writes of services by others"},
		{"the logs begin later", "", func(s *story) { change(s); s.alive("cp1.log", 80*second, 3*minute) }, ReasonUncovered, "cp1.log begins at 2026-05-04T12:01:20.000Z"},
		{"the logs end before", "", func(s *story) { change(s); others(s) }, ReasonUncovered, "cp1.log ends at 2026-05-04T12:00:00.000Z"},
		{"the log has nothing for a while", "", func(s *story) {
			s.event(2*minute, services, journal.Modified, "web", "10", "kubectl")
			others(s)
			s.alive("cp1.log", 0, second)
			s.alive("cp1.log", 4*minute, 4*minute)
		}, ReasonUncovered, "cp1.log has nothing from 2026-05-04T12:00:00.000Z to 2026-05-04T12:04:00.000Z"},
		{"one of the logs does not cover the time", "", func(s *story) {
			change(s)
			others(s)
			s.alive("cp2.log", 0, 2*minute)
		}, ReasonUncovered, "likely in a part of a log that is not here"},
		{"a server gave its lease up, and its log is not here", "", func(s *story) {
			s.renews("cp1", 0, 50*second)
			s.lease(59*second, "cp1", journal.Deleted)
			s.renews("cp2", second, 3*minute)
			s.empties(minute)
			s.record("cp2.log", line{verb: "update", name: "other", kind: slicesOf, version: "99", client: "kube-apiserver/v1"})
			s.alive("cp2.log", 0, 3*minute)
			s.inOrder()
		}, ReasonStopping, "likely in the log of API server apiserver-cp1 on cp1, which was stopping: that log is not here\na server that stops"},
		{"a server gave its lease up, and its log ends too early", "", func(s *story) {
			s.renews("cp1", 0, 50*second)
			s.lease(59*second, "cp1", journal.Deleted)
			s.empties(minute)
			s.record("cp2.log", line{verb: "update", name: "other", kind: slicesOf, version: "99", client: "kube-apiserver/v1"})
			s.alive("cp1.log", 0, 50*second)
			s.alive("cp2.log", 0, 3*minute)
		}, ReasonStopping, "cp1.log ends at 2026-05-04T12:00:50.000Z"},
		{"a server renewed its lease no more, as one that was killed", "", func(s *story) {
			s.renews("cp1", 0, 50*second)
			s.renews("cp2", second, 3*minute)
			change(s)
			others(s)
			s.logs["cp2.log"], s.logs["cp1.log"] = s.logs["cp1.log"], nil
			delete(s.logs, "cp1.log")
			s.alive("cp2.log", 0, 3*minute)
			s.inOrder()
		}, ReasonStopping, "its lease kube-system/apiserver-cp1 was last renewed at 2026-05-04T12:00:50.000Z"},
		{"a server that started anew took its own old lease away, and another one stopped", "", func(s *story) {
			s.renews("cp0", 0, 55*second)
			s.renews("cp1", 0, 50*second)
			s.lease(58*second, "cp0", journal.Deleted)
			s.lease(58*second+time.Millisecond, "cp0", journal.Added)
			s.lease(59*second, "cp1", journal.Deleted)
			s.empties(minute)
			s.record("cp0.log", line{verb: "update", name: "other", kind: slicesOf, version: "99", client: "kube-apiserver/v1"})
			s.alive("cp0.log", 61*second, 3*minute)
			s.inOrder()
		}, ReasonStopping, "API server apiserver-cp1 on cp1"},
		{"default/kubernetes was emptied, and no lease was recorded", "", func(s *story) {
			s.empties(minute)
			s.record("cp2.log", line{verb: "update", name: "other", kind: slicesOf, version: "99", client: "kube-apiserver/v1"})
			s.alive("cp2.log", 0, 2*minute)
		}, ReasonStopping, "likely in the log of an API server that was stopping, which is not here or ends too early"},
		{"a server that stopped is no reason if its log is here", "", func(s *story) {
			s.renews("cp1", 0, 50*second)
			s.lease(59*second, "cp1", journal.Deleted)
			s.empties(minute)
			s.record("cp1.log", line{verb: "update", name: "other", kind: slicesOf, version: "99", client: "kube-apiserver/v1"})
			s.alive("cp1.log", 0, 2*minute)
		}, ReasonUnknown, "cannot tell"},
		{"a lease that others deleted after an hour is no server that stops", "", func(s *story) {
			s.renews("cp1", -2*time.Hour, -time.Hour)
			s.lease(59*second, "cp1", journal.Deleted)
			change(s)
			others(s)
			s.alive("cp2.log", 0, 2*minute)
			s.alive("cp1.log", second, 2*minute)
			s.inOrder()
		}, ReasonUnknown, "cannot tell"},
		{"servers forget events", "", func(s *story) {
			s.event(minute, apiEvents, journal.Deleted, "web.17", "10", "")
			s.record("cp1.log", line{verb: "create", name: "web.18", kind: apiEvents, code: 201})
			s.alive("cp1.log", 0, 2*minute)
		}, ReasonExpired, "servers forget events without a request"},
		{"a record that may be the one leaves the version out", "", func(s *story) {
			change(s)
			others(s)
			s.record("cp1.log", line{after: 50 * second, verb: "patch", name: "web"})
			s.alive("cp1.log", minute, 2*minute)
		}, ReasonLevel, "patch by ann, 10s before the event"},
		{"nothing explains it", "rules:\n" + noted, func(s *story) { change(s); others(s); s.alive("cp1.log", 0, 2*minute) }, ReasonUnknown,
			"cannot tell: every log covers the time, and none has a request that fits"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &story{}
			s.listed(services, slicesOf)
			c.tell(s)
			a := s.mustRun(t, c.policy)
			var found []Reason
			for _, m := range a.Missing {
				if m.Event.Kind != leases && !strings.HasPrefix(m.Event.Name, "other") {
					found = append(found, m.Reason)
				}
			}
			if len(found) != 1 {
				t.Fatalf("reasons %+v, want one", found)
			}
			all := found[0].Text + "\n" + strings.Join(found[0].Evidence, "\n")
			if found[0].Code != c.code || !strings.Contains(all, c.text) {
				t.Errorf("%s: %s\nwant %s with %q", found[0].Code, all, c.code, c.text)
			}
		})
	}
}

func TestAHostIsNotThatWithOneMoreDigit(t *testing.T) {
	for path, want := range map[string]bool{"/logs/cp1/audit.log": true, "cp1-audit.log": true, "cp10/cp1": true, "cp10.log": false, "xcp1": false, "": false} {
		if got := names(path, "cp1"); got != want {
			t.Errorf("names(%q, cp1) = %v", path, got)
		}
	}
}
