// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

func TestNoRowBeforeTheFirstListsAreComplete(t *testing.T) {
	denied := errors.New("nodes is forbidden")
	service, endpointSlice, node := reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode
	for _, tc := range []struct {
		name   string
		listed []reflector.Kind
		stale  []reflector.Kind
		want   bool
	}{
		{"nothing is listed", nil, nil, false},
		{"Services and the node are, EndpointSlices are not (R33)", []reflector.Kind{service, node}, nil, false},
		{"EndpointSlices and the node are, Services are not (R33)", []reflector.Kind{endpointSlice, node}, nil, false},
		{"the node was not heard of yet", []reflector.Kind{service, endpointSlice}, nil, false},
		{"EndpointSlices cannot be listed: stale is not empty (R31)", []reflector.Kind{service, node}, []reflector.Kind{endpointSlice}, false},
		{"all are", []reflector.Kind{service, endpointSlice, node}, nil, true},
		{"the node cannot be heard of", []reflector.Kind{service, endpointSlice}, []reflector.Kind{node}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tables, err := New()
			if err != nil {
				t.Fatal(err)
			}
			changes, err := tables.Follow()
			if err != nil {
				t.Fatal(err)
			}
			w := &world{Writer: NewWriter(tables, thisNode, model.Options{})}
			for _, k := range tc.listed {
				w.Listed(k)
			}
			for _, k := range tc.stale {
				w.Stale(k, denied)
			}
			w.put(serviceAndSlice()...)
			rows, _, complete, _ := changes.Next()
			if made := len(rows) == 1; made != tc.want || complete != tc.want || tables.Snapshot().Complete() != tc.want {
				t.Errorf("%d rows, the first fill is complete: %v; want it to be %v", len(rows), complete, tc.want)
			}
		})
	}
}

func serviceAndSlice() []any { return []any{service(web), slice(ready("10.0.0.1"))} }

func TestTheFirstFillIsCompleteWithAllItsRows(t *testing.T) {
	const many = 2*fillChunk + 1
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	changes, err := tables.Follow()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(tables, thisNode, model.Options{})
	for i := range many {
		s := service(model.Name{Namespace: "default", Name: fmt.Sprintf("web-%d", i)})
		w.Events([]reflector.Event{{Kind: reflector.KindService, Name: s.Name, Service: s}})
	}
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		w.Listed(k)
	}
	w.Flush()
	rows, _, complete, _ := changes.Next()
	if len(rows) != many || !complete {
		t.Errorf("%d rows of %d, complete: %v", len(rows), many, complete)
	}
	held := 0
	for _, r := range rows {
		if r.Row.Compiled.Claims[0].Shadowed == "" {
			held++
		}
	}
	if held != 1 {
		t.Errorf("%d of the Services that all claim one address hold it (R27)", held)
	}
}

