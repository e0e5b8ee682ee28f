// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab/traffic"
	"github.com/fairlead-io/fairlead/test/rig"
)

// kubernetes is the address of default/kubernetes.
const kubernetes = "10.96.0.1:443"

// kubeNode is a node on which the API server lives, and a cluster that lets an
// agent read what it needs.
func kubeNode(t *testing.T) (*node, *kube.Cluster) {
	t.Helper()
	n := newNode(t)
	cluster := kube.StartAt(t, n.NS, nodeAddrs.V4)
	cluster.Kubectl("apply", "-f", rbac)
	cluster.Apply(readerBinding)
	cluster.Apply("{apiVersion: v1, kind: Node, metadata: {name: " + nodeName + "}}")
	return n, cluster
}

// remembers waits until the state file knows the API server's address, and what
// its Service has.
func (n *node) remembers(t *testing.T, at string) {
	t.Helper()
	rig.Eventually(t, func() error {
		text, err := os.ReadFile(n.StateFile)
		if err != nil {
			return err
		}
		if strings.Count(string(text), at) < 2 || !strings.Contains(string(text), "10.96.0.1") {
			return fmt.Errorf("the state file says\n%s", text)
		}
		return nil
	})
}

// reboot ends the agent and takes away what a reboot does.
func (n *node) reboot(t *testing.T) {
	t.Helper()
	n.Process.Kill()
	n.Run(t, 0, "cleanup")
}

func serverAddress(c *kube.Cluster) string { return strings.TrimPrefix(c.URL, "https://") }

// servingNode is one whose agent serves the Service web, with the backend "a",
// and has written its state file; and a pod on it.
func servingNode(t *testing.T) (*node, *kube.Cluster, *traffic.Client, rig.Service) {
	t.Helper()
	n, cluster := kubeNode(t)
	pod, _ := n.client(t, "client")
	n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig)
	n.Ready(t)
	b := n.backend(t, "a")
	web := rig.Service{Name: "web", VIP: rig.ParsePair("10.96.0.77", "fd00:10:96::77"), Spec: "ipFamilyPolicy: RequireDualStack"}
	cluster.Apply(web.YAML(rig.AllReady(b)))
	n.Settle(t)
	n.remembers(t, serverAddress(cluster))
	return n, cluster, pod, web
}

func TestANodeIsRebootedWhileNoAPIServerAnswers(t *testing.T) {
	n, cluster, pod, web := servingNode(t)

	cluster.StopAPIServer()
	n.reboot(t)
	n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig)

	t.Run("the rows of the API server's own Service are restored, and marked (R33, R40)", func(t *testing.T) {
		rig.Eventually(t, func() error {
			rows, err := n.API.Frontends(t.Context())
			if err != nil {
				return err
			}
			if len(rows) != 1 || rows[0].Service != "default/kubernetes" || rows[0].Status != api.StatusDone ||
				len(rows[0].Backends) != 1 || rows[0].Backends[0].State != "unverified" ||
				api.HostPort(rows[0].Backends[0].Address, rows[0].Backends[0].Port) != serverAddress(cluster) {
				return fmt.Errorf("rows %+v", rows)
			}
			return nil
		})
	})
	t.Run("status says so, and that the node serves nothing else yet", func(t *testing.T) {
		out := n.Run(t, 1, "status")
		for _, want := range []string{"the state file remembers", "default/kubernetes", "the first lists are not in the kernel yet"} {
			if !strings.Contains(out, want) {
				t.Errorf("status does not say %q:\n%s", want, out)
			}
		}
		if s := n.Status(t); s.Synced || s.Healthz.Healthz != 503 || s.Healthz.Livez != 200 {
			t.Errorf("synced: %v, %+v", s.Synced, s.Healthz)
		}
	})
	t.Run("explain and the kernel have the row", func(t *testing.T) {
		if out := n.Run(t, 0, "explain", "default/kubernetes"); !strings.Contains(out, "unverified") {
			t.Errorf("explain:\n%s", out)
		}
		if out := n.Run(t, 0, "get", "kernel"); !strings.Contains(out, "10.96.0.1") || strings.Contains(out, "10.96.0.77") {
			t.Errorf("kernel:\n%s", out)
		}
	})
	t.Run("a pod reaches the API server as soon as that is back, before and after the agent has heard of it", func(t *testing.T) {
		done := make(chan struct{})
		go func() { defer close(done); cluster.StartAPIServer() }()
		rig.Eventually(t, func() error {
			conn, reply := pod.Open(traffic.TCP, kubernetes)
			if reply.Error != "" {
				return fmt.Errorf("%s", reply)
			}
			conn.Close()
			return nil
		})
		for healed := false; !healed; healed = n.Status(t).Synced {
			conn, reply := pod.Open(traffic.TCP, kubernetes)
			if reply.Error != "" {
				t.Fatalf("connect: %s", reply)
			}
			conn.Close()
		}
		<-done
	})
	t.Run("all else heals by itself", func(t *testing.T) {
		rig.Eventually(t, func() error {
			if s := n.Status(t); !s.Healthy {
				return fmt.Errorf("not healthy: %q", s.Findings)
			}
			return nil
		})
		n.diff(t)
		rig.Expect(t, pod, ways[0], web.VIP, rig.ServicePort, "a")
	})
}

