// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/adapter/ipvs"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/replay"
)

var (
	services  = journal.Kind{Version: "v1", Resource: "services", Kind: "Service"}
	endpoints = journal.Kind{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"}
)

// at is a moment of every story: seconds after its beginning.
func at(seconds float64) time.Time {
	return time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// story is a journal in the making.
type story []journal.Event

func (s *story) add(seconds float64, kind journal.Kind, name, manager string, typ journal.Type, content any) {
	text, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	id := int64(len(*s) + 1)
	*s = append(*s, journal.Event{
		ID: id, Time: at(seconds), Kind: kind, Namespace: "shop", Name: name, Type: typ, Manager: manager, ResourceVersion: fmt.Sprint(100 + id), Content: text,
	})
}

type fields = map[string]any

// service is shop/NAME at 10.96.0.N:80, with what the spec adds.
func (s *story) service(seconds float64, name, clusterIP string, spec fields) {
	all := fields{"clusterIP": clusterIP, "clusterIPs": []string{clusterIP}, "ports": []fields{{"name": "http", "port": 80, "protocol": "TCP"}}}
	for key, value := range spec {
		all[key] = value
	}
	s.add(seconds, services, name, "kubectl", typeAt(seconds), fields{"apiVersion": "v1", "kind": "Service", "metadata": fields{"name": name, "namespace": "shop"}, "spec": all})
}

// slice gives a Service its endpoints at port 8080: addresses, those that begin
// with "far " on another node.
func (s *story) slice(seconds float64, service string, all ...string) {
	var list []fields
	for _, text := range all {
		address, far := strings.CutPrefix(text, "far ")
		node := "n1"
		if far {
			node = "n2"
		}
		list = append(list, fields{"addresses": []string{address}, "nodeName": node, "conditions": fields{"ready": true}})
	}
	s.add(seconds, endpoints, service+"-x", "controller", typeAt(seconds), fields{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  fields{"name": service + "-x", "namespace": "shop", "labels": fields{"kubernetes.io/service-name": service}},
		"ports":     []fields{{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": list,
	})
}

func typeAt(seconds float64) journal.Type {
	if seconds == 0 {
		return journal.Listed
	}
	return journal.Modified
}

// dump is a moment at which something was printed.
func dump(seconds float64, parse func(string) adapter.Dump, text string) Moment {
	return Moment{Time: at(seconds), Place: "rec.txt", Read: func() adapter.Dump { return parse(text) }}
}

func save(text string) adapter.Dump   { return ipvs.ParseSave(strings.NewReader(text)) }
func lbList(text string) adapter.Dump { return cilium.ParseLBList(strings.NewReader(text)) }
func frontends(text string) adapter.Dump {
	return cilium.ParseFrontends(aligned("Address|Type|ServiceName|PortName|Backends\n" + text))
}
func backends(text string) adapter.Dump {
	return cilium.ParseBackends(aligned("Service|Address|Source|State|PortNames\n" + text))
}

// aligned lays a table out as the shell of Cilium does.
func aligned(text string) *bytes.Buffer {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 5, 0, 3, ' ', 0)
	fmt.Fprint(w, strings.ReplaceAll(text, "|", "\t"))
	w.Flush()
	return &b
}

func run(t *testing.T, s story, o Options) *Comparison {
	t.Helper()
	if o.Lag == 0 {
		o.Lag = 5 * time.Second
	}
	c := New(o)
	engine, err := replay.New(replay.Options{Node: model.Node{Name: "n1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, Observe: c.Step})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	for _, e := range s {
		engine.Apply(e)
	}
	engine.Flush()
	if problems := engine.Problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return c
}

// told is a line per finding, without what the journal has meanwhile.
func told(c *Comparison) string {
	var b strings.Builder
	for _, f := range c.Finish() {
		fmt.Fprintf(&b, "%v %s: %s (event %d)", f.Time.Sub(at(0)), f.Service, f.Text, f.Event)
		if !f.Cleared.IsZero() {
			fmt.Fprintf(&b, " until %v", f.Cleared.Sub(at(0)))
		}
		b.WriteByte('\n')
	}
	for _, w := range c.Warnings() {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

// shop is a Service with two endpoints, and one with another.
func shop() story {
	var s story
	s.service(0, "web", "10.96.0.1", nil)
	s.service(0, "api", "10.96.0.2", nil)
	s.slice(0, "web", "10.244.1.1", "far 10.244.2.1")
	s.slice(0, "api", "10.244.1.2")
	return s
}

const (
	web     = "-A -t 10.96.0.1:80 -s rr\n"
	web1    = "-a -t 10.96.0.1:80 -r 10.244.1.1:8080 -m -w 1\n"
	web2    = "-a -t 10.96.0.1:80 -r 10.244.2.1:8080 -m -w 1\n"
	api     = "-A -t 10.96.0.2:80 -s rr\n"
	api1    = "-a -t 10.96.0.2:80 -r 10.244.1.2:8080 -m -w 1\n"
	healthy = web + web1 + web2 + api + api1
)

func TestDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		story   func() story
		moments []Moment
		want    string
	}{
		"a dump that is as the objects ask for": {shop, []Moment{dump(10, save, healthy)}, ""},
		"an address that is not served": {shop, []Moment{dump(10, save, web+web1+web2)},
			"10s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP is not served, where the objects give 10.244.1.2:8080 (event 4)\n"},
		"an address without backends": {shop, []Moment{dump(10, save, web+web1+web2+api)},
			"10s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP has no backends, where the objects give 10.244.1.2:8080 (event 4)\n"},
		"a backend of weight 0 is none": {shop, []Moment{dump(10, save, web+web1+web2+api+strings.Replace(api1, "-w 1", "-w 0", 1))},
			"10s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP has no backends, where the objects give 10.244.1.2:8080 (event 4)\n"},
		"a backend that is missing among others": {shop, []Moment{dump(10, save, web+web1+api+api1)},
			"10s shop/web: ipvsadm -Sn: 10.96.0.1:80/TCP lacks 10.244.2.1:8080 (event 3)\n"},
		"another Service's backend": {shop, []Moment{dump(10, save, healthy+"-a -t 10.96.0.2:80 -r 10.244.2.1:8080 -m -w 1\n")},
			"10s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP leads to 10.244.2.1:8080, which the objects give to shop/web only (event 4)\n"},
		"a backend that went, and by which event": {func() story {
			s := shop()
			s.slice(20, "web", "10.244.1.1")
			return s
		}, []Moment{dump(10, save, healthy), dump(30, save, healthy)},
			"30s shop/web: ipvsadm -Sn: 10.96.0.1:80/TCP leads to 10.244.2.1:8080, which the objects do not give to it since event 5 (EndpointSlice shop/web-x by controller, 2026-11-20T10:00:20.000Z) (event 5)\n"},
		"an address that nobody has any more": {func() story {
			s := shop()
			s.add(20, services, "api", "kubectl", journal.Deleted, fields{})
			return s
		}, []Moment{dump(30, save, healthy)},
			"30s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP leads to 10.244.1.2:8080, where the objects have no such address (event 5)\n"},
		"an endpoint that internalTrafficPolicy Local does not give to this node (R10)": {func() story {
			var s story
			s.service(0, "web", "10.96.0.1", fields{"internalTrafficPolicy": "Local"})
			s.slice(0, "web", "10.244.1.1", "far 10.244.2.1")
			return s
		}, []Moment{dump(10, save, web+web1+web2)},
			"10s shop/web: ipvsadm -Sn: 10.96.0.1:80/TCP leads to 10.244.2.1:8080, endpoints that policy or hints do not give to this node (event 2)\n"},
		"a finding lasts from the first dump to one that is right again": {shop,
			[]Moment{dump(10, save, healthy), dump(12, save, web+web1+web2+api), dump(14, save, web+web1+web2+api), dump(16, save, healthy)},
			"12s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP has no backends, where the objects give 10.244.1.2:8080 (event 4) until 16s\n"},
		"within the lag either state will do, of each backend": {func() story {
			s := shop()
			s.slice(20, "web", "10.244.1.1")
			s.slice(21, "web", "10.244.1.1", "10.244.1.3")
			return s
		}, []Moment{dump(22, save, healthy), dump(24.9, save, web+web1+api+api1), dump(25.5, save, web+web1+web2+api+api1)},
			"25.5s shop/web: ipvsadm -Sn: 10.96.0.1:80/TCP leads to 10.244.2.1:8080, which the objects do not give to it since event 5 (EndpointSlice shop/web-x by controller, 2026-11-20T10:00:20.000Z) (event 6)\n"},
		"a Service that is new, and one that is just gone": {func() story {
			s := shop()
			s.service(20, "new", "10.96.0.3", nil)
			s.slice(20, "new", "10.244.1.9")
			s.add(21, services, "api", "kubectl", journal.Deleted, fields{})
			return s
		}, []Moment{dump(22, save, healthy)}, ""},
		"NodePorts stand for addresses of the node (R24)": {func() story {
			var s story
			s.service(0, "web", "10.96.0.1", fields{"type": "NodePort", "ports": []fields{{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}}})
			s.slice(0, "web", "10.244.1.1")
			return s
		}, []Moment{
			dump(10, save, web+web1+"-A -t 192.0.2.1:30080 -s rr\n-a -t 192.0.2.1:30080 -r 10.244.1.1:8080 -m -w 1\n"),
			dump(11, save, web+web1+"-A -t 192.0.2.1:30080 -s rr\n"),
			dump(12, save, web+web1),
		}, "11s shop/web: ipvsadm -Sn: 192.0.2.1:30080/TCP has no backends, where the objects give 10.244.1.1:8080 (event 2) until 12s\n" +
			"12s shop/web: ipvsadm -Sn: 0.0.0.0:30080/TCP is not served, where the objects give 10.244.1.1:8080 (event 2)\n"},
		"externalTrafficPolicy Local parts inside from outside (R11, R12)": {func() story {
			var s story
			s.service(0, "web", "10.96.0.1", fields{"externalIPs": []string{"198.51.100.1"}, "externalTrafficPolicy": "Local", "type": "NodePort"})
			s.slice(0, "web", "10.244.1.1", "far 10.244.2.1")
			return s
		}, []Moment{dump(10, frontends, "10.96.0.1:80/TCP|ClusterIP|shop/web|http|10.244.1.1:8080/TCP, 10.244.2.1:8080/TCP\n"+
			"198.51.100.1:80/TCP|ExternalIPs|shop/web|http|10.244.1.1:8080/TCP, 10.244.2.1:8080/TCP\n"+
			"198.51.100.1:80/TCP/i|ExternalIPs|shop/web|http|10.244.1.1:8080/TCP\n")},
			"10s shop/web: cilium db/show frontends: 198.51.100.1:80/TCP lacks 10.244.2.1:8080 (event 2)\n" +
				"10s shop/web: cilium db/show frontends: 198.51.100.1:80/TCP leads to 10.244.2.1:8080, endpoints that policy or hints do not give to this node (event 2)\n"},
		"of a dump with lines that cannot be read, no backend is called missing either, but a wrong one is wrong": {shop,
			[]Moment{dump(10, save, web+web1+api+strings.Replace(api1, "1.2:8080", "9.9:8080", 1)+"-a -t 10.96.0.1:80 -r garbage\n")},
			"10s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP leads to 10.244.9.9:8080, which the objects do not give to it (event 4)\n" +
				"warning: rec.txt, ipvsadm -Sn, line 5: \"garbage\" is no ADDRESS:PORT\n"},
		"of a dump with lines that cannot be read, nothing is called missing": {shop, []Moment{dump(10, save, web+web1+web2+"garbage\n")},
			"warning: rec.txt, ipvsadm -Sn, line 4: \"garbage\" is no command of ipvsadm\n"},
		"a cell that only counts some of the backends": {shop, []Moment{dump(10, frontends,
			"10.96.0.1:80/TCP|ClusterIP|shop/web|http|10.244.1.1:8080/TCP + 1 more ...\n"+
				"10.96.0.2:80/TCP|ClusterIP|shop/api|http|10.244.1.2:8080/TCP + 0 more ...\n")}, ""},
		"host ports and redirects are no Services": {shop, []Moment{dump(10, frontends,
			"10.96.0.1:80/TCP|LocalRedirect|shop/x:local|http|10.244.1.9:8080/TCP\n"+
				"10.96.0.2:80/TCP|ClusterIP|shop/api|http|10.244.1.2:8080/TCP\n"+
				"0.0.0.0:4444/TCP|HostPort|shop/y:host|http|10.244.1.9:8080/TCP\n")}, ""},
		"another proxy's Service (R1)": {func() story {
			s := shop()
			s.add(0, services, "other", "kubectl", journal.Listed, fields{"apiVersion": "v1", "kind": "Service",
				"metadata": fields{"name": "other", "namespace": "shop", "labels": fields{"service.kubernetes.io/service-proxy-name": "other"}},
				"spec":     fields{"clusterIP": "10.96.0.9", "clusterIPs": []string{"10.96.0.9"}, "ports": []fields{{"port": 80}}}})
			return s
		}, []Moment{dump(10, save, healthy+"-A -t 10.96.0.9:80 -s rr\n-a -t 10.96.0.9:80 -r 10.244.1.9:80 -m -w 1\n")}, ""},
		"Cilium before 1.17 tells no protocol": {shop, []Moment{dump(10, lbList, "SERVICE ADDRESS      BACKEND ADDRESS (REVNAT_ID) (SLOT)\n"+
			"10.96.0.1:80 (0)     0.0.0.0:0 (1) (0) [ClusterIP, non-routable]\n10.96.0.1:80 (1)     10.244.1.1:8080 (1) (1)\n10.96.0.1:80 (2)     10.244.2.1:8080 (1) (2)\n"+
			"10.96.0.2:80 (0)     0.0.0.0:0 (2) (0) [ClusterIP, non-routable]\n")},
			"10s shop/api: cilium bpf lb list: 10.96.0.2:80/TCP has no backends, where the objects give 10.244.1.2:8080 (event 4)\n"},
		"Cilium that leaves NodePorts to kube-proxy": {func() story {
			var s story
			s.service(0, "web", "10.96.0.1", fields{"type": "NodePort", "ports": []fields{{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}}})
			s.slice(0, "web", "10.244.1.1")
			return s
		}, []Moment{dump(10, frontends, "10.96.0.1:80/TCP|ClusterIP|shop/web|http|10.244.1.1:8080/TCP\n")},
			"warning: cilium db/show frontends serves no NodePort at all, so another proxy is taken to: not compared\n"},
		"a table of backends": {shop, []Moment{dump(10, backends,
			"shop/web|10.244.1.1:8080/TCP|k8s|active|http\nshop/web|10.244.1.2:8080/TCP|k8s|active|http\nshop/web|10.244.1.7:8080/TCP|k8s|active|http\n")},
			"10s shop/api: cilium db/show backends: port http has no backends, where the objects give 10.244.1.2:8080 (event 4)\n" +
				"10s shop/web: cilium db/show backends: port http leads to 10.244.1.2:8080, which the objects give to shop/api only (event 3)\n" +
				"10s shop/web: cilium db/show backends: port http leads to 10.244.1.7:8080, which the objects do not give to it (event 3)\n" +
				"10s shop/web: cilium db/show backends: port http lacks 10.244.2.1:8080 (event 3)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, told(run(t, test.story(), Options{Moments: test.moments}))); diff != "" {
				t.Errorf("-want +have:\n%s", diff)
			}
		})
	}
}

func TestWhatTheJournalDoesNotKnowIsNotCompared(t *testing.T) {
	broken := dump(0, save, web+api)
	moment := func(seconds float64) Moment { return Moment{at(seconds), broken.Place, broken.Read} }
	c := run(t, shop(), Options{
		Moments: []Moment{moment(-1), moment(20), moment(100), moment(101)},
		Gaps:    []journal.Gap{{Kind: services, Began: at(19), Ended: at(21)}},
		End:     at(100),
	})
	want := "1m40s shop/api: ipvsadm -Sn: 10.96.0.2:80/TCP has no backends, where the objects give 10.244.1.2:8080 (event 4)\n" +
		"1m40s shop/web: ipvsadm -Sn: 10.96.0.1:80/TCP has no backends, where the objects give 10.244.1.1:8080, 10.244.2.1:8080 (event 3)\n" +
		"warning: not compared: 1 dumps, from before the journal knows the Services\n" +
		"warning: not compared: 1 dumps, from after the end of what was replayed\n" +
		"warning: not compared: 1 dumps, from a time that nobody watched Services or EndpointSlices\n"
	if diff := cmp.Diff(want, told(c)); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	if c.Compared() != 1 {
		t.Errorf("%d dumps were compared, want 1", c.Compared())
	}
}

func TestADumpThatTellsNothingMissesNothing(t *testing.T) {
	silent := Moment{at(10), "rec.txt", func() adapter.Dump {
		return adapter.Dump{Source: "iptables-save", Silent: "there is no table nat", Problems: []adapter.Problem{{Line: 7, Text: "what is this"}}}
	}}
	want := "warning: rec.txt, iptables-save, line 7: what is this\nwarning: rec.txt, iptables-save: it tells nothing of Services: there is no table nat\n"
	if diff := cmp.Diff(want, told(run(t, shop(), Options{Moments: []Moment{silent}}))); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
}
