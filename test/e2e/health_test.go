// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// healthPort is a healthCheckNodePort.
const healthPort = 32000

// Endpoints of which only the API speaks: nobody connects to them here.
var (
	here  = &rig.Backend{Name: "here", Node: nodeName, Addrs: rig.ParsePair("10.0.1.50", "fd00:1::50")}
	here2 = &rig.Backend{Name: "here2", Node: nodeName, Addrs: rig.ParsePair("10.0.1.51", "fd00:1::51")}
	there = &rig.Backend{Name: "there", Node: otherName, Addrs: rig.ParsePair("10.0.2.50", "fd00:2::50")}
)

// balanced is a load balancer's Service with a health check on the port.
func (n *node) balanced(name string, port uint16) rig.Service {
	return rig.Service{
		Name: name, VIP: n.vip(), NodePort: port - 1000,
		Spec: fmt.Sprintf("type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: %d", port),
	}
}

// get asks over HTTP from a namespace: "200 BODY", or why there is no answer.
func get(t testing.TB, from *lab.NetNS, url string) string {
	t.Helper()
	dial := func(_ context.Context, network, address string) (conn net.Conn, err error) {
		from.Do(func() { conn, err = net.DialTimeout(network, address, time.Second) })
		return conn, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: rig.Patience}
	response, err := client.Get(url)
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.TrimSpace(string(body)))
}

// wants asks until the answer is the one.
func wants(t testing.TB, from *lab.NetNS, url, want string) {
	t.Helper()
	rig.Eventually(t, func() error {
		if got := get(t, from, url); got != want {
			return fmt.Errorf("%s answers %q, want %q", url, got, want)
		}
		return nil
	})
}

// verdict is what a load balancer is told about a Service.
func verdict(status int, service string, endpoints int, healthy bool) string {
	return fmt.Sprintf(`%d {"service":{"namespace":"default","name":%q},"localEndpoints":%d,"serviceProxyHealthy":%v}`, status, service, endpoints, healthy)
}

// metric is the value of a metric on this node, "" if there is none.
func (n *node) metric(t testing.TB, name string) string {
	t.Helper()
	for line := range strings.Lines(get(t, n.NS, "http://127.0.0.1:10249/metrics")) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (n *node) wantMetric(t testing.TB, name, want string) {
	t.Helper()
	rig.Eventually(t, func() error {
		if got := n.metric(t, name); got != want {
			return fmt.Errorf("%s is %q, want %q", name, got, want)
		}
		return nil
	})
}

func TestHealthChecks(t *testing.T) {
	n := startNode(t)
	web, mail := n.balanced("web", healthPort), n.balanced("mail", healthPort+1)
	n.Serve(t, mail, rig.Ready(here))
	cluster, moved := web, web
	cluster.Spec = "type: LoadBalancer, externalTrafficPolicy: Cluster"
	moved.Spec = strings.Replace(web.Spec, fmt.Sprint(healthPort), fmt.Sprint(healthPort+2), 1)
	const closed = "ECONNREFUSED"

	for _, c := range []struct {
		name      string
		service   rig.Service
		endpoints []rig.Endpoint
		port      uint16
		want      string
	}{
		{"a ready endpoint on this node (R29)", web, rig.AllReady(here, there), healthPort, verdict(200, "web", 1, true)},
		{"a dual-stack pod counts once (R26, R29)", web, rig.AllReady(here, here2), healthPort, verdict(200, "web", 2, true)},
		{"endpoints on other nodes only (R29)", web, rig.AllReady(there), healthPort, verdict(503, "web", 0, true)},
		{"an endpoint that only serves while it terminates (R29)", web, []rig.Endpoint{rig.Terminating(here)}, healthPort, verdict(503, "web", 0, true)},
		{"an endpoint that is not ready (R29)", web, []rig.Endpoint{rig.NotReady(here)}, healthPort, verdict(503, "web", 0, true)},
		{"no endpoint at all (R29)", web, nil, healthPort, verdict(503, "web", 0, true)},
		{"it is back (R29)", web, rig.AllReady(here), healthPort, verdict(200, "web", 1, true)},
		{"the policy becomes Cluster: nobody needs to ask (R29)", cluster, rig.AllReady(here), healthPort, closed},
		{"the policy becomes Local again (R29)", web, rig.AllReady(here), healthPort, verdict(200, "web", 1, true)},
		{"the port changes (R29)", moved, rig.AllReady(here), healthPort + 2, verdict(200, "web", 1, true)},
		{"the old port is closed (R29)", moved, rig.AllReady(here), healthPort, closed},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.Serve(t, c.service, c.endpoints...)
			for _, a := range nodeAddrs.List() {
				wants(t, n.other, fmt.Sprintf("http://%s/", net.JoinHostPort(a.String(), fmt.Sprint(c.port))), c.want)
			}
			wants(t, n.other, fmt.Sprintf("http://192.0.2.1:%d/", healthPort+1), verdict(200, "mail", 1, true))
		})
	}
	t.Run("status shows what is answered", func(t *testing.T) {
		out := n.Run(t, 0, "status")
		for _, words := range []string{"default/mail   32001   1                 200", "default/web    32002   1                 200", "/healthz 200, /livez 200, on [::]:10256", "127.0.0.1:10249"} {
			if !strings.Contains(out, words) {
				t.Errorf("status does not say %q:\n%s", words, out)
			}
		}
	})
	t.Run("the Service is deleted (R29)", func(t *testing.T) {
		n.Remove(t, "web")
		wants(t, n.other, fmt.Sprintf("http://192.0.2.1:%d/", healthPort+2), closed)
		wants(t, n.other, fmt.Sprintf("http://192.0.2.1:%d/", healthPort+1), verdict(200, "mail", 1, true))
		n.wantMetric(t, "fairlead_health_checks", "1")
	})
}

