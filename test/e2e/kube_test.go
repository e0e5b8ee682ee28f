// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// rbac is what users apply; the tests' user takes the place of the service
// account.
const rbac = "../../deploy/rbac.yaml"

const readerBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
`

// The API server lives in the node's namespace, as on a control-plane node,
// and the agent reaches it there.
func TestKubernetes(t *testing.T) {
	n := newNode(t)
	cluster := kube.StartAt(t, n.NS, nodeAddrs.V4)
	cluster.Kubectl("apply", "-f", rbac)
	cluster.Apply(readerBinding)
	cluster.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + nodeName + "}}")
	n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig)
	n.Ready(t)
	n.diff(t)
	b := n.backends(t, "a", "b", "c")
	place, _ := n.pod(t, "client")
	pod := traffic.StartClient(t, place)
	web := rig.Service{Name: "web", VIP: rig.ParsePair("10.96.0.77", "fd00:10:96::77"), NodePort: 30080, Spec: "type: NodePort, ipFamilyPolicy: RequireDualStack"}
	serve := func(t *testing.T, s rig.Service, endpoints ...rig.Endpoint) {
		t.Helper()
		cluster.Apply(s.YAML(endpoints))
		n.Settle(t)
		n.diff(t)
	}
	reaches := func(t *testing.T, servers ...string) {
		t.Helper()
		for _, w := range ways {
			rig.Expect(t, pod, w, web.VIP, rig.ServicePort, servers...)
			rig.Expect(t, pod, w, nodeAddrs, web.NodePort, servers...)
		}
	}

	t.Run("the API server's own Service leads to it", func(t *testing.T) {
		// It speaks TLS: a connection that it takes is answer enough.
		conn, reply := pod.Open(traffic.TCP, "10.96.0.1:443")
		if reply.Error != "" {
			t.Fatalf("connect: %s", reply)
		}
		conn.Close()
	})

	t.Run("a pod is traced by its name", func(t *testing.T) {
		// No kubelet runs here: the pod is an object with an address.
		cluster.Apply(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}`)
		cluster.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: client, namespace: default}, spec: {containers: [{name: c, image: none}]}}`)
		cluster.Kubectl("patch", "pod", "client", "--subresource=status", "-p", `{"status":{"podIP":"10.0.9.9","podIPs":[{"ip":"10.0.9.9"}]}}`)
		out := n.Run(t, 0, "trace", "--from", "default/client", "--to", "10.96.0.1:443")
		if !strings.Contains(out, "10.0.9.9") || !strings.Contains(out, "default/kubernetes") {
			t.Errorf("trace of a pod:\n%s", out)
		}
	})

	t.Run("a Service that is created is served", func(t *testing.T) {
		serve(t, web, rig.AllReady(b[:2]...)...)
		reaches(t, "a", "b")
	})

	t.Run("it is scaled, and connections follow", func(t *testing.T) {
		serve(t, web, rig.AllReady(b...)...)
		reaches(t, "a", "b", "c")
		serve(t, web, rig.Ready(b[2]))
		reaches(t, "c")
		cluster.Kubectl("delete", "endpointslice", "web-ipv4")
		n.Settle(t)
		n.diff(t)
		rig.ExpectError(t, pod, ways[0], web.VIP, rig.ServicePort, rejected)
		rig.Expect(t, pod, ways[1], web.VIP, rig.ServicePort, "c")
	})

	t.Run("without endpoints it refuses (R13)", func(t *testing.T) {
		serve(t, web)
		for _, w := range ways {
			rig.ExpectError(t, pod, w, web.VIP, rig.ServicePort, rejected)
		}
	})

	serve(t, web, rig.AllReady(b...)...)
	for name, fault := range map[string]struct {
		breaks, heals func()
		says          string
	}{
		"permission is taken away": {
			breaks: func() {
				cluster.Kubectl("delete", "clusterrolebinding", "reader")
				// What is being watched goes on; a server that starts anew asks again.
				cluster.StopAPIServer()
				cluster.StartAPIServer()
			},
			heals: func() { cluster.Apply(readerBinding) },
			says:  "forbidden",
		},
		"the API server is gone": {
			breaks: cluster.StopAPIServer,
			heals:  cluster.StartAPIServer,
			says:   "refused",
		},
		"the agent starts again while the API server is gone (R33)": {
			breaks: func() {
				cluster.StopAPIServer()
				n.Process.Kill()
				n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig)
			},
			heals: cluster.StartAPIServer,
			says:  "refused",
		},
	} {
		t.Run(name+": what was known stays in force, status says since when, and it heals (R31)", func(t *testing.T) {
			load := startLoad(t, place, append(at(web.VIP, rig.ServicePort), target{ways[1], nodeAddrs, web.NodePort})...)
			began := time.Now().Add(-time.Second)
			fault.breaks()
			rig.Eventually(t, func() error { return n.isStale(t, fault.says, began) })
			if out := n.Run(t, 1, "status"); !strings.Contains(out, "stale") {
				t.Errorf("status does not say stale:\n%s", out)
			}
			reaches(t, "a", "b", "c")
			fault.heals()
			rig.Eventually(t, func() error {
				if s := n.Status(t); !s.Healthy {
					return fmt.Errorf("not healthy: %q", s.Findings)
				}
				return nil
			})
			n.diff(t)
			load.end()
		})
	}

	t.Run("a Service that is deleted is not served any more", func(t *testing.T) {
		cluster.Kubectl("delete", "service", "web")
		n.Settle(t)
		n.diff(t)
		for _, w := range ways {
			expectUntouched(t, pod, w, web.VIP, rig.ServicePort)
			expectClosed(t, pod, w, nodeAddrs, web.NodePort)
		}
	})
}

// diff runs the command, which must find nothing.
func (n *node) diff(t *testing.T) {
	t.Helper()
	if out := n.Run(t, 0, "diff"); !strings.HasPrefix(out, "no drift: api = tables = kernel") {
		t.Errorf("diff says %q", out)
	}
}

// isStale says what is missing for the agent started last to have lost
// Services and EndpointSlices since then.
func (n *node) isStale(t *testing.T, says string, began time.Time) error {
	s, err := n.API.Status(t.Context())
	if err != nil {
		return err
	}
	if s.Healthy || s.PID != n.Process.PID() {
		return fmt.Errorf("process %d is healthy: %v, with sources %+v", s.PID, s.Healthy, s.SourceState)
	}
	for _, source := range s.SourceState {
		if source.Kind == "Node" {
			continue
		}
		if !source.Stale || !strings.Contains(source.Error, says) || source.Since.Before(began) || source.Since.After(time.Now()) {
			return fmt.Errorf("%s: stale: %v since %s: %q", source.Kind, source.Stale, source.Since, source.Error)
		}
	}
	return nil
}
