// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// kept is a world in which default/web is under retention for a minute, and
// that writes down each step.
type kept struct {
	*world
	later time.Duration // beside what events take
	steps []string
}

func newKept(t *testing.T, memory Memory) *kept {
	t.Helper()
	k := successor(t, memory, 0)
	k.list()
	return k
}

// successor is an agent that starts some time after the start of the world, and
// whose first lists are not complete.
func successor(t *testing.T, memory Memory, after time.Duration) *kept {
	t.Helper()
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{world: &world{Writer: NewWriter(tables, thisNode, model.Options{})}, later: after}
	k.now = func() time.Time { return start.Add(time.Duration(k.version)*time.Second + k.later) }
	k.Retain(Retention{Services: []model.Name{web}, Limit: time.Minute})
	k.Remember(memory)
	k.OnRetention(func(e RetentionEvent) { k.steps = append(k.steps, fmt.Sprintf("%s: %s", e.What, e.Text)) })
	return k
}

func (k *kept) list() {
	for kind := reflector.KindService; kind <= reflector.KindNode; kind++ {
		k.Listed(kind)
	}
	k.Flush()
}

// pass lets time pass, and the writer do what is due.
func (k *kept) pass(d time.Duration) {
	k.later += d
	k.Flush()
}

func (k *kept) judge(v Verdict, backends ...string) {
	verdicts := map[netip.AddrPort]Verdict{}
	for _, b := range backends {
		verdicts[addrPort(b)] = v
	}
	k.Judge(verdicts)
	k.Flush()
}

func (k *kept) release(t *testing.T) {
	t.Helper()
	if err := k.Release(web); err != nil {
		t.Error(err)
	}
	k.Flush()
}

