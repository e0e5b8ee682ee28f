// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// The tests speak of one small world: Service default/web with ClusterIP
// 10.96.0.1 and port http=80/TCP, whose endpoints listen on 8080; this node is
// n1 in zone a.

var (
	web      = model.Name{Namespace: "default", Name: "web"}
	thisNode = model.Node{Name: "n1", Zone: "a"}
	start    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// world is a writer whose clock moves by a second with every event, and whose
// sources have told everything.
type world struct {
	*Writer
	version int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Writer: listed(t, thisNode)}
	w.now = func() time.Time { return start.Add(time.Duration(w.version) * time.Second) }
	w.Flush()
	return w
}

// put tells that objects are there, in one batch. Each gets the next number as
// its resourceVersion.
func (w *world) put(objects ...any) {
	events := make([]reflector.Event, 0, len(objects))
	for _, o := range objects {
		w.version++
		version := fmt.Sprint(w.version)
		switch o := o.(type) {
		case *model.Service:
			o.ResourceVersion = version
			events = append(events, reflector.Event{Kind: reflector.KindService, Name: o.Name, ResourceVersion: version, Service: o})
		case *model.EndpointSlice:
			o.ResourceVersion = version
			events = append(events, reflector.Event{Kind: reflector.KindEndpointSlice, Name: o.Name, ResourceVersion: version, Slice: o})
		}
	}
	w.Events(events)
	w.Flush()
}

func (w *world) remove(k reflector.Kind, name model.Name) {
	w.version++
	w.Events([]reflector.Event{{Kind: k, Name: name, ResourceVersion: fmt.Sprint(w.version)}})
	w.Flush()
}

func (w *world) row(t *testing.T, name model.Name) *Service {
	t.Helper()
	row, ok := w.tables.Snapshot().Service(name)
	if !ok {
		t.Fatalf("%s has no row", name)
	}
	return row
}

// service returns a Service made from default/web by some changes.
func service(name model.Name, changes ...func(*model.Service)) *model.Service {
	s := &model.Service{
		Name: name, CreationTimestamp: start,
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// slice returns the slice default/web-s1 with endpoints made by ready and the like.
func slice(endpoints ...model.Endpoint) *model.EndpointSlice {
	return &model.EndpointSlice{
		Name: model.Name{Namespace: "default", Name: "web-s1"}, Service: "web", Family: model.IPv4,
		Endpoints: endpoints, Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
	}
}

func named(s *model.EndpointSlice, name string) *model.EndpointSlice {
	s.Name.Name = name
	return s
}

func ready(address string) model.Endpoint {
	return model.Endpoint{Addresses: []netip.Addr{netip.MustParseAddr(address)}, NodeName: "n1", Ready: true, Serving: true}
}

func terminating(address string) model.Endpoint {
	e := ready(address)
	e.Ready, e.Terminating = false, true
	return e
}

func onNode(e model.Endpoint, node string) model.Endpoint {
	e.NodeName = node
	return e
}

func inZone(e model.Endpoint, zone string) model.Endpoint {
	e.ZoneHints = []string{zone}
	return e
}

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
