// SPDX-License-Identifier: Apache-2.0

package impl

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/adapter/iptables"
	"github.com/fairlead-io/fairlead/internal/adapter/nftables"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
)

// adapters is where the parsers have their testdata.
const adapters = "../../internal/adapter"

// TestKubeProxy has the real kube-proxy serve the objects in each of its modes.
func TestKubeProxy(t *testing.T) {
	t.Run("iptables", func(t *testing.T) {
		p := newProxied(t, "iptables")
		p.check(t, iptables.Parse, "iptables/testdata/kube-proxy-v1.35.4-ipv4.txt", "10.244.2.8", "iptables-save")
		p.check(t, iptables.Parse, "iptables/testdata/kube-proxy-v1.35.4-ipv6.txt", "fd00:10:244:2::3", "ip6tables-save")
	})
	t.Run("nftables", func(t *testing.T) {
		p := newProxied(t, "nftables")
		p.check(t, nftables.Parse, "nftables/testdata/kube-proxy-v1.35.4-ipv4.txt", "10.244.2.8", "nft", "-j", "list", "table", "ip", "kube-proxy")
		p.check(t, nftables.Parse, "nftables/testdata/kube-proxy-v1.35.4-ipv6.txt", "fd00:10:244:2::3", "nft", "-j", "list", "table", "ip6", "kube-proxy")
	})
}

// check records a dump, keeps it if asked to, and compares what it says with
// what the objects ask for.
func (p *proxied) check(t *testing.T, parse func(io.Reader) adapter.Dump, file, endpoint string, command ...string) {
	t.Helper()
	text := p.record(t, endpoint, command...)
	if *update {
		if err := os.WriteFile(filepath.Join(adapters, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := parse(strings.NewReader(text))
	if d.Silent != "" || len(d.Problems) > 0 || len(d.Frontends) == 0 {
		t.Errorf("%v: silent %q, problems %v, %d frontends", command, d.Silent, d.Problems, len(d.Frontends))
	}
	for _, f := range p.differences(t, d) {
		t.Errorf("%v: %s: %s", command, f.Service, f.Text)
	}
	// A comparison that finds nothing must be one that could: each frontend
	// without its backends, and each that is left out, is a difference.
	for i := range d.Frontends {
		if len(d.Frontends[i].Backends) == 0 {
			continue
		}
		robbed := d
		robbed.Frontends = slices.Clone(d.Frontends)
		robbed.Frontends[i].Backends = nil
		if len(p.differences(t, robbed)) == 0 {
			t.Errorf("%v: nobody misses the backends of %+v", command, d.Frontends[i])
		}
		fe := d.Frontends[i]
		robbed.Frontends = slices.DeleteFunc(slices.Clone(d.Frontends), func(o adapter.Frontend) bool { return o.Address == fe.Address && o.Protocol == fe.Protocol })
		if len(p.differences(t, robbed)) == 0 {
			t.Errorf("%v: nobody misses %+v", command, fe)
		}
	}
}

// differences holds a dump against the objects that the API server has.
func (p *proxied) differences(t *testing.T, d adapter.Dump) []replay.Finding {
	t.Helper()
	if p.events == nil {
		p.events = p.list(t)
	}
	at := p.events[0].Time.Add(time.Minute)
	c := compare.New(compare.Options{Lag: time.Second, Moments: []compare.Moment{{Time: at, Place: d.Source, Read: func() adapter.Dump { return d }}}})
	engine, err := replay.New(replay.Options{Node: model.Node{Name: "node"}, NodeRecorded: true, Observe: c.Step})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	for _, e := range p.events {
		engine.Apply(e)
	}
	engine.Flush()
	if problems := engine.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return c.Finish()
}

// list asks the API server for all that rows are made of, as a recorder does.
func (p *proxied) list(t *testing.T) []journal.Event {
	t.Helper()
	var events []journal.Event
	for _, kind := range []journal.Kind{
		{Version: "v1", Resource: "services", Kind: "Service"},
		{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"},
		{Version: "v1", Resource: "nodes", Kind: "Node"},
	} {
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal([]byte(p.Kubectl("get", kind.Resource, "--all-namespaces", "--output=json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			var object struct {
				Metadata struct{ Namespace, Name, UID, ResourceVersion string }
			}
			if err := json.Unmarshal(item, &object); err != nil {
				t.Fatal(err)
			}
			m := object.Metadata
			events = append(events, journal.Event{
				ID: int64(len(events) + 1), Time: time.Unix(1_800_000_000, 0), Kind: kind, Type: journal.Listed,
				Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Content: item,
			})
		}
	}
	return events
}
