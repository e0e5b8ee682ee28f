// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// What an operator sees of a Service that the API has emptied, and can do about
// it. That nobody but a real API server is kept for long is seen on the way.
func TestAnOperatorSeesAndEndsARetention(t *testing.T) {
	n := newNode(t)
	cluster := kube.StartAt(t, n.NS, nodeAddrs.V4)
	cluster.Kubectl("apply", "-f", rbac)
	cluster.Apply(readerBinding)
	cluster.Apply(nodeYAML(""))
	n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig, "--retain", "default/web")
	n.Ready(t)
	monitor := n.Place().Start(t, rig.Program(), "monitor", "-o", "json", "--service", "default/web", "--socket", n.Socket)
	place, _ := n.pod(t, "client")
	client := traffic.StartClient(t, place)
	web := rig.Service{Name: "web", VIP: rig.ParsePair("10.96.0.77", "fd00:10:96::77"), Spec: "ipFamilyPolicy: RequireDualStack"}
	serves := func(t *testing.T, b *rig.Backend) {
		t.Helper()
		cluster.Apply(web.YAML(rig.AllReady(b)))
		n.Settle(t)
		if s := n.Status(t); !s.Healthy || len(s.Retained) != 0 {
			t.Errorf("healthy: %v %q, retained: %+v", s.Healthy, s.Findings, s.Retained)
		}
	}
	refuses := func(t *testing.T) {
		t.Helper()
		rig.Eventually(t, func() error {
			if s := n.Status(t); !s.Healthy || len(s.Retained) != 0 {
				return fmt.Errorf("healthy: %v %q, retained: %+v", s.Healthy, s.Findings, s.Retained)
			}
			return nil
		})
		n.Settle(t)
		for _, w := range ways {
			rig.ExpectError(t, client, w, web.VIP, rig.ServicePort, rejected)
		}
	}

	t.Run("while nobody answers there, every answer says that the backend is retained, and why", func(t *testing.T) {
		_, addrs := n.pod(t, "mute") // whose servers are not there
		serves(t, &rig.Backend{Name: "mute", Node: nodeName, Addrs: addrs})
		cluster.Kubectl("delete", "endpointslice", "web-ipv4", "web-ipv6")
		rig.Eventually(t, func() error { return told(monitor.Stdout(), api.EventRetained) })
		n.Settle(t)
		n.diff(t)
		const why = "default/web has no endpoint in the API since "
		for _, says := range []struct {
			status int
			words  []string
			args   []string
		}{
			{1, []string{why, "fairlead release default/web", "RETAINED", "IPv6 UDP cluster-ip", "(unverified)"}, []string{"status"}},
			{0, []string{"default/web   tcp        unverified"}, []string{"get", "backends", "-n", "default", "web"}},
			{0, []string{"4 (4 retained)"}, []string{"get", "services", "default/web"}},
			{0, []string{"forward", fmt.Sprintf("%s:%d(unverified)", addrs.V4, rig.BackendPort)}, []string{"get", "frontends", "default/web"}},
			{0, []string{"the Service has no endpoint in the API since ", "no heartbeat was answered since", "RETAINED"}, []string{"explain", "default/web"}},
			{0, []string{"(unverified)"}, []string{"trace", "--from", "10.0.1.1", "--to", "10.96.0.77:80"}},
		} {
			out := n.Run(t, says.status, says.args...)
			for _, words := range says.words {
				if !strings.Contains(out, words) {
					t.Errorf("fairlead %s: no %q in\n%s", strings.Join(says.args, " "), words, out)
				}
			}
		}
		n.wantMetric(t, `fairlead_retained_backends{service="default/web",state="unverified"}`, "4")
	})

	t.Run("the operator ends it, and the Service is as empty as the API says", func(t *testing.T) {
		if out := n.Run(t, 0, "release", "default/web"); !strings.Contains(out, "nothing is kept of default/web any more") || !strings.Contains(out, "(unverified)") {
			t.Errorf("release says:\n%s", out)
		}
		refuses(t)
		rig.Eventually(t, func() error { return told(monitor.Stdout(), api.EventEnded) })
		n.Run(t, 2, "release", "default/web")
	})

	t.Run("whoever is no API server is not kept", func(t *testing.T) {
		serves(t, n.backends(t, "stranger")[0])
		cluster.Kubectl("delete", "endpointslice", "web-ipv4", "web-ipv6")
		rig.Eventually(t, func() error { return told(monitor.Stdout(), api.EventForeign) })
		refuses(t)
	})

	t.Run("the way to the API server has its metrics", func(t *testing.T) {
		n.wantMetric(t, `fairlead_apiserver_endpoints{state="answers"}`, "1")
		n.wantMetric(t, "fairlead_apiserver_moves_total", "0")
		for _, name := range []string{"fairlead_apiserver_current_since_timestamp_seconds", "fairlead_apiserver_last_heartbeat_timestamp_seconds"} {
			if n.metric(t, name) == "" {
				t.Errorf("there is no %s", name)
			}
		}
		if s := n.Status(t).APIServer; s == nil || s.Current == "" || s.Answered.IsZero() || s.StateFileError != "" {
			t.Errorf("status: %+v", s)
		}
	})
}

// told looks for an event in what monitor printed.
func told(printed, event string) error {
	for line := range strings.Lines(printed) {
		var e api.Event
		if strings.HasSuffix(line, "\n") && json.Unmarshal([]byte(line), &e) == nil && e.Event == event {
			return nil
		}
	}
	return fmt.Errorf("nothing is %s in\n%s", event, printed)
}
