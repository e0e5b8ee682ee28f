// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

var web = model.Name{Namespace: "default", Name: "web"}

// tracingAgent is an agent with one Service and one endpoint, as far as Trace
// needs it. The reconciler's part is played by report.
func tracingAgent(t *testing.T, mode datapath.SocketMode) *Agent {
	t.Helper()
	made, err := tables.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := model.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}
	w := tables.NewWriter(made, node, model.Options{})
	w.Events([]reflector.Event{
		{Kind: reflector.KindService, Name: web, Service: &model.Service{
			Name: web, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
			Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
		}},
		{Kind: reflector.KindEndpointSlice, Name: web, Slice: &model.EndpointSlice{
			Name: web, Service: "web", Family: model.IPv4, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{{Addresses: []netip.Addr{netip.MustParseAddr("10.0.1.1")}, Ready: true, Serving: true}},
		}},
	})
	for _, kind := range []reflector.Kind{reflector.KindService, reflector.KindEndpointSlice, reflector.KindNode} {
		w.Listed(kind)
	}
	w.Flush()
	return &Agent{
		cfg:    Config{SocketMode: mode, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}},
		tables: made, node: &nodeTracker{node: node},
	}
}

// report says that every row was tried, and what became of those of web.
func (a *Agent) report(t *testing.T, failed map[model.FrontendKey]error) {
	t.Helper()
	changes, err := a.tables.Follow()
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	_, revision, _, _ := changes.Next()
	a.tables.Report(tables.Report{
		Revision: revision, Time: time.Now(), Tried: []model.Name{web},
		Failed: map[model.Name]map[model.FrontendKey]error{web: failed},
	})
}

// withDevices gives an agent whose row is done a packet path with devices.
func withDevices(chosen ...chosenDevice) func(*testing.T, *Agent) {
	return func(t *testing.T, a *Agent) {
		a.cfg.PacketPath, a.devices = true, &deviceTracker{chosen: chosen}
		a.report(t, nil)
	}
}

func TestTraceSaysWhatThisAgentDoes(t *testing.T) {
	clusterIP := model.FrontendKey{Address: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: model.TCP}
	done := func(t *testing.T, a *Agent) { a.report(t, nil) }
	for _, c := range []struct {
		name string
		mode datapath.SocketMode
		then func(*testing.T, *Agent)
		flow api.FlowRequest
		want string // the verdict
		last string // the last step
	}{
		{"a row that is done needs no word", datapath.SocketAll, done, api.FlowRequest{From: "10.0.7.7", To: "10.96.0.1:80"},
			"forward", "snat: the source address is kept: it is inside the cluster"},
		{"a row that is pending says so", datapath.SocketAll, func(*testing.T, *Agent) {}, api.FlowRequest{From: "10.0.7.7", To: "10.96.0.1:80"},
			"forward", "kernel: the kernel does not hold this row yet: until it does, what it held before stays in force"},
		{"a row that failed says why", datapath.SocketAll,
			func(t *testing.T, a *Agent) {
				a.report(t, map[model.FrontendKey]error{clusterIP: errors.New("no room")})
			},
			api.FlowRequest{From: "10.0.7.7", To: "10.96.0.1:80"},
			"forward", "kernel: this row could not be written, so the kernel does something else (see `fairlead explain default/web`): no room"},
		{"the socket mode is the agent's: host", datapath.SocketHost, done, api.FlowRequest{From: "10.0.7.7", To: "10.96.0.1:80"},
			"pass", "verdict: nothing translates it: the pod is behind none of --pod-devices, so its packets go untranslated"},
		{"the socket mode is the agent's: off", datapath.SocketOff, done, api.FlowRequest{From: "192.168.0.1", To: "10.96.0.1:80"},
			"pass", "verdict: nothing translates it: no program sees what the node itself sends, so its packets go untranslated"},
		{"the wire is not served", datapath.SocketAll, done, api.FlowRequest{From: "172.16.0.9", To: "10.96.0.1:80"},
			"pass", "verdict: nothing translates it: no device that faces other machines is served (--packet-path, --devices), so its packets go untranslated"},
		{"the wire is served on no device", datapath.SocketAll, withDevices(chosenDevice{Device: datapath.Device{Name: "tunl0"}, skipped: "no Ethernet"},
			chosenDevice{Device: datapath.Device{Name: "kata1", Inside: true}}), api.FlowRequest{From: "172.16.0.9", To: "10.96.0.1:80"},
			"pass", "verdict: nothing translates it: no device that faces other machines is served"},
		{"the wire is served", datapath.SocketAll, withDevices(chosenDevice{Device: datapath.Device{Name: "eth0"}}), api.FlowRequest{From: "172.16.0.9", To: "10.96.0.1:80"},
			"forward", "snat: the source address becomes this node's"},
		{"an address of no Service has no row to be in force", datapath.SocketAll, func(*testing.T, *Agent) {}, api.FlowRequest{From: "10.0.7.7", To: "10.96.0.2:80"},
			"pass", "frontend: no Service has 10.96.0.2:80/TCP, and it is no address of this node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := tracingAgent(t, c.mode)
			c.then(t, a)
			traces, err := a.Trace(t.Context(), []api.FlowRequest{c.flow})
			if err != nil || len(traces) != 1 {
				t.Fatalf("%d traces, %v", len(traces), err)
			}
			steps := traces[0].Steps
			last := steps[len(steps)-1]
			if traces[0].Verdict != c.want || !strings.HasPrefix(last.Stage+": "+last.Fact, c.last) {
				t.Errorf("%s, the last step is %q, want %s, %q", traces[0].Verdict, last, c.want, c.last)
			}
		})
	}
}
