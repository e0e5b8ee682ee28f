// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// The two Services that lead to the API servers.
const (
	own      = "default/kubernetes"
	intranet = "default/kubernetes-intranet"
)

// Where things are. The API servers' address is not a link-local one as in the
// incident, for API servers take no such endpoint from others.
var (
	servers  = netip.MustParseAddrPort("100.64.128.7:60002")
	node     = netip.MustParseAddr("100.64.128.11")
	podAddr  = netip.MustParseAddr("10.0.1.7")
	podRange = netip.MustParsePrefix("10.0.1.0/24")
)

// The addresses of the Services, all of which lead to the API servers.
const (
	serviceAddress  = "10.96.0.1:443"
	intranetAddress = "10.96.60.179:443"
	vip             = "10.15.1.8:443"
	nodePort        = "100.64.128.11:30965"
)

// intranetYAML is what a cloud's controller makes for clients inside its
// network. Nobody who stops writes to this slice.
const intranetYAML = `apiVersion: v1
kind: Service
metadata: {name: kubernetes-intranet, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.60.179
  ports: [{name: https, port: 443, targetPort: 60002, nodePort: 30965}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kubernetes-intranet-qxgk4
  namespace: default
  labels: {kubernetes.io/service-name: kubernetes-intranet}
addressType: IPv4
endpoints: [{addresses: [100.64.128.7], conditions: {ready: true}}]
ports: [{name: https, port: 60002}]
`

const ingress = `{"status":{"loadBalancer":{"ingress":[{"ip":"10.15.1.8"}]}}}`

const readerYAML = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + kube.Limited + `}]
---
{apiVersion: v1, kind: Node, metadata: {name: n1}}
`

// stage is a machine with the control plane, a node with an agent, and a pod
// on it. Only the node knows the way to the API servers.
type stage struct {
	*rig.Agent
	cluster *kube.Cluster
	server  *kube.APIServer // the one that runs, between plays
	state   string          // the agent's state file
	pod     lab.Place
}

func newStage(t *testing.T) *stage {
	t.Helper()
	control := lab.NewNetNS(t, "control-plane")
	s := &stage{Agent: rig.NewAgent(t, "n1", lab.NewNetNS(t, "n1"), ""), state: filepath.Join(t.TempDir(), "state.json")}
	lab.Veth(t,
		lab.End{NetNS: s.NS, Link: "eth0", Addrs: []string{node.String() + "/24"}},
		lab.End{NetNS: control, Link: "eth0", Addrs: []string{servers.Addr().String() + "/24"}})
	control.Route(t, podRange, node, "eth0")
	s.pod = lab.Place{NetNS: s.NS.Pod(t, "pod", podAddr), Cgroup: s.Cgroup}

	s.cluster = kube.StartShared(t, control, servers)
	s.server = s.cluster.APIServer
	s.cluster.Kubectl("apply", "-f", "../../deploy/rbac.yaml")
	s.cluster.Apply(readerYAML)
	s.cluster.Apply(intranetYAML)
	s.cluster.Kubectl("patch", "service", "kubernetes-intranet", "--subresource=status", "--type=merge", "-p", ingress)
	return s
}

// kubeconfig is that of the agent's user, with the API server at an address of
// the caller's choice.
func (s *stage) kubeconfig(t *testing.T, address string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(s.cluster.LimitedKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + address
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// rows waits until every row of a Service reads like one of these: its action
// and its backends.
func (s *stage) rows(t *testing.T, service string, want ...string) {
	t.Helper()
	rig.Eventually(t, func() error { return s.rowsAre(t.Context(), service, want) })
}

func (s *stage) rowsAre(ctx context.Context, service string, want []string) error {
	rows, err := s.API.Frontends(ctx)
	if err != nil {
		return err
	}
	found := 0
	for _, row := range rows {
		if row.Service != service {
			continue
		}
		found++
		if text := rowText(row); !slices.Contains(want, text) {
			return fmt.Errorf("%s at %s reads %q, want one of %q", service, api.HostPort(row.Address, row.Port), text, want)
		}
	}
	if found == 0 {
		return fmt.Errorf("%s has no row", service)
	}
	return nil
}

func rowText(row api.Frontend) string {
	text := row.Action
	for _, b := range row.Backends {
		text += fmt.Sprintf(" %s:%d %s", b.Address, b.Port, b.State)
	}
	return text
}

// slice is what the API says of default/kubernetes, learned past the agent.
type slice struct {
	mu    sync.Mutex
	known bool
	has   bool // an endpoint
}

// follow begins to watch, by way of one server.
func follow(t *testing.T, server *kube.APIServer) *slice {
	t.Helper()
	s := &slice{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.watch(ctx, server)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return s
}

func (s *slice) watch(ctx context.Context, server *kube.APIServer) {
	w, err := server.Own.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Watch(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=kubernetes"})
	if err != nil {
		return // the connection came to the other server
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if each, ok := event.Object.(*discoveryv1.EndpointSlice); ok {
			s.note(len(each.Endpoints) > 0)
		}
	}
}

func (s *slice) note(has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.has = true, has
}

// is says what is missing for the API to have an endpoint, or to have none.
func (s *slice) is(has bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.has != has {
		return fmt.Errorf("default/kubernetes is known: %v, and has an endpoint: %v; want %v", s.known, s.has, has)
	}
	return nil
}

func (s *slice) wait(t *testing.T, has bool) {
	t.Helper()
	rig.Eventually(t, func() error { return s.is(has) })
}
