// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/test/lab"
)

const manifests = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.1.7], nodeName: n1, conditions: {ready: true}}]
ports: [{name: http, port: 8080}]
`

func TestCluster(t *testing.T) {
	c := Start(t)
	ctx := t.Context()

	t.Run("what kubectl applies can be read back", func(t *testing.T) {
		c.Apply(manifests)
		service, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(service.Spec.ClusterIPs) != 2 {
			t.Errorf("cluster addresses = %q, want one of each family", service.Spec.ClusterIPs)
		}
		for i, cidr := range []string{ServiceCIDR4, ServiceCIDR6}[:len(service.Spec.ClusterIPs)] {
			if !netip.MustParsePrefix(cidr).Contains(netip.MustParseAddr(service.Spec.ClusterIPs[i])) {
				t.Errorf("cluster address %s is not in %s", service.Spec.ClusterIPs[i], cidr)
			}
		}
		got := c.Kubectl("get", "endpointslice", "web-a", "-o", "jsonpath={.endpoints[0].addresses[0]}:{.ports[0].port}")
		if got != "10.0.1.7:8080" {
			t.Errorf("endpoint %s, want 10.0.1.7:8080", got)
		}
	})

	t.Run("every write stands in the audit log with its object", func(t *testing.T) {
		log, err := os.ReadFile(c.AuditLog)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"verb":"patch"`) && strings.Contains(line, `"resource":"endpointslices"`) && strings.Contains(line, "10.0.1.7") {
				return
			}
		}
		t.Errorf("no record of the EndpointSlice among %d bytes", len(log))
	})

	t.Run("the limited user is forbidden what no role allows", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", c.LimitedKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		limited, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		list := func() error {
			_, err := limited.CoreV1().Services("").List(ctx, metav1.ListOptions{})
			return err
		}
		if err := list(); !apierrors.IsForbidden(err) {
			t.Errorf("list: %v, want it forbidden", err)
		}
		c.Kubectl("create", "clusterrole", "reader", "--verb=list", "--resource=services")
		c.Kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user="+Limited)
		if err := eventually(list); err != nil {
			t.Errorf("list with a role for it: %v", err)
		}
	})

	t.Run("a server that is stopped comes back at its address with what it knew", func(t *testing.T) {
		c.StopAPIServer()
		_, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil {
			t.Error("the server answers while it is stopped")
		}
		c.StartAPIServer()
		if _, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// The first of the two incidents that Fairlead is about: a server that stops
// takes out an address that others still answer at.
func TestTwoServers(t *testing.T) {
	ns := lab.NewNetNS(t, "control-plane")
	addr := netip.MustParseAddr("198.51.100.10")
	ns.Addr(t, "lo", addr.String()+"/32")
	c := StartAt(t, ns, addr)
	second := c.AddAPIServer()

	t.Run("both serve the same objects at the address they advertise", func(t *testing.T) {
		c.Apply(manifests)
		if got := second.Kubectl("get", "service", "web", "-o", "name"); got != "service/web\n" {
			t.Errorf("the second server has %q", got)
		}
		if err := eventually(func() error { return endpointIs(t.Context(), second.Client, addr.String()) }); err != nil {
			t.Error(err)
		}
	})

	t.Run("a server that stops empties default/kubernetes for all", func(t *testing.T) {
		c.TerminateAPIServer()
		if err := eventually(func() error { return endpointIs(t.Context(), second.Client, "") }); err != nil {
			t.Error(err)
		}
	})

	t.Run("a server of its own namespace cannot be reached from elsewhere", func(t *testing.T) {
		config := *second.REST
		config.Dial = nil
		config.Timeout = time.Second
		outside, err := kubernetes.NewForConfig(&config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := outside.Discovery().ServerVersion(); err == nil {
			t.Error("the server answered")
		}
	})
}

// What a cloud's load balancer in front of the servers does for the incident.
func TestSharedAddress(t *testing.T) {
	ns := lab.NewNetNS(t, "control-plane")
	at := netip.MustParseAddrPort("198.51.100.10:60002")
	ns.Addr(t, "lo", at.Addr().String()+"/32")
	first := StartShared(t, ns, at)
	second := first.AddAPIServer()
	asks := startAsking(t, first)

	t.Run("both answer at the one address", func(t *testing.T) {
		if err := eventually(func() error { return asks.wants(first.Name(), second.Name()) }); err != nil {
			t.Error(err)
		}
	})

	t.Run("one stops, and the other goes on alone without a connection that failed", func(t *testing.T) {
		first.TerminateAPIServer()
		if err := eventually(func() error { return endpointIs(t.Context(), second.Own, "") }); err != nil {
			t.Error(err)
		}
		if err := eventually(func() error { return asks.wants(second.Name()) }); err != nil {
			t.Error(err)
		}
		if err := eventually(func() error { return endpointIs(t.Context(), second.Own, at.Addr().String()) }); err != nil {
			t.Error(err)
		}
		if failed := asks.stop(); len(failed) > 0 {
			t.Errorf("%d connections failed, the first with %v", len(failed), failed[0])
		}
	})
}

// asking opens connections to the servers all the while.
type asking struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	recent []string // which servers answered last
	failed []error
}

func startAsking(t *testing.T, c *Cluster) *asking {
	t.Helper()
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	ctx, cancel := context.WithCancel(t.Context())
	a := &asking{cancel: cancel, done: make(chan struct{})}
	t.Cleanup(func() { a.stop() })
	go func() {
		defer close(a.done)
		for ctx.Err() == nil {
			a.ask(c, &tls.Config{RootCAs: pool, ServerName: "kubernetes"})
		}
	}()
	return a
}

func (a *asking) ask(c *Cluster, config *tls.Config) {
	var name string
	// It is not the test's context: an attempt that was begun counts.
	conn, err := c.dial(context.Background(), "tcp", netip.AddrPortFrom(c.bind, c.port).String())
	if err == nil {
		defer conn.Close()
		client := tls.Client(conn, config)
		if err = client.Handshake(); err == nil {
			name = client.ConnectionState().PeerCertificates[0].Subject.CommonName
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = append(a.failed, err)
		return
	}
	a.recent = append(a.recent, name)
}

// wants says whether the last hundred connections came to these servers and no
// other.
func (a *asking) wants(names ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.recent) < 100 {
		return fmt.Errorf("%d connections so far", len(a.recent))
	}
	got := slices.Clone(a.recent[len(a.recent)-100:])
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, names) {
		return fmt.Errorf("%q answer, want %q", got, names)
	}
	return nil
}

func (a *asking) stop() []error {
	a.cancel()
	<-a.done
	return a.failed
}

// endpointIs says whether default/kubernetes has the one address, or none.
func endpointIs(ctx context.Context, client kubernetes.Interface, want string) error {
	slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx,
		metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return err
	}
	var got []string
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			got = append(got, endpoint.Addresses...)
		}
	}
	if have := strings.Join(got, " "); have != want {
		return errors.New("default/kubernetes has the addresses " + have + ", want " + want)
	}
	return nil
}

// eventually tries until there is no error, or for ten seconds.
func eventually(try func() error) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestPrograms(t *testing.T) {
	t.Run("they have the version that test/components builds", func(t *testing.T) {
		gomod, err := os.ReadFile("../components/go.mod")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(gomod)) {
			fields := strings.Fields(strings.TrimPrefix(line, "require"))
			if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" && fields[1] == Version {
				return
			}
		}
		t.Errorf("test/components/go.mod does not require k8s.io/kubernetes %s", Version)
	})

	t.Run("where they are missing the error says how to build them", func(t *testing.T) {
		t.Setenv("FAIRLEAD_TEST_CACHE", t.TempDir())
		_, err := programs()
		if err == nil || !strings.Contains(err.Error(), "`make components`") {
			t.Errorf("error %v, want one that names the make target", err)
		}
	})
}