// Whoever starts on maps that no program uses any more, or yet, has them used
// again without having heard of the API.
func TestProgramsThatAreGoneComeBackWhileNoAPIServerAnswers(t *testing.T) {
	n, cluster, pod, web := servingNode(t)

	cluster.StopAPIServer()
	n.Process.Kill()
	if err := os.RemoveAll(filepath.Join(n.Pins, "links")); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error {
		if reply := pod.Ask(traffic.TCP, ways[0].To(web.VIP, rig.ServicePort).String()); reply.Error == "" {
			return fmt.Errorf("a Service is served without programs: %v", reply)
		}
		return nil
	})
	n.Launch(t, "--kubeconfig", cluster.LimitedKubeconfig)
	rig.Eventually(t, func() error {
		_, reply := pod.Open(traffic.TCP, kubernetes)
		if reply.Error != "ECONNREFUSED" {
			return fmt.Errorf("a pod is not led to the API server, which does not run: %v", reply)
		}
		return nil
	})
	rig.Expect(t, pod, ways[0], web.VIP, rig.ServicePort, "a")
	if n.Status(t).Synced {
		t.Error("the agent has heard of the API")
	}

	cluster.StartAPIServer()
	n.Ready(t)
	n.diff(t)
}

// launchInPod starts an agent as in a pod of a DaemonSet: with a service
// account, and an environment that names the Service of the API server.
func (n *node) launchInPod(t *testing.T, cluster *kube.Cluster, flags ...string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cluster.LimitedKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(config.AuthInfos[kube.Limited].Token), 0o600); err != nil {
		t.Fatal(err)
	}
	// The folder is a fixed one, which only the agent shall see.
	const script = `mount -t tmpfs none /run && account=/run/secrets/kubernetes.io/serviceaccount && mkdir -p $account &&
		cp "$1" $account/token && cp "$2" $account/ca.crt && shift 2 && exec "$@"`
	args := []string{"--mount", "env", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "sh", "-c", script, "sh", token, cluster.CAFile}
	n.Process = n.Place().Start(t, "unshare", slices.Concat(args, []string{n.Program}, n.Args(flags...))...)
}

func TestAPodsEnvironmentNamesAServiceOnly(t *testing.T) {
	n, cluster := kubeNode(t)
	direct := netip.MustParseAddrPort(serverAddress(cluster)).String()
	synced := func(t *testing.T) {
		t.Helper()
		n.Ready(t)
		if s := n.Status(t); s.APIServer == nil || s.APIServer.Current != "https://"+direct {
			t.Errorf("the agent uses %+v", s.APIServer)
		}
	}

	t.Run("with no address known and nobody answering there, it ends and names the flag", func(t *testing.T) {
		began := time.Now()
		n.launchInPod(t, cluster)
		err := n.Process.Wait()
		if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(n.Process.Stderr(), "--api-server") {
			t.Errorf("it ended with %v after %s:\n%s", err, time.Since(began), n.Process.Stderr())
		}
	})
	t.Run("a first start needs the flag only", func(t *testing.T) {
		n.launchInPod(t, cluster, "--api-server", direct)
		synced(t)
		n.remembers(t, direct)
	})
	t.Run("a later one remembers the address", func(t *testing.T) {
		n.Process.Kill()
		n.launchInPod(t, cluster)
		synced(t)
	})
	t.Run("without the file, the maps of its predecessor have it, though no program uses them", func(t *testing.T) {
		n.Process.Kill()
		if err := errors.Join(os.Remove(n.StateFile), os.RemoveAll(filepath.Join(n.Pins, "links"))); err != nil {
			t.Fatal(err)
		}
		n.launchInPod(t, cluster)
		synced(t)
		n.remembers(t, direct)
	})
	t.Run("a file that cannot be read is ignored, said, and written anew", func(t *testing.T) {
		n.Process.Kill()
		if err := os.WriteFile(n.StateFile, []byte(`{"format":1,"checksum":"00","content":{}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		n.launchInPod(t, cluster)
		synced(t)
		n.remembers(t, direct)
		if said := n.Process.Stderr(); !strings.Contains(said, "the state file is ignored") {
			t.Errorf("the agent says\n%s", said)
		}
	})
	t.Run("what default/kubernetes had is known from the maps, too, if it was emptied meanwhile (R40)", func(t *testing.T) {
		// The API server mends that within ten seconds.
		rig.Eventually(t, func() error {
			n.Process.Kill()
			if err := os.Remove(n.StateFile); err != nil {
				t.Fatal(err)
			}
			cluster.Kubectl("delete", "endpointslice", "kubernetes")
			n.launchInPod(t, cluster)
			n.Ready(t)
			rows, err := n.API.Frontends(t.Context())
			if err != nil {
				return err
			}
			if len(rows) != 1 || len(rows[0].Backends) != 1 {
				t.Fatalf("rows %+v", rows)
			}
			if state := rows[0].Backends[0].State; state != "unverified" && state != "retained" {
				return fmt.Errorf("the API server was quicker: the backend is %s", state)
			}
			return nil
		})
		rig.Eventually(t, func() error {
			if s := n.Status(t); !s.Healthy {
				return fmt.Errorf("not healthy: %q", s.Findings)
			}
			return nil
		})
	})
}
