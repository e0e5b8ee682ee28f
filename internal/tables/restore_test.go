// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// remembering is the memory of default/web with backends on nodes, as an agent
// left it when the API had them, or after what then did.
func remembering(t *testing.T, then func(*kept)) Memory {
	t.Helper()
	k := newKept(t, Memory{})
	k.put(service(web), slice(onNode(ready("10.0.0.1"), "n1"), onNode(ready("10.0.0.2"), "n2")))
	if then != nil {
		then(k)
	}
	return throughJSON(t, k.Memory())
}

func TestRetentionOverARestart(t *testing.T) {
	empty := func(k *kept) { k.put(slice()) } // three seconds after the start
	for _, c := range []struct {
		name  string
		left  func(*kept)
		after time.Duration // of the start
		then  func(*testing.T, *kept)
		want  string
	}{
		{"a set that was emptied while no agent ran is kept from when it was noticed (R40)", nil, time.Hour,
			nil, "forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"one that was emptied before is kept, and who answered must answer again",
			func(k *kept) { empty(k); k.judge(VerdictAnswers, one) }, 10 * time.Second,
			nil, "forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"until the limit, counted from when it was emptied", empty, 60 * time.Second,
			nil, "forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"and no longer", empty, 61 * time.Second,
			nil, nothing},
		{"a clock that was turned back prolongs it by no more than the limit from now", empty, -time.Hour,
			func(_ *testing.T, k *kept) { k.pass(57 * time.Second) }, "forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"as it does here", empty, -time.Hour,
			func(_ *testing.T, k *kept) { k.pass(58 * time.Second) }, nothing},
		{"what reached its limit does not begin again",
			func(k *kept) { empty(k); k.pass(time.Minute) }, 2 * time.Minute,
			nil, nothing},
		{"nor does what the operator released",
			func(k *kept) { empty(k); k.release(t) }, 10 * time.Second,
			nil, nothing},
		{"what belongs to something else is not remembered",
			func(k *kept) { empty(k); k.judge(VerdictForeign, one) }, 10 * time.Second,
			nil, "forward 10.0.0.2=unverified"},
		{"nor if the API named it still", func(k *kept) { k.judge(VerdictForeign, one) }, 10 * time.Second,
			nil, "forward 10.0.0.2=unverified"},
		{"a Service that was made anew meanwhile has nothing (R40)", nil, 10 * time.Second,
			func(_ *testing.T, k *kept) { k.put(service(web, takeOldest)) }, nothing},
		{"endpoints that are back are served at once", empty, 10 * time.Second,
			func(_ *testing.T, k *kept) { k.put(slice(ready("10.0.0.7"))) }, "forward 10.0.0.7=active"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := successor(t, remembering(t, c.left), c.after)
			k.put(service(web), slice())
			k.list()
			if c.then != nil {
				c.then(t, k)
			}
			if got := k.outcome(); got != c.want {
				t.Errorf("connections meet %q, want %q after\n%s", got, c.want, strings.Join(k.steps, "\n"))
			}
		})
	}
}