func TestAHealthCheckPortThatIsTaken(t *testing.T) {
	n := startNode(t)
	var other net.Listener
	n.NS.Do(func() {
		var err error
		if other, err = net.Listen("tcp", fmt.Sprintf("192.0.2.1:%d", healthPort)); err != nil {
			t.Fatal(err)
		}
	})
	defer other.Close()
	n.Serve(t, n.balanced("web", healthPort), rig.Ready(here))
	rig.Eventually(t, func() error {
		s := n.Status(t)
		if len(s.HealthChecks) != 1 || !strings.Contains(s.HealthChecks[0].Error, "address already in use") || s.Healthy {
			return fmt.Errorf("healthy %v, health checks %+v", s.Healthy, s.HealthChecks)
		}
		return nil
	})
	if out := n.Run(t, 1, "status"); !strings.Contains(out, "the health-check port of default/web cannot be listened on") {
		t.Errorf("status does not say so:\n%s", out)
	}
	n.wantMetric(t, "fairlead_health_checks_failed", "1")
	other.Close()
	wants(t, n.other, fmt.Sprintf("http://192.0.2.1:%d/", healthPort), verdict(200, "web", 1, true))
	n.wantMetric(t, "fairlead_health_checks_failed", "0")
	n.Run(t, 0, "status")
}

func TestHealthChecksListenWhereNodePortsAreServed(t *testing.T) {
	n := startNode(t, "--nodeport-addresses", "192.0.2.1/32,192.0.2.128/25,2001:db8::/64")
	n.Serve(t, n.balanced("web", healthPort), rig.Ready(here))
	want := verdict(200, "web", 1, true)
	n.NS.Addr(t, "eth0", "192.0.2.100/24")
	for _, c := range []struct{ at, want string }{
		{"192.0.2.1", want}, {"[2001:db8::1]", want}, {"192.0.2.100", "ECONNREFUSED"}, {"127.0.0.1", "ECONNREFUSED"}, {"[::1]", "ECONNREFUSED"},
	} {
		wants(t, n.NS, fmt.Sprintf("http://%s:%d/", c.at, healthPort), c.want)
	}
	n.NS.Addr(t, "eth0", "192.0.2.200/24")
	wants(t, n.NS, fmt.Sprintf("http://192.0.2.200:%d/", healthPort), want)
}

func TestAHealthCheckIsInTheWayOfNoClaim(t *testing.T) {
	n := startNode(t)
	n.Serve(t, n.balanced("web", healthPort), rig.Ready(here))
	wants(t, n.NS, fmt.Sprintf("http://127.0.0.1:%d/", healthPort), verdict(200, "web", 1, true))
	// A new address lets the agent look at all sockets of the node again.
	n.NS.Addr(t, "eth0", "192.0.2.9/24")
	rig.Eventually(t, func() error {
		if s := n.Status(t); !slices.Contains(s.NodeAddresses, "192.0.2.9") {
			return fmt.Errorf("addresses %q", s.NodeAddresses)
		}
		return nil
	})
	if listening := n.Status(t).Listening; !slices.Contains(listening, "[::]:10256/TCP") || slices.ContainsFunc(listening, func(l string) bool { return strings.HasSuffix(l, ":32000/TCP") }) {
		t.Errorf("the node listens on %q: want port 10256, and not a Service's health check", listening)
	}
	for port, want := range map[uint16]string{healthPort: "forward", 10256: "shadowed"} {
		name := fmt.Sprintf("claims-%d", port)
		n.Serve(t, rig.Service{Name: name, VIP: n.vip(), Port: port, Spec: "externalIPs: [192.0.2.9]"}, rig.Ready(here))
		if row := n.Row(t, name, netip.MustParseAddr("192.0.2.9"), port, "TCP"); row.Action != want {
			t.Errorf("a claim on port %d: %s (%s), want %s", port, row.Action, row.Reason, want)
		}
	}
}