// outcome says what becomes of connections to the frontends of default/web,
// one line each.
func (k *kept) outcome() string {
	row, ok := k.tables.Snapshot().Service(web)
	if !ok {
		return "no row"
	}
	var lines []string
	for _, f := range api.Frontends(row.Name, &row.Compiled) {
		line := f.Action
		for _, b := range f.Backends {
			line += fmt.Sprintf(" %s=%s", b.Address, b.State)
		}
		for _, b := range f.Draining {
			line += fmt.Sprintf(" %s=draining", b.Address)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

const (
	one, two = "10.0.0.1:8080", "10.0.0.2:8080"
	// nothing is what a set without endpoints does.
	nothing = "reject"
)

func TestRetention(t *testing.T) {
	both := func(k *kept) { k.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2"))) }
	for _, c := range []struct {
		name string
		then func(*testing.T, *kept)
		want string
	}{
		{"a set that the API empties goes on with what it had, unverified (R40)",
			func(_ *testing.T, k *kept) { k.put(slice()) },
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"so does one whose slice is deleted (R40)",
			func(_ *testing.T, k *kept) { k.remove(reflector.KindEndpointSlice, slice().Name) },
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"one that keeps an endpoint does not: only empty sets are kept (R40)",
			func(_ *testing.T, k *kept) { k.put(slice(ready("10.0.0.2"))) },
			"forward 10.0.0.2=active"},
		{"the last backends are kept, not those before them",
			func(_ *testing.T, k *kept) { k.put(slice(ready("10.0.0.2"))); k.put(slice()) },
			"forward 10.0.0.2=unverified"},
		{"those that answer a heartbeat are the only ones from then on",
			func(_ *testing.T, k *kept) { k.put(slice()); k.judge(VerdictAnswers, two) },
			"forward 10.0.0.2=retained"},
		{"one that answered before the set was emptied is as unverified as the others",
			func(_ *testing.T, k *kept) { k.judge(VerdictAnswers, two); k.put(slice()) },
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"one that falls silent has answered all the same",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.judge(VerdictAnswers, two)
				k.judge(VerdictSilent, one, two)
			},
			"forward 10.0.0.2=retained"},
		{"nobody is sent to what belongs to something else",
			func(_ *testing.T, k *kept) { k.put(slice()); k.judge(VerdictForeign, one) },
			"forward 10.0.0.2=unverified"},
		{"nor to what was seen to before the set was emptied",
			func(_ *testing.T, k *kept) { k.judge(VerdictForeign, one); k.put(slice()) },
			"forward 10.0.0.2=unverified"},
		{"unless it answered since as it should",
			func(_ *testing.T, k *kept) {
				k.judge(VerdictForeign, one)
				k.judge(VerdictAnswers, one)
				k.put(slice())
			},
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"or the API named it anew",
			func(_ *testing.T, k *kept) {
				k.judge(VerdictForeign, one)
				k.put(slice(ready("10.0.0.2")))
				k.put(slice(ready("10.0.0.1"), ready("10.0.0.2")))
				k.put(slice())
			},
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"while the API names it, it is served whatever a heartbeat found",
			func(_ *testing.T, k *kept) { k.judge(VerdictForeign, one, two) },
			"forward 10.0.0.1=active 10.0.0.2=active"},
		{"if all belong to something else the set is empty",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.judge(VerdictForeign, one, two)
				k.judge(VerdictAnswers, one, two)
			},
			nothing},
		{"or were seen to before",
			func(_ *testing.T, k *kept) { k.judge(VerdictForeign, one, two); k.put(slice()) },
			nothing},
		{"the others are unverified again once the one that answered belongs to something else",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.judge(VerdictAnswers, one)
				k.judge(VerdictForeign, one)
			},
			"forward 10.0.0.2=unverified"},
		{"endpoints that return end it",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.judge(VerdictAnswers, one)
				k.put(slice(ready("10.0.0.3")))
			},
			"forward 10.0.0.3=active"},
		{"a set that is emptied again begins anew",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.judge(VerdictAnswers, one)
				k.pass(50 * time.Second)
				k.put(slice(ready("10.0.0.1"), ready("10.0.0.2")))
				k.put(slice())
				k.pass(50 * time.Second)
			},
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"an update of the slice that leaves it empty prolongs nothing",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.pass(40 * time.Second)
				k.put(slice())
				k.pass(20 * time.Second)
			},
			nothing},
		{"it goes on until its limit",
			func(_ *testing.T, k *kept) { k.put(slice()); k.pass(59 * time.Second) },
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"and ends there, verified or not",
			func(_ *testing.T, k *kept) { k.put(slice()); k.judge(VerdictAnswers, one); k.pass(time.Minute) },
			nothing},
		{"what ended does not begin again before endpoints return",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.pass(time.Minute)
				k.put(slice())
				k.judge(VerdictAnswers, one)
			},
			nothing},
		{"the operator ends it",
			func(t *testing.T, k *kept) { k.put(slice()); k.release(t); k.put(slice()) },
			nothing},
		{"a Service that is deleted keeps nothing",
			func(_ *testing.T, k *kept) { k.put(slice()); k.remove(reflector.KindService, web); k.put(service(web)) },
			nothing},
		{"nor one that is deleted and made anew in one batch",
			func(_ *testing.T, k *kept) { k.put(service(web, takeOldest), slice()) },
			nothing},
		{"nor one of another type",
			func(_ *testing.T, k *kept) {
				k.put(service(web, func(s *model.Service) { s.Type = model.ServiceNodePort }), slice())
			},
			nothing},
		{"nor one that is left to another proxy (R1)",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.put(service(web, func(s *model.Service) { s.HasProxyName, s.ProxyName = true, "other" }))
				k.put(service(web))
			},
			nothing},
		{"a port of another name has nothing to keep",
			func(_ *testing.T, k *kept) {
				k.put(slice())
				k.put(service(web, func(s *model.Service) { s.Ports[0].Name = "https" }))
			},
			nothing},
		{"a policy that leaves this node without an endpoint is obeyed (R10)",
			func(_ *testing.T, k *kept) {
				k.put(service(web, func(s *model.Service) { s.InternalTrafficPolicy = model.PolicyLocal }), slice(onNode(ready("10.0.0.1"), "n2")))
			},
			"drop"},
		{"and nothing is kept of what was before it (R10)",
			func(_ *testing.T, k *kept) {
				k.put(service(web, func(s *model.Service) { s.InternalTrafficPolicy = model.PolicyLocal }), slice(onNode(ready("10.0.0.1"), "n2")))
				k.put(slice())
			},
			nothing},
		{"a backend that drains takes connections again, others go on draining",
			func(_ *testing.T, k *kept) {
				leaving := terminating("10.0.0.1")
				leaving.Serving = false
				other := terminating("10.0.0.3")
				other.Serving = false
				k.put(slice(leaving, other))
			},
			"forward 10.0.0.1=unverified 10.0.0.2=unverified 10.0.0.3=draining"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKept(t, Memory{})
			both(k)
			c.then(t, k)
			if got := k.outcome(); got != c.want {
				t.Errorf("connections meet %q, want %q after\n%s", got, c.want, strings.Join(k.steps, "\n"))
			}
		})
	}
}

