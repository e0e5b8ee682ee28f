// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
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
		if err := eventually(func() error { return endpointIs(t.Context(), second, addr.String()) }); err != nil {
			t.Error(err)
		}
	})

	t.Run("a server that stops empties default/kubernetes for all", func(t *testing.T) {
		c.TerminateAPIServer()
		if err := eventually(func() error { return endpointIs(t.Context(), second, "") }); err != nil {
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

// endpointIs says whether default/kubernetes has the one address, or none.
func endpointIs(ctx context.Context, server *APIServer, want string) error {
	slices, err := server.Client.DiscoveryV1().EndpointSlices("default").List(ctx,
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
