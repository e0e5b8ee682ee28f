// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// throughJSON is what a file makes of a memory.
func throughJSON(t interface {
	Helper()
	Fatalf(string, ...any)
}, m Memory) Memory {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatalf("write %+v: %v", m, err)
	}
	var read Memory
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	if !sameMemory(&m, &read) {
		t.Fatalf("%s\nis read as\n%+v\nand was\n%+v", text, read, m)
	}
	return read
}

func runWriter(t *testing.T, w *Writer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.Run(ctx)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestWhatMakesNoSenseIsNotRemembered(t *testing.T) {
	object := func(change func(*model.Service)) func(*RememberedService) {
		return func(r *RememberedService) { change(r.Object) }
	}
	set := func(change func(*RememberedSet)) func(*RememberedService) {
		return func(r *RememberedService) { change(&r.Sets[0]) }
	}
	backends := func(list ...string) func(*RememberedService) {
		return set(func(s *RememberedSet) {
			s.Backends = nil
			for _, text := range list {
				s.Backends = append(s.Backends, model.Backend{AddrPort: addrPort(text)})
			}
		})
	}
	many := make([]model.Backend, maxRememberedBackends+1)
	for i := range many {
		many[i].AddrPort = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
	}
	for _, c := range []struct {
		name   string
		change func(*RememberedService)
		want   string
	}{
		{"all is well", func(*RememberedService) {}, "forward 10.0.0.2=unverified"},
		{"no object", func(r *RememberedService) { r.Object = nil }, "no row"},
		{"a type that there is not", object(func(s *model.Service) { s.Type = 200 }), "no row"},
		{"an internal policy that there is not", object(func(s *model.Service) { s.InternalTrafficPolicy = 9 }), "no row"},
		{"an external policy that there is not", object(func(s *model.Service) { s.ExternalTrafficPolicy = 9 }), "no row"},
		{"a selection that there is not", object(func(s *model.Service) { s.HasSelection, s.Selection = true, 9 }), "no row"},
		{"a port of no protocol", object(func(s *model.Service) { s.Ports[0].Protocol = 1 }), "no row"},
		{"no clusterIP that is an address", object(func(s *model.Service) { s.ClusterIPs = []netip.Addr{{}} }), "no row"},
		{"a mapped clusterIP", object(func(s *model.Service) { s.ClusterIPs = []netip.Addr{netip.MustParseAddr("::ffff:10.96.0.1")} }), "no row"},
		{"an externalIP with a zone", object(func(s *model.Service) { s.ExternalIPs = []netip.Addr{netip.MustParseAddr("fe80::1%eth0")} }), "no row"},
		{"a VIP that is no address", object(func(s *model.Service) { s.LoadBalancerIngress = make([]model.LoadBalancerIngress, 1) }), "no row"},
		{"a source range that is none", object(func(s *model.Service) { s.SourceRanges = make([]netip.Prefix, 1) }), "no row"},
		{"more ports than any API server has", object(func(s *model.Service) {
			for range maxRememberedPorts {
				s.Ports = append(s.Ports, s.Ports[0])
			}
		}), "no row"},
		{"a set of a port that the Service has not", set(func(s *RememberedSet) { s.PortName = "other" }), nothing},
		{"a family that there is not", set(func(s *RememberedSet) { s.Family = 5 }), "no row"},
		{"a protocol that there is not", set(func(s *RememberedSet) { s.Protocol = 0 }), "no row"},
		{"a role that there is not", set(func(s *RememberedSet) { s.Role = 77 }), "no row"},
		{"an ending that there is not", set(func(s *RememberedSet) { s.Ended = "?" }), "no row"},
		{"more backends than any API server has", set(func(s *RememberedSet) { s.Backends = many }), "no row"},
		{"no backends", backends(), "no row"},
		{"backends of the other family, and such as nobody may have", backends("[fd00::1]:1", "127.0.0.1:1", "0.0.0.0:1", "224.0.0.1:1", "10.0.0.1:0", "[::ffff:10.0.0.1]:1"), "no row"},
		{"one good among them", backends("[fd00::1]:1", "10.0.0.3:1"), "forward 10.0.0.3=unverified"},
		{"backends out of order, and twice", backends("10.0.0.3:1", "10.0.0.2:1", "10.0.0.3:1"), "forward 10.0.0.2=unverified 10.0.0.3=unverified"},
		{"a state that there is not", set(func(s *RememberedSet) { s.Backends[0].State = 99 }), "forward 10.0.0.2=unverified"},
		{"a set twice", func(r *RememberedService) { r.Sets = append(r.Sets, r.Sets[0]) }, "forward 10.0.0.2=unverified"},
		{"a time to come", set(func(s *RememberedSet) { s.Emptied = start.Add(24 * time.Hour) }), "forward 10.0.0.2=unverified"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := remembering(t, func(k *kept) { k.put(slice(onNode(ready("10.0.0.2"), "n2"))) })
			c.change(&m.Services[0])
			k := successor(t, m, time.Minute)
			k.Restore()
			k.Flush()
			if got := k.outcome(); got != c.want {
				t.Errorf("connections meet %q, want %q", got, c.want)
			}
		})
	}
}

// Whatever a file holds that can be parsed: nothing panics, what is taken from
// it can be written and read again, and the first lists take over.
func FuzzRemember(f *testing.F) {
	f.Add([]byte(`{"services":[{"object":null}]}`))
	f.Add([]byte(`{"services":[{"object":{"Namespace":"default","Name":"web","Type":9,"ClusterIPs":["10.96.0.1"]}}]}`))
	f.Add([]byte(`{"services":[{"object":{"Namespace":"default","Name":"web","Type":2,"ClusterIPs":["10.96.0.1","fd96::1"],"Selection":"maglev","HasSelection":true,
		"ExternalTrafficPolicy":1,"LoadBalancerIngress":[{"Address":"192.0.2.1"}],"SourceRanges":["10.0.0.0/8"],"Ports":[{"Name":"http","Protocol":6,"Port":80,"NodePort":80}]},
		"sets":[{"portName":"http","protocol":6,"family":4,"role":1,"backends":[{"AddrPort":"10.0.0.2:1","State":7,"Node":"n2"}],"emptied":"2026-01-01T00:00:00Z","ended":""},
		{"portName":"http","protocol":6,"family":4,"role":0,"backends":[{"AddrPort":"10.0.0.2:1"}],"emptied":"9999-12-31T23:59:59Z","ended":"limit"}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m Memory
		if json.Unmarshal(text, &m) != nil {
			return
		}
		k := successor(t, m, 0)
		throughJSON(t, k.Memory())
		k.Restore()
		k.Flush()
		_ = k.outcome()
		k.judge(VerdictAnswers, two)
		throughJSON(t, k.Memory())
		k.put(service(web), slice(ready("10.0.0.7")))
		k.list()
		if got := k.outcome(); got != "forward 10.0.0.7=active" {
			t.Errorf("the first lists did not take over: %q", got)
		}
	})
}
