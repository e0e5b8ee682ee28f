// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
)

var apiServer = model.Name{Namespace: "default", Name: "kubernetes"}

// A node starts while no API server answers the agent: what the state file
// remembers of the API server's own Service serves real connections until the
// first lists take over, and none of them fails (R33, R40).
func TestRestoredRowsServe(t *testing.T) {
	const vip, remembered, listed = "10.96.0.1:443", "10.0.0.1:6443", "10.0.0.2:6443"
	ns, cgroup := lab.NewNetNS(t, "node"), lab.NewCgroup(t)
	for _, backend := range []string{remembered, listed} {
		ns.Addr(t, "lo", netip.MustParseAddrPort(backend).Addr().String()+"/32")
		traffic.Listen(t, ns, backend, traffic.TCP, backend)
	}
	client := traffic.StartClient(t, lab.Place{NetNS: ns, Cgroup: cgroup})
	if r := client.Ask(traffic.TCP, vip); r.Error == "" {
		t.Fatalf("%s answers before anything serves it: %v", vip, r)
	}

	filled, inForce := make(chan struct{}), make(chan struct{})
	writer, stop := run(t, datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(t), "fairlead"), Cgroup: cgroup.Path(), HostNetNS: ns.Cookie(t),
		SocketMode: datapath.SocketAll, Node: "n1", Sizes: datapath.DefaultSizes(),
	}, slog.New(slog.DiscardHandler), filled, func(w *tables.Writer, c *reconciler.Config) {
		w.Retain(tables.Retention{Services: []model.Name{apiServer}, Limit: time.Hour})
		w.Remember(tables.Memory{Services: []tables.RememberedService{rememberedServer(vip, remembered)}})
		w.Restore()
		attach := c.Datapath.(*datapath.Datapath).Attach
		c.Restored = func() error {
			defer close(inForce)
			return attach()
		}
	})
	defer stop()
	<-inForce
	if r := client.Ask(traffic.TCP, vip); r.Server != remembered {
		t.Fatalf("what was restored is not in force: %v", r)
	}
	select {
	case <-filled:
		t.Fatal("the fill is over before anything was listed")
	default:
	}

	go func() {
		time.Sleep(50 * time.Millisecond) // amid the connections below
		writer.Events([]reflector.Event{
			{Kind: reflector.KindService, Name: apiServer, Service: kubernetesService(vip)},
			{Kind: reflector.KindEndpointSlice, Name: apiServer, Slice: kubernetesSlice(listed)},
		})
		list(writer)
	}()
	total := traffic.Tally{Servers: map[string]int{}}
	for over := false; !over; {
		select {
		case <-filled:
			over = true
		default:
		}
		tally := client.Many(traffic.TCP, vip, 100)
		for name, n := range tally.Servers {
			total.Servers[name] += n
		}
		if len(tally.Errors) > 0 {
			t.Fatalf("connections failed while the first lists took over: %v", tally.Errors)
		}
	}
	if total.Servers[remembered] == 0 || total.Servers[listed] == 0 {
		t.Errorf("not both served while the first lists took over: %v", total.Servers)
	}
	if r := client.Ask(traffic.TCP, vip); r.Server != listed {
		t.Errorf("the first lists are not in force: %v", r)
	}
}

func kubernetesService(vip string) *model.Service {
	at := netip.MustParseAddrPort(vip)
	return &model.Service{
		Name: apiServer, ClusterIPs: []netip.Addr{at.Addr()},
		Ports: []model.ServicePort{{Name: "https", Protocol: model.TCP, Port: at.Port()}},
	}
}

func kubernetesSlice(backend string) *model.EndpointSlice {
	at := netip.MustParseAddrPort(backend)
	return &model.EndpointSlice{
		Name: apiServer, Service: apiServer.Name, Family: model.IPv4,
		Endpoints: []model.Endpoint{{Addresses: []netip.Addr{at.Addr()}, Ready: true, Serving: true}},
		Ports:     []model.EndpointPort{{Name: "https", Protocol: model.TCP, Port: at.Port()}},
	}
}

// rememberedServer is what the tables of an earlier agent remembered.
func rememberedServer(vip, backend string) tables.RememberedService {
	c := model.Compile(kubernetesService(vip), []*model.EndpointSlice{kubernetesSlice(backend)}, &model.Node{Name: "n1"}, &model.Options{})
	set := c.Sets[0]
	return tables.RememberedService{
		Object: kubernetesService(vip),
		Sets: []tables.RememberedSet{{
			PortName: set.Key.PortName, Protocol: set.Key.Protocol, Family: set.Key.Family, Role: set.Key.Role, Backends: set.Backends,
		}},
	}
}