func TestAStaleSourceKeepsItsRows(t *testing.T) {
	w := newWorld(t)
	w.put(serviceAndSlice()...)
	before := w.row(t, web)
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		w.Stale(k, errors.New("the API server is gone"))
	}
	w.Flush()
	if w.row(t, web) != before {
		t.Error("the row is another although nothing was heard (R31)")
	}
	t.Run("and events that still come are taken", func(t *testing.T) {
		w.put(slice())
		if after := w.row(t, web); after.Compiled.Sets[0].Action != model.ActionReject {
			t.Errorf("the row still has action %s", after.Compiled.Sets[0].Action)
		}
	})
	t.Run("and Sources says since when and why", func(t *testing.T) {
		states, _ := w.Sources()
		for _, s := range states {
			if s.Stale == nil || !s.Listed || s.Since.Before(start) {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestSources(t *testing.T) {
	w := newWorld(t)
	w.put(serviceAndSlice()...)
	w.put(named(slice(), "web-s2"), named(slice(), "other"))
	w.remove(reflector.KindEndpointSlice, named(slice(), "web-s2").Name)
	t.Run("counts the objects there are", func(t *testing.T) {
		states, _ := w.Sources()
		var counts []int
		for _, s := range states {
			counts = append(counts, s.Count)
		}
		if !slices.Equal(counts, []int{1, 2, 1}) {
			t.Errorf("%v Services, EndpointSlices and nodes", counts)
		}
	})
	t.Run("dates a state by its beginning, not by its last report (R31)", func(t *testing.T) {
		w.Stale(reflector.KindService, errors.New("refused"))
		first, _ := w.Sources()
		w.version++
		w.Stale(reflector.KindService, errors.New("refused again"))
		second, _ := w.Sources()
		w.Stale(reflector.KindService, nil)
		healed, _ := w.Sources()
		if !first[0].Since.Equal(second[0].Since) || !healed[0].Since.After(second[0].Since) || healed[0].Stale != nil {
			t.Errorf("since %v, then %v, healed %v", first[0].Since, second[0].Since, healed[0].Since)
		}
	})
	t.Run("hands out problems that stay as they are", func(t *testing.T) {
		mine := []reflector.Problem{{Message: "one"}}
		w.Problems(mine)
		mine[0].Message = "another"
		if _, problems := w.Sources(); len(problems) != 1 || problems[0].Message != "one" {
			t.Errorf("%v", problems)
		}
	})
}

func TestRunTakesWhatComes(t *testing.T) {
	tables, err := New()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(tables, thisNode, model.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for k := reflector.KindService; k <= reflector.KindNode; k++ {
		w.Listed(k)
	}
	s := service(web)
	w.Events([]reflector.Event{{Kind: reflector.KindService, Name: web, Service: s}})
	for version := uint64(0); ; {
		if row, ok := tables.Snapshot().Service(web); ok && row.Object == s {
			return
		}
		if version, err = tables.Wait(ctx, version); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAChangeOfTheNodeTouchesThoseItAffects(t *testing.T) {
	at := func(address string, ports ...string) model.Node {
		n := thisNode
		n.Addresses = []netip.Addr{netip.MustParseAddr(address)}
		for _, port := range ports {
			n.Listening = append(n.Listening, model.Listener{AddrPort: addrPort("0.0.0.0:" + port), Protocol: model.TCP})
		}
		return n
	}
	claims := func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")} }
	elsewhere := func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.2")} }
	inZoneB := at("192.0.2.1", "22")
	inZoneB.Zone = "b"
	for _, tc := range []struct {
		name    string
		service *model.Service
		node    model.Node
		touched bool
	}{
		{"a node that did not change touches nothing (R34)", service(web, claims), at("192.0.2.1", "22"), false},
		{"another listener leaves a Service with a ClusterIP alone (R34)", service(web), at("192.0.2.1", "22", "80"), false},
		{"another listener leaves a Service with someone else's address alone (R34)", service(web, elsewhere), at("192.0.2.1", "22", "80"), false},
		{"another listener touches a Service that claims the node's address (R27)", service(web, claims), at("192.0.2.1", "22", "80"), true},
		{"an address that comes touches a Service that claims it (R27)", service(web, elsewhere), at("192.0.2.2", "22"), true},
		{"an address that goes touches a Service that claims it (R27)", service(web, claims), at("192.0.2.3", "22"), true},
		{"another zone touches every Service (R17)", service(web), inZoneB, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.SetNode(at("192.0.2.1", "22"))
			w.put(tc.service)
			before := w.row(t, web)
			w.SetNode(tc.node)
			w.Flush()
			if touched := w.row(t, web) != before; touched != tc.touched {
				t.Errorf("the row was written again: %v", touched)
			}
		})
	}
}

func TestReadersSeeWhatIsFlushedTogetherAtOnce(t *testing.T) {
	w := newWorld(t)
	var told []string
	w.Observe(func(before, after *Service) {
		is := "gone"
		if after != nil {
			is = after.Object.ResourceVersion
		}
		told = append(told, fmt.Sprintf("%v→%s", before != nil, is))
	})
	w.Together(func() {
		w.put(service(web))
		w.put(service(web))
		if n := w.tables.Snapshot().Len(); n != 0 {
			t.Errorf("%d rows are seen before the end", n)
		}
	})
	if row, found := w.tables.Snapshot().Service(web); !found || row.Object.ResourceVersion != "2" {
		t.Errorf("the row is %+v after the end, %v", row, found)
	}
	w.remove(reflector.KindService, web)
	if want := []string{"false→1", "true→2", "true→gone"}; !slices.Equal(told, want) {
		t.Errorf("told were %v, want each row that was written: %v", told, want)
	}
}
