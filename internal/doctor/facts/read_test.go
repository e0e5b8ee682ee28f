// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/model"
)

var taken = time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)

func read(records ...evidence.Record) *Case {
	return Read(&evidence.Bundle{Made: taken, Records: records})
}

// record is one of the first sample.
func record(kind evidence.Kind, node, content string) evidence.Record {
	return evidence.Record{Path: "1/" + string(kind), Kind: kind, Node: node, Command: string(kind), Sample: 1, Time: taken, Content: []byte(content)}
}

func objects(resources, content string) evidence.Record {
	r := record(evidence.Objects, "", content)
	if resources != "" {
		r.Resources = strings.Split(resources, ",")
	}
	return r
}

const web = `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.0.0.10, ports: [{port: 80}]}}`

func TestObjects(t *testing.T) {
	tests := []struct {
		name     string
		record   evidence.Record
		services int
		complete bool
		unread   string // a part of why
	}{
		{"a List as kubectl writes it, with items that name their kinds", objects("services", "apiVersion: v1\nkind: List\nitems: ["+web+"]"), 1, true, ""},
		{"a typed list, whose items do not", objects("services", `{"apiVersion": "v1", "kind": "ServiceList", "items": [{"metadata": {"name": "web"}}]}`), 1, true, ""},
		{"several documents", objects("services", web+"\n---\n# nothing\n---\n"+strings.ReplaceAll(web, "web", "api")), 2, true, ""},
		{"JSON values one after another", objects("", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"Service","metadata":{"name":"b"}}`), 2, false, ""},
		{"an empty list has all that there are", objects("services", "apiVersion: v1\nkind: List\nitems: []"), 0, true, ""},
		{"items that are null are none", objects("services", `{"apiVersion": "v1", "kind": "ServiceList", "items": null}`), 0, true, ""},
		{"objects that no list holds say nothing of others", objects("", web), 1, false, ""},
		{"one object that is broken takes the list's word away, and nothing else", objects("services", "apiVersion: v1\nkind: List\nitems: ["+web+", {apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: 3}}]"), 1, false, "Service x cannot be read"},
		{"a broken document leaves those after it", objects("services", "{a: b: c}\n---\n"+web), 1, false, "is not valid YAML"},
		{"half a list is none", objects("services", `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Serv`), 0, false, "only a part"},
		{"a list in pieces", objects("services", `{"apiVersion": "v1", "kind": "ServiceList", "metadata": {"continue": "abc"}, "items": [{"metadata": {"name": "web"}}]}`), 1, false, "goes on elsewhere"},
		{"a Status is what the API server said instead", objects("services", `{"apiVersion": "v1", "kind": "Status", "message": "services is forbidden"}`), 0, false, "services is forbidden"},
		{"text that is no object", objects("services", "No resources found"), 0, false, "no object"},
		{"an empty file", objects("services", "\n"), 0, false, "no object"},
		{"an object without a name", objects("services", "apiVersion: v1\nkind: Service\n"), 0, false, "no name"},
		{"an object whose name would be more than a name in a command", objects("services", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a; rm -rf /"}}`), 0, false, "its name is none"},
		{"a namespace likewise", objects("services", `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "$(x)"}}`), 0, false, "its namespace is none"},
		{"an object that says last what it is", objects("services", `{"kind": "List", "items": [{"metadata": {"name": "a"}, "kind": "Service", "apiVersion": "v1"}]}`), 1, true, ""},
		{"a field's name in other letters is another field", objects("services", "apiVersion: v1\nkind: Service\nmetadata: {Name: web}"), 0, false, "no name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := read(tt.record)
			o := c.Last().Objects
			if len(o.Services) != tt.services || o.Complete("services") != tt.complete {
				t.Errorf("%d Services, complete %v; want %d, %v", len(o.Services), o.Complete("services"), tt.services, tt.complete)
			}
			why := ""
			for _, u := range c.Unread {
				why += u.Why
			}
			if (why == "") != (tt.unread == "") || !strings.Contains(why, tt.unread) {
				t.Errorf("unread: %q, want %q", why, tt.unread)
			}
		})
	}
}

func TestObjectsOfOtherKinds(t *testing.T) {
	c := read(
		objects("endpointslices", `{"apiVersion": "discovery.k8s.io/v1beta1", "kind": "EndpointSliceList", "items": [{"metadata": {"name": "web-1"}}]}`),
		objects("clusterroles,ciliumnodes.cilium.io", "apiVersion: v1\nkind: List\nitems: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cilium}},"+
			"{apiVersion: cilium.io/v2, kind: CiliumNode, metadata: {name: n1}}]"))
	o := c.Last().Objects
	if o.Complete("endpointslices.discovery.k8s.io") {
		t.Error("slices of a version that is not read make a complete list")
	}
	if !o.Complete("clusterroles.rbac.authorization.k8s.io") || Find[rbacv1.ClusterRole](o, "cilium") == nil {
		t.Error("a resource that is named without its group is not found by its full name")
	}
	if !o.Complete("ciliumnodes.cilium.io") || Find[unstructured.Unstructured](o, "CiliumNode n1") == nil {
		t.Error("an object without a type of ours is lost")
	}
}

