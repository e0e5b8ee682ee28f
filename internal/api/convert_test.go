// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/model"
)

var web = model.Name{Namespace: "default", Name: "web"}

// loadBalancer is a Service with a VIP and an externalIP of one address.
func loadBalancer(protocol model.Protocol) *model.Service {
	vip := netip.MustParseAddr("203.0.113.1")
	return &model.Service{
		Name:                web,
		Type:                model.ServiceLoadBalancer,
		ClusterIPs:          []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		LoadBalancerIngress: []model.LoadBalancerIngress{{Address: vip}},
		ExternalIPs:         []netip.Addr{vip},
		SourceRanges:        []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Ports:               []model.ServicePort{{Name: "http", Protocol: protocol, Port: 80}},
		AffinitySeconds:     60,
	}
}

func podSlice(protocol model.Protocol, endpoints ...model.Endpoint) *model.EndpointSlice {
	return &model.EndpointSlice{
		Name:      model.Name{Namespace: "default", Name: "web-x"},
		Service:   "web",
		Family:    model.IPv4,
		Endpoints: endpoints,
		Ports:     []model.EndpointPort{{Name: "http", Protocol: protocol, Port: 8080}},
	}
}

var (
	readyPod = model.Endpoint{Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}, NodeName: "n1", Ready: true, Serving: true}
	goingPod = model.Endpoint{Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.2")}, NodeName: "n2", Terminating: true}
)

func compile(svc *model.Service, in ...*model.EndpointSlice) model.Compiled {
	return model.Compile(svc, in, &model.Node{Name: "n1"}, &model.Options{})
}

