// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The refusals of the socket path.
const (
	rejected = "ECONNREFUSED"
	dropped  = "EHOSTUNREACH"
)

// outcome is what connections come to: servers that answer, or an error.
type outcome struct {
	servers []string
	err     string
}

func goTo(backends ...*rig.Backend) outcome { return outcome{servers: rig.Names(backends...)} }

func (o outcome) check(t *testing.T, c *traffic.Client, w rig.Way, to rig.Pair, port uint16) {
	t.Helper()
	if o.err != "" {
		rig.ExpectError(t, c, w, to, port, o.err)
		return
	}
	rig.Expect(t, c, w, to, port, o.servers...)
}

func TestPolicies(t *testing.T) {
	const port = 30080
	n := startNode(t)
	local, ending := n.backend(t, "local"), n.backend(t, "ending")
	remote := n.remote(t, "remote")
	homeless := *remote
	homeless.Node = ""
	pod, _ := n.client(t, "client")
	clients := map[string]*traffic.Client{"pod": pod, "node": n.host(t)}

	for _, c := range []struct {
		name      string
		policies  string
		endpoints []rig.Endpoint
		clusterIP outcome
		external  outcome // NodePort, VIP and externalIP
	}{
		{"without policies every endpoint serves", "",
			rig.AllReady(local, remote), goTo(local, remote), goTo(local, remote)},
		{"internalTrafficPolicy Local holds for the ClusterIP alone (R10, R14)", "internalTrafficPolicy: Local",
			rig.AllReady(local, remote), goTo(local), goTo(local, remote)},
		{"internalTrafficPolicy Local without a local endpoint drops (R10)", "internalTrafficPolicy: Local",
			rig.AllReady(remote), outcome{err: dropped}, goTo(remote)},
		{"an endpoint without a nodeName is not local (R42)", "internalTrafficPolicy: Local",
			rig.AllReady(&homeless), outcome{err: dropped}, goTo(remote)},
		{"externalTrafficPolicy Local does not hold for this node and its pods (R12)", "externalTrafficPolicy: Local",
			rig.AllReady(local, remote), goTo(local, remote), goTo(local, remote)},
		{"externalTrafficPolicy Local without a local endpoint does not drop them either (R12)", "externalTrafficPolicy: Local",
			rig.AllReady(remote), goTo(remote), goTo(remote)},
		{"both policies Local: each address by its own rule (R14)", "internalTrafficPolicy: Local, externalTrafficPolicy: Local",
			rig.AllReady(local, remote), goTo(local), goTo(local, remote)},
		{"no endpoint at all rejects (R13)", "",
			nil, outcome{err: rejected}, outcome{err: rejected}},
		{"no endpoint at all rejects, whatever the policies (R13)", "internalTrafficPolicy: Local, externalTrafficPolicy: Local",
			nil, outcome{err: rejected}, outcome{err: rejected}},
		{"endpoints that are not ready do not count (R7)", "",
			[]rig.Endpoint{rig.NotReady(local), rig.NotReady(remote)}, outcome{err: rejected}, outcome{err: rejected}},
		{"terminating endpoints do not serve beside ready ones (R7)", "",
			[]rig.Endpoint{rig.Ready(local), rig.Terminating(ending)}, goTo(local), goTo(local)},
		{"terminating endpoints serve only when nothing is ready (R7)", "",
			[]rig.Endpoint{rig.NotReady(local), rig.Terminating(ending)}, goTo(ending), goTo(ending)},
		{"the fallback to terminating endpoints is the policy's own (R7)", "internalTrafficPolicy: Local",
			[]rig.Endpoint{rig.Ready(remote), rig.Terminating(ending)}, goTo(ending), goTo(remote)},
	} {
		t.Run(c.name, func(t *testing.T) {
			vip, externalIP := n.externalAddress(), n.externalAddress()
			s := rig.Service{
				Name: "web", VIP: n.vip(), NodePort: port,
				Ingress: []string{fmt.Sprintf("{ip: %s}, {ip: %q}", vip.V4, vip.V6)},
				Spec:    fmt.Sprintf("type: LoadBalancer, externalIPs: [%s, %q], %s", externalIP.V4, externalIP.V6, c.policies),
			}
			n.Serve(t, s, c.endpoints...)
			for _, w := range ways {
				for from, client := range clients {
					t.Logf("%s from the %s", w.Name, from)
					c.clusterIP.check(t, client, w, s.VIP, rig.ServicePort)
					c.external.check(t, client, w, nodeAddrs, port)
					c.external.check(t, client, w, vip, rig.ServicePort)
					c.external.check(t, client, w, externalIP, rig.ServicePort)
				}
			}
		})
	}
}
