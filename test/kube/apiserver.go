// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/test/lab"
)

// readyTimeout bounds the start of a server, which takes about four seconds on
// a machine with nothing else to do.
const readyTimeout = 2 * time.Minute

// APIServer is one kube-apiserver with what it takes to use it. Everything
// stays the same when the server is stopped and started again.
type APIServer struct {
	URL string
	// CAFile holds the certificate that vouches for the server.
	CAFile string
	// Kubeconfig and Client are those of a user who may do everything.
	Kubeconfig string
	REST       *rest.Config
	Client     kubernetes.Interface
	// Own is a client of this server alone. Where servers share an address a
	// request fails if its connection came to another one: ask again.
	Own kubernetes.Interface
	// LimitedKubeconfig is that of the user Limited.
	LimitedKubeconfig string
	// AuditLog is where the server notes every write, with the object.
	AuditLog string

	cluster *Cluster
	name    string
	port    uint16
	process *lab.Process
}

// prepare fills in all but the process.
func (a *APIServer) prepare(port uint16) error {
	a.port = port
	a.URL = "https://" + netip.AddrPortFrom(a.cluster.bind, port).String()
	a.CAFile = a.cluster.file(caFile)
	a.AuditLog = a.file("audit.log")
	var err error
	if err := a.writeCertificate(); err != nil {
		return err
	}
	if a.Kubeconfig, err = a.writeKubeconfig(admin); err != nil {
		return err
	}
	if a.LimitedKubeconfig, err = a.writeKubeconfig(Limited); err != nil {
		return err
	}
	if a.REST, err = clientcmd.BuildConfigFromFlags("", a.Kubeconfig); err != nil {
		return err
	}
	a.REST.QPS = -1 // a test asks as often as it likes
	if a.cluster.ns != nil {
		a.REST.Dial = a.cluster.dial
	}
	if a.Client, err = kubernetes.NewForConfig(a.REST); err != nil {
		return err
	}
	own := rest.CopyConfig(a.REST)
	own.ServerName = a.name
	a.Own, err = kubernetes.NewForConfig(own)
	return err
}

// dial opens a connection from within the cluster's namespace, which works
// from any goroutine since the address is a single one.
func (c *Cluster) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	c.ns.Do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, addr) })
	return conn, err
}

func (a *APIServer) file(name string) string { return a.cluster.file(a.name + "-" + name) }

// Name is what the server's certificate calls it, which tells those that share
// an address from each other.
func (a *APIServer) Name() string { return a.name }

// sharedStarts is how often a server is started that shares its port. At its
// start it asks itself for Services, once, and ends after a minute if the kernel
// has given that connection to another server.
const sharedStarts = 3

// StartAPIServer starts the server where it was before, and returns when it is
// ready and the cluster has what every cluster has.
func (a *APIServer) StartAPIServer() {
	t := a.cluster.t
	t.Helper()
	starts := 1
	if a.cluster.shared != 0 {
		starts = sharedStarts
	}
	for range starts {
		if a.start() {
			return
		}
	}
	t.Fatalf("%s ended at its start:\n%s", a.name, a.process.Stderr())
}

// start says whether the server is ready, and not at its end.
func (a *APIServer) start() bool {
	t := a.cluster.t
	t.Helper()
	// The machine's name is part of the name of the server's identity lease.
	place := a.cluster.place()
	place.Hostname = a.name
	a.process = place.Start(t, a.cluster.program("kube-apiserver"), a.flags()...)
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	for {
		err := a.ready(ctx)
		if err == nil {
			return true
		}
		select {
		case <-a.process.Done():
			return false
		case <-ctx.Done():
			t.Fatalf("%s is not ready after %s: %v", a.name, readyTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (a *APIServer) ready(ctx context.Context) error {
	if _, err := a.Own.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	// It exists once Services get addresses.
	if _, err := a.Own.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
		return err
	}
	return a.cluster.leased(ctx)
}

// leased says whether a server has noted in etcd that it serves at the address
// that all advertise. One that starts takes out what others have noted, and
// one that stops before it is there again leaves default/kubernetes alone.
func (c *Cluster) leased(ctx context.Context) error {
	key := base64.StdEncoding.EncodeToString([]byte("/registry/masterleases/" + c.advertise.String()))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+"/v3/kv/range",
		strings.NewReader(`{"key":"`+key+`","count_only":true}`))
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if c.ns != nil {
		transport.DialContext = c.dial
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var found struct{ Count string }
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return fmt.Errorf("ask etcd for the servers' lease: %w", err)
	}
	if found.Count != "1" {
		return fmt.Errorf("no server holds a lease on %s", c.advertise)
	}
	return nil
}

func (a *APIServer) flags() []string {
	c := a.cluster
	return []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=" + c.bind.String(),
		"--secure-port=" + fmt.Sprint(a.port),
		"--advertise-address=" + c.advertise.String(),
		"--permit-port-sharing=" + fmt.Sprint(c.shared != 0),
		"--tls-cert-file=" + a.file(certFile),
		"--tls-private-key-file=" + c.file(keyFile),
		"--token-auth-file=" + c.file(tokenFile),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file(keyFile),
		"--service-account-signing-key-file=" + c.file(keyFile),
		"--service-cluster-ip-range=" + ServiceCIDR4 + "," + ServiceCIDR6,
		"--disable-admission-plugins=ServiceAccount", // nothing here makes the accounts it asks for
		"--audit-policy-file=" + c.file(auditPolicyFile),
		"--audit-log-path=" + a.AuditLog,
		"--profiling=false",
	}
}

// StopAPIServer kills the server, as a crash does. Its connections break.
func (a *APIServer) StopAPIServer() { a.process.Kill() }

// TerminateAPIServer asks the server to end, as a node's shutdown does, and
// does not wait: a server takes its address out of default/kubernetes at once,
// and may serve those that are connected for a minute more. Done tells.
func (a *APIServer) TerminateAPIServer() { a.process.Signal(syscall.SIGTERM) }

// Done is closed when the running server has ended.
func (a *APIServer) Done() <-chan struct{} { return a.process.Done() }

// Kubectl runs kubectl against the server and returns what it printed. It must
// succeed.
func (a *APIServer) Kubectl(args ...string) string {
	t := a.cluster.t
	t.Helper()
	return a.cluster.place().Run(t, a.cluster.program("kubectl"), a.kubectlArgs(args)...)
}

// Apply gives manifests to `kubectl apply`, on the server's side.
func (a *APIServer) Apply(manifests string) {
	t := a.cluster.t
	t.Helper()
	args := a.kubectlArgs([]string{"apply", "--server-side", "--filename=-"})
	kubectl := a.cluster.place().Start(t, a.cluster.program("kubectl"), args...)
	kubectl.WriteLine(manifests)
	if err := kubectl.Wait(); err != nil {
		t.Fatalf("apply: %v\n%s", err, kubectl.Stderr())
	}
}

// kubectlArgs keeps kubectl's cache of the API apart from the user's own.
func (a *APIServer) kubectlArgs(args []string) []string {
	return append([]string{"--kubeconfig=" + a.Kubeconfig, "--cache-dir=" + a.cluster.file("kubectl-cache")}, args...)
}