func TestWithoutAFileTheMapsOfAPredecessorAreRemembered(t *testing.T) {
	https := model.SetKey{Service: web, PortName: "http", Protocol: model.TCP, Family: model.IPv4, Role: model.RoleClusterIP}
	other := https
	other.Service.Name = "other"
	pinned := map[model.SetKey][]netip.AddrPort{
		https: {netip.MustParseAddrPort("10.0.0.9:8080"), netip.MustParseAddrPort("[::1]:8080")},
		other: {netip.MustParseAddrPort("10.0.0.8:8080")},
	}
	for _, c := range []struct {
		name   string
		memory Memory
		want   string
	}{
		{"a set that was emptied goes on with what the kernel had (R40)", Memory{}, "forward 10.0.0.9=unverified"},
		{"what a file knows is better", remembering(t, nil), "forward 10.0.0.1=unverified 10.0.0.2=unverified"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := successor(t, c.memory, time.Second)
			k.Adopt(pinned)
			k.put(service(web), slice())
			k.list()
			if got := k.outcome(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestRestore(t *testing.T) {
	listed := func(k *kept) { k.list() }
	for _, c := range []struct {
		name string
		left func(*kept)
		then func(*testing.T, *kept)
		want string
	}{
		{"what the API had last serves before anything is listed, but for the addresses of this node's pods (R33)", nil, nil,
			"forward 10.0.0.2=unverified"},
		{"a backend at an address of the node itself is no pod's (R33)", nil,
			func(_ *testing.T, k *kept) { k.setAddresses("10.0.0.1") },
			"forward 10.0.0.1=unverified 10.0.0.2=unverified"},
		{"it is verified by heartbeats too", nil,
			func(_ *testing.T, k *kept) { k.judge(VerdictAnswers, two) },
			"forward 10.0.0.2=retained"},
		{"and given up if all belong to something else", nil,
			func(_ *testing.T, k *kept) { k.judge(VerdictForeign, two) },
			nothing},
		{"or if the operator says so", nil,
			func(t *testing.T, k *kept) { k.release(t) },
			nothing},
		{"what was known to belong to something else is not restored",
			func(k *kept) { k.judge(VerdictForeign, two) }, nil,
			"no row"},
		{"what was emptied is restored until its limit (R40)",
			func(k *kept) { k.put(slice()) }, func(_ *testing.T, k *kept) { k.pass(52 * time.Second) },
			"forward 10.0.0.2=unverified"},
		{"and no longer",
			func(k *kept) { k.put(slice()) }, func(_ *testing.T, k *kept) { k.pass(53 * time.Second) },
			nothing},
		{"what had ended is not restored",
			func(k *kept) { k.put(slice()); k.pass(time.Minute) }, nil,
			"no row"},
		{"the first lists take over", nil,
			func(_ *testing.T, k *kept) { k.put(service(web), slice(ready("10.0.0.7"))); listed(k) },
			"forward 10.0.0.7=active"},
		{"an empty set of the first lists goes on, still without this node's pods (R40)", nil,
			func(_ *testing.T, k *kept) { k.put(service(web), slice()); listed(k) },
			"forward 10.0.0.2=unverified"},
		{"what has answered before them has answered", nil,
			func(_ *testing.T, k *kept) { k.judge(VerdictAnswers, two); k.put(service(web)); listed(k) },
			"forward 10.0.0.2=retained"},
		{"for the limit from then on", nil,
			func(_ *testing.T, k *kept) {
				k.pass(time.Hour)
				k.put(service(web))
				listed(k)
				k.pass(time.Minute)
			},
			nothing},
		{"a Service that they do not have is gone", nil,
			func(_ *testing.T, k *kept) { listed(k) },
			"no row"},
		{"and so is what was remembered of it", nil,
			func(_ *testing.T, k *kept) { listed(k); k.put(service(web)) },
			nothing},
		{"it comes too late once they are there", nil,
			func(_ *testing.T, k *kept) { listed(k); k.Restore(); k.Flush() },
			"no row"},
		{"while they are not, events wait (R33)", nil,
			func(_ *testing.T, k *kept) { k.put(service(web), slice(ready("10.0.0.7"))) },
			"forward 10.0.0.2=unverified"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := successor(t, remembering(t, c.left), 10*time.Second)
			k.Restore()
			k.Flush()
			if c.then != nil {
				c.then(t, k)
			}
			if got := k.outcome(); got != c.want {
				t.Errorf("connections meet %q, want %q after\n%s", got, c.want, strings.Join(k.steps, "\n"))
			}
		})
	}
}

// What is gone with the first start of a node is not remembered over a second
// start of the agent.
func TestThisNodesPodsAreForgottenOnceItStarted(t *testing.T) {
	k := successor(t, remembering(t, nil), 10*time.Second)
	k.Restore()
	k.Flush()
	next := successor(t, throughJSON(t, k.Memory()), 20*time.Second)
	next.put(service(web), slice())
	next.list()
	if got, want := next.outcome(), "forward 10.0.0.2=unverified"; got != want {
		t.Errorf("connections meet %q, want %q", got, want)
	}
}

func TestAServiceThatWasGoneAtTheStartKeepsNothing(t *testing.T) {
	k := successor(t, remembering(t, nil), 10*time.Second)
	k.list()
	if m := k.Memory(); len(m.Services) != 0 {
		t.Errorf("remembered is %+v", m)
	}
	k.put(service(web))
	if got := k.outcome(); got != nothing {
		t.Errorf("connections meet %q", got)
	}
}

func (k *kept) setAddresses(addresses ...string) {
	node := thisNode
	for _, a := range addresses {
		node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
	}
	k.SetNode(node)
	k.Flush()
}

func TestARestoredRow(t *testing.T) {
	k := successor(t, remembering(t, nil), 10*time.Second)
	if n := k.tables.Snapshot().Len(); n != 0 {
		t.Fatalf("%d rows before anybody asked for them", n)
	}
	k.Restore()
	k.Flush()
	row := k.row(t, web)

	t.Run("says what it is", func(t *testing.T) {
		if !row.Restored || len(row.Slices) != 0 {
			t.Errorf("restored %v, made from %v", row.Restored, row.Slices)
		}
		want := []Transition{{start.Add(10 * time.Second), []Cause{{Other: causeStateFile}}, []string{
			"the Service was first seen",
			"port http (IPv4): the API was not heard of yet; 1 backend is restored from the state file",
		}}}
		if diff := cmp.Diff(want, row.History); diff != "" {
			t.Errorf("its history (-want +got):\n%s", diff)
		}
	})
	t.Run("is not the first fill (R33)", func(t *testing.T) {
		if k.tables.Snapshot().Complete() {
			t.Error("the tables say that the first lists are complete")
		}
	})
	t.Run("is retained without an end of its own", func(t *testing.T) {
		all := k.Retained()
		if len(all) != 1 || !all[0].Restored || !all[0].Until.IsZero() || !all[0].Since.Equal(start.Add(10*time.Second)) {
			t.Errorf("retained is %+v", all)
		}
	})
	t.Run("gives way to the API's in one transition, with causes", func(t *testing.T) {
		k.put(service(web), slice(ready("10.0.0.2")))
		k.list()
		after := k.row(t, web)
		last := after.History[len(after.History)-1]
		causes := []Cause{
			{Kind: reflector.KindService, Name: web, ResourceVersion: "1"},
			{Kind: reflector.KindEndpointSlice, Name: slice().Name, ResourceVersion: "2"},
			{Other: causeFirstList},
		}
		if diff := cmp.Diff(causes, last.Causes); diff != "" {
			t.Errorf("causes (-want +got):\n%s", diff)
		}
		changes := []string{
			"port http (IPv4): the retention ended: the API has endpoints",
			"port http: backend 10.0.0.2:8080: unverified → active",
			"port http: backend 10.0.0.2:8080 is on node n1 now, was on node n2",
		}
		if diff := cmp.Diff(changes, last.Changes); diff != "" {
			t.Errorf("changes (-want +got):\n%s", diff)
		}
		if after.Restored || len(after.History) != 2 || len(k.Retained()) != 0 {
			t.Errorf("restored %v, %d transitions, retained %v", after.Restored, len(after.History), k.Retained())
		}
	})
}

// What is restored competes for addresses like anything else, and what the API
// has beats it where it is older.
func TestARestoredServiceHoldsNothingFromOthersForLong(t *testing.T) {
	k := successor(t, remembering(t, nil), 0)
	k.Restore()
	k.Flush()
	older := model.Name{Namespace: "default", Name: "older"}
	k.put(service(older, takeOldest), service(web), slice(ready("10.0.0.7")))
	k.list()
	if shadowed := k.row(t, web).Compiled.Claims[0].Shadowed; shadowed != older.String() {
		t.Errorf("held by %q, want the older Service", shadowed)
	}
	if shadowed := k.row(t, older).Compiled.Claims[0].Shadowed; shadowed != "" {
		t.Errorf("the older Service is shadowed by %q", shadowed)
	}
}

func TestRetainedAndKeep(t *testing.T) {
	k := newKept(t, Memory{})
	k.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2")))
	k.put(slice())
	k.judge(VerdictAnswers, two)
	row := k.row(t, web)

	t.Run("each set is listed with its time", func(t *testing.T) {
		want := []Retained{{
			Key: row.Compiled.Sets[0].Key, Since: start.Add(3 * time.Second), Until: start.Add(63 * time.Second), Backends: row.Compiled.Sets[0].Backends,
			Unheard: []model.Backend{{AddrPort: addrPort(one), State: model.StateUnverified, Local: true, Node: "n1", Slices: []model.Name{slice().Name}}},
		}}
		if diff := cmp.Diff(want, k.Retained(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("retained (-want +got):\n%s", diff)
		}
	})
	t.Run("those that are left out are still asked for, and come back when they answer", func(t *testing.T) {
		k := newKept(t, Memory{})
		k.put(service(web), slice(ready("10.0.0.1"), ready("10.0.0.2")))
		k.put(slice())
		k.judge(VerdictAnswers, two)
		for _, r := range k.Retained() {
			for _, b := range r.Unheard {
				k.judge(VerdictAnswers, b.AddrPort.String())
			}
		}
		if got, want := k.outcome(), "forward 10.0.0.1=retained 10.0.0.2=retained"; got != want {
			t.Errorf("connections meet %q, want %q", got, want)
		}
		if all := k.Retained(); len(all) != 1 || len(all[0].Unheard) != 0 {
			t.Errorf("retained is %+v", all)
		}
	})
	t.Run("a fresh compile has the same kept as the row", func(t *testing.T) {
		fresh := model.Compile(row.Object, row.Slices, &thisNode, &model.Options{})
		if kept := k.Keep(web, fresh); !kept.Equal(&row.Compiled) {
			t.Errorf("it is\n%+v\nwant\n%+v", kept, row.Compiled)
		}
	})
	t.Run("and nothing, for another Service", func(t *testing.T) {
		fresh := model.Compile(row.Object, row.Slices, &thisNode, &model.Options{})
		if kept := k.Keep(model.Name{Namespace: "default", Name: "web-x"}, fresh); !kept.Equal(&fresh) {
			t.Errorf("it is %+v", kept)
		}
	})
}

func TestRemembered(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(*testing.T, *kept)
		want bool
	}{
		{"an annotation is not worth saving", func(_ *testing.T, k *kept) { k.put(service(web)) }, false},
		{"nor is an update of the slice that says the same", func(_ *testing.T, k *kept) { k.put(slice(ready("10.0.0.1"))) }, false},
		{"nor that a backend answered", func(_ *testing.T, k *kept) { k.judge(VerdictAnswers, one) }, false},
		{"nor what happens to other Services", func(_ *testing.T, k *kept) { k.put(service(model.Name{Namespace: "default", Name: "web-x"})) }, false},
		{"another port is", func(_ *testing.T, k *kept) { k.put(service(web, func(s *model.Service) { s.Ports[0].Port = 81 })) }, true},
		{"another backend is", func(_ *testing.T, k *kept) { k.put(slice(ready("10.0.0.1"), ready("10.0.0.2"))) }, true},
		{"an emptied set is", func(_ *testing.T, k *kept) { k.put(slice()) }, true},
		{"what belongs to something else is", func(_ *testing.T, k *kept) { k.judge(VerdictForeign, one) }, true},
		{"a Service that went is", func(_ *testing.T, k *kept) { k.remove(reflector.KindService, web) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newKept(t, Memory{})
			k.put(service(web), slice(ready("10.0.0.1")))
			<-k.Remembered()
			c.then(t, k)
			select {
			case <-k.Remembered():
				if !c.want {
					t.Errorf("it is said to be worth saving: %+v", k.Memory())
				}
			default:
				if c.want {
					t.Error("nothing is said")
				}
			}
		})
	}
	t.Run("what was read from a file is not worth saving again, and stays what is known before the first lists", func(t *testing.T) {
		m := remembering(t, nil)
		k := successor(t, m, 0)
		k.Flush()
		select {
		case <-k.Remembered():
			t.Error("it is said to be worth saving")
		default:
		}
		if got := k.Memory(); !sameMemory(&m, &got) {
			t.Errorf("the memory is %+v, want %+v", got, m)
		}
	})
}

// A start that corrects what it read must write that down: each further start
// with a clock that is behind would begin the limit anew.
func TestACorrectedMemoryIsWorthSaving(t *testing.T) {
	m := remembering(t, func(k *kept) { k.put(slice()) })
	k := successor(t, m, -time.Hour)
	select {
	case <-k.Remembered():
	default:
		t.Error("a time to come that became now is not said to be worth saving")
	}
	next := successor(t, throughJSON(t, k.Memory()), -time.Hour+50*time.Second)
	next.put(service(web), slice())
	next.list()
	next.pass(7 * time.Second)
	if got, want := next.outcome(), "forward 10.0.0.1=unverified 10.0.0.2=unverified"; got != want {
		t.Errorf("within the limit from the first start connections meet %q, want %q", got, want)
	}
	next.pass(time.Second)
	if got := next.outcome(); got != nothing {
		t.Errorf("a second start has prolonged it: connections meet %q", got)
	}
}

// The node may get its addresses after a row was restored: what others see of
// the retention, and what a file is to remember, is what the row has.
func TestWhatIsRestoredFollowsTheNodesAddresses(t *testing.T) {
	k := successor(t, remembering(t, nil), 10*time.Second)
	k.Restore()
	k.Flush()
	k.setAddresses("10.0.0.1")
	row := k.row(t, web)
	if all := k.Retained(); len(all) != 1 || !slices.Equal(addressesOf(all[0].Backends), addressesOf(row.Compiled.Sets[0].Backends)) {
		t.Errorf("retained is %+v, the row has %+v", all, row.Compiled.Sets[0].Backends)
	}
	if got := addressesOf(k.Memory().Services[0].Sets[0].Backends); !slices.Equal(got, []netip.AddrPort{addrPort(one), addrPort(two)}) {
		t.Errorf("remembered is %v", got)
	}
}

func addressesOf(backends []model.Backend) (all []netip.AddrPort) {
	for _, b := range backends {
		all = append(all, b.AddrPort)
	}
	return all
}

// The limit is reached without any event: Run wakes by itself.
func TestTheLimitNeedsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := listed(t, thisNode)
		w.Retain(Retention{Services: []model.Name{web}, Limit: time.Minute})
		var ended []time.Time
		w.OnRetention(func(e RetentionEvent) {
			if e.What == "ended" {
				ended = append(ended, e.Time)
			}
		})
		k := &world{Writer: w}
		k.put(service(web), slice(ready("10.0.0.1")))
		k.put(slice())
		emptied := time.Now()
		stop := runWriter(t, w)
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(ended) != 1 || ended[0].Sub(emptied) < time.Minute || ended[0].Sub(emptied) > time.Minute+time.Millisecond {
			t.Errorf("emptied at %v, ended at %v", emptied, ended)
		}
		if len(w.Retained()) != 0 || !k.row(t, web).Compiled.Sets[0].Empty() {
			t.Errorf("still retained: %+v", w.Retained())
		}
	})
}

// Nothing of a Service that is not under Retention any more is taken from the
// file, and what is there is sorted.
func TestTheFileOfAnotherList(t *testing.T) {
	m := remembering(t, nil)
	other := m.Services[0]
	object := *other.Object
	object.Name = model.Name{Namespace: "default", Name: "web-x"}
	other.Object = &object
	m.Services = append([]RememberedService{other}, m.Services...)
	k := successor(t, m, 0)
	names := []model.Name{}
	for _, s := range k.Memory().Services {
		names = append(names, s.Object.Name)
	}
	if !slices.Equal(names, []model.Name{web}) {
		t.Errorf("remembered are %v", names)
	}
}