func TestAnObjectThatStandsTwice(t *testing.T) {
	single := objects("", strings.ReplaceAll(web, "10.0.0.10", "10.0.0.99"))
	list := objects("services", web)
	o := read(single, list).Last().Objects
	svc := Find[corev1.Service](o, "shop/web")
	if len(o.Services) != 1 || svc.Spec.ClusterIP != "10.0.0.10" {
		t.Errorf("%d Services, the first with %s: want the one of the list", len(o.Services), svc.Spec.ClusterIP)
	}
	if r := o.Record(svc); r == nil || r.Resources == nil {
		t.Errorf("the Service comes from %v", r)
	}
}

func TestNilObjects(t *testing.T) {
	var o *Objects
	if o.Complete("services") || Find[corev1.Service](o, "a/b") != nil {
		t.Error("objects that nobody asked for are known")
	}
}

const kernelTable = "SERVICE ADDRESS     BACKEND ADDRESS (REVNAT_ID) (SLOT)\n10.0.0.10:80/TCP (0)   0.0.0.0:0 (1) (0) [ClusterIP, non-routable]\n"

func TestHas(t *testing.T) {
	tests := []struct {
		name   string
		change func(*evidence.Record)
		want   bool
	}{
		{"what was read whole", func(*evidence.Record) {}, true},
		{"what failed after a part", func(r *evidence.Record) { r.Error = "command terminated with exit code 137" }, false},
		{"what was cut off", func(r *evidence.Record) { r.Cut = true }, false},
		{"what has a line that cannot be read", func(r *evidence.Record) { r.Content = append(r.Content, "rubbish\n"...) }, false},
		{"what is something else", func(r *evidence.Record) { r.Content = []byte("hello\n") }, false},
		{"what never was there", func(r *evidence.Record) { r.Content, r.Error = nil, "exec format error" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := record(evidence.Dump, "n1", kernelTable)
			tt.change(&r)
			c := read(r)
			has := len(c.Samples) > 0 && c.Last().Has("n1", string(evidence.Dump))
			if has != tt.want {
				t.Errorf("Has says %v", has)
			}
			if (len(c.Unread) == 0) != tt.want {
				t.Errorf("unread: %v", c.Unread)
			}
		})
	}
	t.Run("of two records by one command both count", func(t *testing.T) {
		broken := record(evidence.Dump, "n1", "SERVICE ADDRESS BACKEND ADDRESS\nrubbish\n")
		if read(broken, record(evidence.Dump, "n1", kernelTable)).Last().Has("n1", string(evidence.Dump)) {
			t.Error("the second hides what the first lacks")
		}
	})
}

func TestSamplesShareTablesThatAreTheSame(t *testing.T) {
	b := &evidence.Bundle{}
	for i, text := range []string{kernelTable, kernelTable, strings.Replace(kernelTable, ":80/", ":81/", 1)} {
		r := record(evidence.Dump, "n1", text)
		r.Sample, r.Path = i+1, fmt.Sprintf("%d/nodes/n1/dump.txt", i+1)
		r.Time = time.Date(2026, time.January, 3, 12, 0, i, 0, time.UTC)
		b.Records = append(b.Records, r)
	}
	c := Read(b)
	var tables []*adapter.Frontend
	for i, s := range c.Samples {
		d := s.Node("n1").Dumps
		if len(d) != 1 || !d[0].Time.Equal(b.Records[i].Time) || d[0].Record != &b.Records[i] {
			t.Fatalf("sample %d has not its own table: %+v", i+1, d)
		}
		tables = append(tables, &d[0].Frontends[0])
	}
	if tables[0] != tables[1] {
		t.Error("a table that is the same stands in memory twice")
	}
	if tables[0] == tables[2] || tables[0].Address == tables[2].Address {
		t.Error("another table is taken for the same")
	}
}