// proxyHealth is an answer of /healthz or /livez.
type proxyHealth struct {
	status       int
	Healthy      bool      `json:"healthy"`
	NodeEligible *bool     `json:"nodeEligible"`
	LastUpdated  time.Time `json:"lastUpdated"`
	CurrentTime  time.Time `json:"currentTime"`
	Stale        []stale   `json:"stale"`
}

// stale is a kind that /healthz calls stale.
type stale struct {
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
	Missing string    `json:"missing"`
}

func (n *node) probe(t testing.TB, path string) (proxyHealth, error) {
	t.Helper()
	var h proxyHealth
	answer := get(t, n.other, "http://192.0.2.1:10256"+path)
	status, body, _ := strings.Cut(answer, " ")
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		return h, fmt.Errorf("%s answers %q", path, answer)
	}
	_, err := fmt.Sscan(status, &h.status)
	return h, err
}

// wantProbes waits until /healthz and /livez answer so.
func (n *node) wantProbes(t testing.TB, healthz, livez int, eligible bool) {
	t.Helper()
	rig.Eventually(t, func() error {
		h, err := n.probe(t, "/healthz")
		if err != nil {
			return err
		}
		l, err := n.probe(t, "/livez")
		if err != nil {
			return err
		}
		if h.status != healthz || l.status != livez || h.NodeEligible == nil || *h.NodeEligible != eligible || l.NodeEligible != nil {
			return fmt.Errorf("/healthz %+v, /livez %+v; want %d and %d, node eligible %v", h, l, healthz, livez, eligible)
		}
		return nil
	})
}

func nodeYAML(spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}, spec: {%s}}\n", nodeName, spec)
}

func TestHealthz(t *testing.T) {
	n := newNode(t)
	n.Write(t, "node.yaml", nodeYAML(""))
	n.Start(t)
	n.wantProbes(t, 200, 200, true)
	h, err := n.probe(t, "/healthz")
	if age := time.Since(h.LastUpdated); err != nil || age < 0 || age > rig.Patience || !h.LastUpdated.Equal(h.CurrentTime) || !h.Healthy {
		t.Errorf("a healthy proxy is up to date as of now: %+v, %v (R30)", h, err)
	}
	for _, c := range []struct {
		name     string
		do       func()
		status   int
		eligible bool
	}{
		{"the cluster autoscaler is about to delete the node (R30)",
			func() {
				n.Write(t, "node.yaml", nodeYAML("taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]"))
			}, 503, false},
		{"it thinks better of it (R30)", func() { n.Write(t, "node.yaml", nodeYAML("")) }, 200, true},
		{"a node that is cordoned serves on (R30)",
			func() {
				n.Write(t, "node.yaml", nodeYAML("unschedulable: true, taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]"))
			},
			200, true},
		{"the Node is gone (R30)", func() {
			if err := os.Remove(filepath.Join(n.Manifests, "node.yaml")); err != nil {
				t.Fatal(err)
			}
		}, 503, false},
		{"and back (R30)", func() { n.Write(t, "node.yaml", nodeYAML("")) }, 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do()
			n.wantProbes(t, c.status, 200, c.eligible)
			if h, err := n.probe(t, "/healthz"); err != nil || !h.Healthy {
				t.Errorf("the proxy itself is well: %+v, %v", h, err)
			}
			s := n.Status(t)
			if s.Healthz.Healthz != c.status || s.Healthz.Livez != 200 || s.Healthz.NodeEligible != c.eligible || !s.Healthy {
				t.Errorf("status says %+v, healthy %v", s.Healthz, s.Healthy)
			}
		})
	}
	if got := n.metric(t, `fairlead_health_answers_total{code="503",path="/healthz"}`); got == "" || got == "0" {
		t.Errorf("answers of 503 counted: %q", got)
	}
	t.Run("an agent that takes over finds its ports (R39)", func(t *testing.T) {
		n.Restart(t)
		n.wantProbes(t, 200, 200, true)
	})
}

func TestHealthAndMetricsCanBeSwitchedOff(t *testing.T) {
	n := startNode(t, "--healthz-bind-address", "", "--metrics-bind-address", "")
	for _, port := range []int{10256, 10249} {
		if got := get(t, n.NS, fmt.Sprintf("http://127.0.0.1:%d/", port)); got != "ECONNREFUSED" {
			t.Errorf("port %d: %s", port, got)
		}
	}
	if s := n.Status(t); !s.Healthy || s.Healthz.Address != "" || s.MetricsAddress != "" || s.Healthz.Healthz != 200 {
		t.Errorf("status: healthy %v, %+v, metrics on %q", s.Healthy, s.Healthz, s.MetricsAddress)
	}
}