// Somebody may turn the wall clock while an agent runs. Only the monotonic
// reading, which a time loses as soon as it is rounded or moved to UTC, does not
// go with it.
func TestTheLimitIsKeptByAClockThatNobodyTurns(t *testing.T) {
	emptied := func(memory Memory) *kept {
		k := successor(t, Memory{}, 0)
		k.now = time.Now
		k.Remember(memory)
		k.put(service(web), slice())
		k.list()
		return k
	}
	remembered := func() Memory {
		k := newKept(t, Memory{})
		k.put(service(web), slice(ready("10.0.0.1")))
		m := k.Memory()
		for i := range m.Services[0].Sets {
			m.Services[0].Sets[i].Emptied = time.Now().Round(0)
		}
		return m
	}
	for name, k := range map[string]*kept{
		"of a set that is emptied": func() *kept {
			k := emptied(Memory{})
			k.put(slice(ready("10.0.0.1")))
			k.put(slice())
			return k
		}(),
		"of one that a predecessor saw emptied": emptied(remembered()),
	} {
		t.Run(name, func(t *testing.T) {
			all := k.Retained()
			if len(all) == 0 {
				t.Fatal("nothing is retained")
			}
			for _, r := range all {
				if r.Until == r.Until.Round(0) {
					t.Errorf("%s is kept until %s, which has no monotonic reading", r.Key, r.Until)
				}
			}
		})
	}
}

func TestNothingIsKeptForOthers(t *testing.T) {
	other := model.Name{Namespace: "default", Name: "web-x"}
	endpoints := func(all ...model.Endpoint) *model.EndpointSlice {
		s := named(slice(all...), "web-x-s1")
		s.Service = other.Name
		return s
	}
	k := newKept(t, Memory{})
	k.put(service(web), slice(ready("10.0.0.1")), service(other, func(s *model.Service) { s.ClusterIPs[0] = s.ClusterIPs[0].Next() }), endpoints(ready("10.0.0.1")))
	before := k.row(t, other)
	k.put(slice())
	if !sameCompiled(before, k.row(t, other)) {
		t.Error("a retention has changed the row of another Service")
	}
	k.put(endpoints())
	if set := k.row(t, other).Compiled.Sets[0]; !set.Empty() {
		t.Errorf("a Service that is not under retention does not empty at once: %+v", set)
	}
	if err := k.Release(other); err == nil || !strings.Contains(err.Error(), "release default/web-x: nothing is retained") {
		t.Errorf("releasing it says %v", err)
	}
}

func TestRetentionIsTold(t *testing.T) {
	k := newKept(t, Memory{})
	k.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2")))
	k.put(slice())
	k.judge(VerdictForeign, one)
	k.judge(VerdictAnswers, two)
	k.pass(time.Minute)

	t.Run("in the history, with causes", func(t *testing.T) {
		var got []string
		for _, transition := range k.row(t, web).History[1:] {
			for _, c := range transition.Causes {
				got = append(got, strings.TrimSpace(fmt.Sprintf("because of %s%s", c.Other, strings.TrimPrefix(c.Name.String(), "/"))))
			}
			got = append(got, transition.Changes...)
		}
		want := []string{
			"because of default/web-s1",
			"port http (IPv4): its set is empty in the API; 2 backends are retained until 2026-01-01T00:01:03Z",
			"port http: backend 10.0.0.1:8080: active → unverified",
			"port http: backend 10.0.0.2:8080: active → unverified",
			"because of a heartbeat",
			"port http (IPv4): backend 10.0.0.1:8080 belongs to something else: dropped",
			"port http: backend 10.0.0.1:8080 went (was unverified)",
			"because of a heartbeat",
			"port http (IPv4): backend 10.0.0.2:8080 answered: retained",
			"port http: backend 10.0.0.2:8080: unverified → retained",
			"because of the time limit of a retention",
			"port http (IPv4): the retention ended: the limit of 1m0s is reached",
			"port http (cluster-ip, IPv4): forward → reject (no EndpointSlice holds an endpoint for this port)",
			"port http: backend 10.0.0.2:8080 went (was retained)",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the history (-want +got):\n%s", diff)
		}
	})
	t.Run("step by step", func(t *testing.T) {
		want := []string{
			"retained: its set is empty in the API; 2 backends are retained until 2026-01-01T00:01:03Z",
			"foreign: backend 10.0.0.1:8080 belongs to something else: dropped",
			"verified: backend 10.0.0.2:8080 answered: retained",
			"ended: the retention ended: the limit of 1m0s is reached",
		}
		if diff := cmp.Diff(want, k.steps); diff != "" {
			t.Errorf("the steps (-want +got):\n%s", diff)
		}
	})
}

func TestTheFirstFillBeginsWithWhatIsUnderRetention(t *testing.T) {
	k := successor(t, Memory{}, 0)
	changes, err := k.tables.Follow()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "m"} {
		k.put(service(model.Name{Namespace: "default", Name: name}))
	}
	k.put(service(web))
	k.list()
	first, _, _, _ := changes.Next()
	if len(first) != 3 || first[0].Row.Name != web {
		t.Errorf("%d rows, the first %s", len(first), first[0].Row.Name)
	}
}