func TestDumps(t *testing.T) {
	tables := "Address                   Instances              Shadows   NodeName\n10.1.0.7:8080/TCP   shop/web\n\n" + kernelTable +
		"\nAddress   Type   ServiceName   PortName   Backends   RedirectTo   Status   Since   Error\n"
	n := read(record(evidence.Dump, "n1", tables)).Last().Node("n1")
	var got []string
	for _, d := range n.Dumps {
		got = append(got, d.Source)
	}
	want := []string{"cilium db/show backends", "cilium db/show frontends", "cilium bpf lb list"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a record with several tables is not read from the first layer to the last:\n%s", diff)
	}
}

func TestAgents(t *testing.T) {
	c := read(
		record(evidence.KubeProxyVersion, "n1", "Kubernetes v1.35.4\n"),
		record(evidence.KubeProxyMode, "n1", "nftables"),
		record(evidence.Version, "", `{"clientVersion": {"gitVersion": "v1.30.0"}, "serverVersion": {"gitVersion": "v1.35.4-gke.1"}}`),
		record(evidence.Conntrack, "n1", "net.netfilter.nf_conntrack_count = 12\nnf_conntrack_max=262144\n"),
		record(evidence.FairleadStatus, "n2", `{"schemaVersion": 1, "node": "n2", "zone": "a"}`),
		record(evidence.FairleadFrontends, "n2", `[]`),
	)
	for _, u := range c.Unread {
		t.Errorf("unread: %s: %s", u.Record.Path, u.Why)
	}
	s := c.Last()
	n1, n2 := s.Node("n1"), s.Node("n2")
	if n1.KubeProxy.Version != "1.35.4" || n1.KubeProxy.Mode != "nftables" || s.Version != "1.35.4-gke.1" {
		t.Errorf("kube-proxy %+v, API server %q", n1.KubeProxy, s.Version)
	}
	if n1.Conntrack.Count != 12 || n1.Conntrack.Max != 262144 {
		t.Errorf("connection tracking: %+v", n1.Conntrack)
	}
	if n2.Fairlead.Status.Zone != "a" || len(n2.Dumps) != 1 || n2.Dumps[0].DataPlane != PlaneFairlead {
		t.Errorf("fairlead: %+v, %d dumps", n2.Fairlead, len(n2.Dumps))
	}
}

func TestServersVersion(t *testing.T) {
	for text, want := range map[string]string{
		`{"major": "1", "gitVersion": "v1.32.5"}`:                                     "1.32.5",
		"Client Version: v1.30.0\nKustomize Version: v5.0.4\nServer Version: v1.32.5": "1.32.5",
		"Client Version: v1.30.0\n":                                                   "",
		`{"clientVersion": {"gitVersion": "v1.30.0"}}`:                                "",
	} {
		c := read(record(evidence.Version, "", text))
		if got := c.Last().Version; got != want {
			t.Errorf("of %q the server's version is %q, want %q", text, got, want)
		}
	}
}

func TestLogTimes(t *testing.T) {
	tests := []struct{ name, line, want string }{
		{"as kubectl logs --timestamps puts it before any line", "2026-01-03T11:59:58.123456789Z E0103 09:00:00.1 x", "2026-01-03T11:59:58.123456789Z"},
		{"klog, of the year in which it was read", "E0103 11:59:58.500000       1 reflector.go:1] Failed", "2026-01-03T11:59:58.5Z"},
		{"klog, of the year before", "E1231 11:59:58.500000       1 reflector.go:1] Failed", "2025-12-31T11:59:58.5Z"},
		{"logfmt", `level=info time="2026-01-03T11:59:58Z" msg=x`, "2026-01-03T11:59:58Z"},
		{"logfmt without quotes", `time=2026-01-03T12:59:58.5+01:00 level=info`, "2026-01-03T11:59:58.5Z"},
		{"JSON with seconds", `{"level":"info","ts":1767441598.5}`, "2026-01-03T11:59:58.5Z"},
		{"JSON with a text", `{"time":"2026-01-03T11:59:58Z"}`, "2026-01-03T11:59:58Z"},
		{"none", "panic: runtime error", "0001-01-01T00:00:00Z"},
		{"a number that is no time", `{"ts":-1}`, "0001-01-01T00:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := read(record(evidence.Log, "n1", tt.line+"\n"))
			if got := c.Logs[0].Lines[0].Time.Format(time.RFC3339Nano); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if len(c.Samples) != 0 {
				t.Error("a log made a sample")
			}
		})
	}
}

func TestLogIsBounded(t *testing.T) {
	c := read(record(evidence.Log, "n1", strings.Repeat("x\n", maxLines)+strings.Repeat("é", maxLine)+"\nlast\n"))
	lines := c.Logs[0].Lines
	if len(lines) != maxLines || lines[len(lines)-1].Text != "last" || lines[len(lines)-1].Number != maxLines+2 {
		t.Errorf("%d lines, the last is %+v", len(lines), lines[len(lines)-1])
	}
	if long := lines[len(lines)-2].Text; len(long) > maxLine+len("…") || !strings.HasSuffix(long, "é…") {
		t.Errorf("a long line is cut to %d bytes", len(long))
	}
	if len(c.Unread) != 1 {
		t.Errorf("unread: %v", c.Unread)
	}
}