func TestFrontends(t *testing.T) {
	clusterIP := Frontend{
		Address: "10.96.0.1", Port: 80, Protocol: "TCP", Scope: "all", Type: "ClusterIP", Service: "default/web", PortName: "http",
		Action: "forward", AffinitySeconds: 60, SourceRanges: []string{},
		Backends: []Backend{{Address: "10.0.1.1", Port: 8080, State: "active", Local: true, Node: "n1", Slices: []string{"default/web-x"}}},
		Draining: []Backend{{Address: "10.0.1.2", Port: 8080, State: "terminating", Node: "n2", Slices: []string{"default/web-x"}}},
	}
	vip := clusterIP
	vip.Address, vip.Type, vip.SourceRanges = "203.0.113.1", "LoadBalancer", []string{"10.0.0.0/8"}
	none := func(row Frontend, action, reason string) Frontend {
		row.Action, row.Reason, row.Backends, row.Draining = action, reason, []Backend{}, []Backend{}
		return row
	}
	shadowed := none(clusterIP, "shadowed", "held by default/web (LoadBalancer)")
	shadowed.Address, shadowed.Type = "203.0.113.1", "ExternalIP"
	onlySCTP := func(row Frontend) Frontend { row.Protocol = "SCTP"; return row }
	const unsupported = "SCTP sockets do not pass the socket hooks; served once the packet path is"
	const unready = "no endpoint is ready, and none still serves while it terminates (1 known)"
	rejecting := func(row Frontend) Frontend {
		draining := row.Draining
		row = none(row, "reject", unready)
		row.Draining = draining
		return row
	}

	for _, c := range []struct {
		name     string
		compiled model.Compiled
		want     []Frontend
	}{
		{
			"a row lists its backends; one that is shadowed takes no connection (R27)",
			compile(loadBalancer(model.TCP), podSlice(model.TCP, readyPod, goingPod)),
			[]Frontend{clusterIP, vip, shadowed},
		}, {
			"a row that refuses keeps the connections that drain (R9, R13)",
			compile(loadBalancer(model.TCP), podSlice(model.TCP, goingPod)),
			[]Frontend{rejecting(clusterIP), rejecting(vip), shadowed},
		}, {
			"an unsupported row has no backends, for nothing goes there (R28)",
			compile(loadBalancer(model.SCTP), podSlice(model.SCTP, readyPod, goingPod)),
			[]Frontend{
				onlySCTP(none(clusterIP, "unsupported", unsupported)),
				onlySCTP(none(vip, "unsupported", unsupported)),
				onlySCTP(shadowed),
			},
		}, {
			"a Service without claims has no rows, and that is a list", model.Compiled{}, []Frontend{},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Frontends(web, &c.compiled)); diff != "" {
				t.Errorf("rows differ (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("lists are never null, and what only an agent knows is left out", func(t *testing.T) {
		row := NewFrontend(web, model.Claim{Key: model.FrontendKey{Address: netip.MustParseAddr("fd00::1"), Port: 80, Protocol: model.UDP}},
			&model.Set{Action: model.ActionReject, Reason: "none"})
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		const want = `{"address":"fd00::1","port":80,"protocol":"UDP","scope":"all","type":"ClusterIP","service":"default/web","portName":"",` +
			`"action":"reject","reason":"none","affinitySeconds":0,"sourceRanges":[],"backends":[],"draining":[]}`
		if string(text) != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	})
}

func TestSortFrontends(t *testing.T) {
	t.Run("rows are sorted by address bytes, port, then words", func(t *testing.T) {
		want := []Frontend{
			{Address: "0.0.0.0", Port: 30080, Protocol: "TCP"},
			{Address: "::", Port: 30080, Protocol: "TCP"},
			{Address: "9.0.0.1", Port: 80, Protocol: "TCP"},
			{Address: "10.0.0.1", Port: 9, Protocol: "TCP"},
			{Address: "10.0.0.1", Port: 80, Protocol: "SCTP"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "all", Type: "ExternalIP", Service: "b/b"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "external", Type: "ExternalIP", Service: "a/a"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "external", Type: "LoadBalancer", Service: "a/a"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "external", Type: "LoadBalancer", Service: "a/b"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "internal", Type: "ExternalIP", Service: "a/a", PortName: "a"},
			{Address: "10.0.0.1", Port: 80, Protocol: "TCP", Scope: "internal", Type: "ExternalIP", Service: "a/a", PortName: "b"},
			{Address: "10.0.0.1", Port: 80, Protocol: "UDP"},
			{Address: "fd00::1", Port: 80, Protocol: "TCP"},
		}
		for seed := range uint64(20) {
			got := append([]Frontend{}, want...)
			rand.New(rand.NewPCG(seed, 0)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
			SortFrontends(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("order differs (-want +got):\n%s", diff)
			}
		}
	})
}

func TestNewTrace(t *testing.T) {
	compiled := compile(loadBalancer(model.TCP), podSlice(model.TCP, readyPod))
	view := model.View{
		Index: model.NewIndex([]model.Candidate{{Contender: model.Contender{Service: web}, Compiled: compiled}}),
		Node:  &model.Node{Name: "n1"}, Packets: model.AllPackets,
	}
	trace := func(from, to string) Trace {
		return NewTrace(model.Trace(view, model.Flow{From: netip.MustParseAddr(from), To: netip.MustParseAddrPort(to), Protocol: model.TCP}))
	}

	t.Run("a forwarded flow shows its row, its candidates and the steps", func(t *testing.T) {
		got := trace("172.16.0.9", "10.96.0.1:80")
		row := Frontends(web, &compiled)[0]
		steps := got.Steps
		got.Steps = nil
		want := Trace{Verdict: "forward", Frontend: &row, Backends: row.Backends, SNAT: true, Path: "packet"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("trace differs (-want +got):\n%s", diff)
		}
		if len(steps) == 0 || steps[0].Stage != "source" || steps[0].Source == "" {
			t.Errorf("steps are %v", steps)
		}
	})

	t.Run("a flow to no Service has no row, and lists that are not null", func(t *testing.T) {
		got := trace("172.16.0.9", "1.1.1.1:80")
		got.Steps = got.Steps[:0]
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"verdict":"pass","frontend":null,"backends":[],"snat":false,"path":"packet","steps":[]}`; string(text) != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	})
}

func TestHostPort(t *testing.T) {
	for _, c := range []struct{ name, address, want string }{
		{"an IPv4 address and its port", "10.96.0.10", "10.96.0.10:53"},
		{"an IPv6 address stands in brackets", "fd00::10", "[fd00::10]:53"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := HostPort(c.address, 53); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