func TestEventsComeInTheirOrder(t *testing.T) {
	c := read(record(evidence.Events, "", `{"time":"2026-01-03T12:00:02Z","name":"b"}
{"time":"2026-01-03T12:00:01Z","name":"a"}
{"time":"20`))
	if len(c.Events) != 2 || c.Events[0].Name != "a" || len(c.Unread) != 1 {
		t.Errorf("events %v, unread %v", c.Events, c.Unread)
	}
}

func TestWorld(t *testing.T) {
	slice := func(service, extra string) string {
		return `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ` + service + `-1, namespace: shop, labels: {kubernetes.io/service-name: ` + service + `}},
  addressType: IPv4, ports: [{port: 8080}], endpoints: [{addresses: [10.1.0.7], ` + extra + `conditions: {ready: true}}]}`
	}
	list := func(all ...string) string {
		return "apiVersion: v1\nkind: List\nitems:\n- " + strings.Join(all, "\n- ")
	}
	service := func(name, labels string) string {
		return `{apiVersion: v1, kind: Service, metadata: {name: ` + name + `, namespace: shop, labels: {` + labels + `}}, spec: {clusterIP: 10.0.0.10, ports: [{port: 80}]}}`
	}
	nodes := objects("nodes", list(`{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}`))
	services := objects("services", list(service("web", ""), service("other", "service.kubernetes.io/service-proxy-name: fairlead"), `{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: shop}, spec: {clusterIP: nonsense, ports: [{port: 80}]}}`))
	slices := objects("endpointslices", list(slice("web", "hints: {forZones: [{name: b}]}, ")))

	t.Run("is unknown unless all Services and EndpointSlices are listed", func(t *testing.T) {
		if read(services, nodes).Last().World("n1", PlaneKubeProxy) != nil {
			t.Error("there is one")
		}
	})
	t.Run("knows the node, and what cannot be read", func(t *testing.T) {
		s := read(services, slices, nodes).Last()
		w := s.World("n1", PlaneKubeProxy)
		if w.Node.Zone != "a" || len(w.Node.Addresses) != 1 || len(w.Services) != 2 || len(w.Slices) != 1 {
			t.Errorf("%+v", w)
		}
		if w != s.World("n1", PlaneKubeProxy) {
			t.Error("the same is made twice")
		}
		bad, hinted := model.Name{Namespace: "shop", Name: "bad"}, model.Name{Namespace: "shop", Name: "web"}
		if w.Unsure[bad] == "" || w.Unsure[hinted] != "" {
			t.Errorf("unsure: %v", w.Unsure)
		}
		if got := s.World("n1", PlaneCilium).Unsure[hinted]; got == "" {
			t.Error("that Cilium may not follow hints is not known")
		}
		if got := s.World("n2", PlaneKubeProxy).Unsure[hinted]; got == "" {
			t.Error("a node of which the zone is not known follows hints")
		}
	})
	t.Run("leaves labelled Services to the proxy that has the name (R1)", func(t *testing.T) {
		s := read(services, slices, nodes).Last()
		labelled := s.World("n1", PlaneKubeProxy).Services[1]
		foreign, own := s.World("n1", PlaneKubeProxy).Options, s.World("n1", PlaneFairlead).Options
		if model.Ignored(labelled, &foreign) == "" || model.Ignored(labelled, &own) != "" {
			t.Error("the label is not followed")
		}
	})
}

func TestTheJournalOfEventsIsKnownByItsCommand(t *testing.T) {
	for command, want := range map[string]string{
		"fairlead events /var/lib/fairlead/journal.db --since 2026-01-03T12:00:00Z -o json": "/var/lib/fairlead/journal.db",
		"fairlead events journal.db":                   "journal.db",
		"fairlead events -o json":                      "",
		"fairlead events $(id) --since x":              "",
		"fairlead events 'a b.db' --since x":           "",
		"curl x; fairlead events journal.db":           "",
		"fairlead events journal.db;id --since x":      "",
		"fairlead events --apply --since x -o json":    "",
		"fairlead events journal.db\n--kind secrets x": "",
	} {
		b := &evidence.Bundle{Records: []evidence.Record{{Path: "events.json", Kind: evidence.Events, Command: command}}}
		if c := Read(b); c.Journal != want {
			t.Errorf("%q: %q, want %q", command, c.Journal, want)
		}
	}
}
