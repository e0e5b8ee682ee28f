// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vishvananda/netns"

	"github.com/fairlead-io/fairlead/deploy"
	"github.com/fairlead-io/fairlead/internal/api"
)

// Where things are. Node, VIP, node port and the servers' port are those of the
// incident. The servers' own address was link-local there, which API servers
// take from nobody but themselves.
var (
	incidentNode    = netip.MustParseAddr("10.15.0.4")
	incidentPod     = netip.MustParseAddr("172.16.0.23")
	incidentServers = netip.MustParseAddrPort("100.64.128.7:60002")
	incidentVIPs    = []netip.Addr{
		netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.60.179"), netip.MustParseAddr("10.15.1.8"),
	}
)

// The Services in front of the API servers, and how they are dialled.
const (
	ownService      = "default/kubernetes"
	intranetService = "default/kubernetes-intranet"

	ownAddress      = "192.168.0.1:443"
	intranetAddress = "192.168.60.179:443"
	vipAddress      = "10.15.1.8:443"
)

const incidentObjects = `{apiVersion: v1, kind: Node, metadata: {name: 10.15.0.4}}
---
apiVersion: v1
kind: Service
metadata: {name: kubernetes-intranet, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 192.168.60.179
  ports: [{name: https, port: 443, targetPort: 60002, nodePort: 30965}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes-intranet-qxgk4, namespace: default, labels: {kubernetes.io/service-name: kubernetes-intranet}}
addressType: IPv4
endpoints: [{addresses: [100.64.128.7], conditions: {ready: true}}]
ports: [{name: https, port: 60002}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fairlead-demo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: fairlead}]
---
`

const incidentIngress = `{"status":{"loadBalancer":{"ingress":[{"ip":"10.15.1.8"}]}}}`

// incident is the stage with a control plane and those who use it.
type incident struct {
	*stage
	plane    *plane
	serving  *replica // the API server that goes on
	leaving  *replica // the one that is about to stop, or has
	recorder *program // nil if nothing is recorded
	visitors []*visitor
	began    time.Time
}

// PlayIncident is the first incident on real API servers, inside the namespaces
// that Run made. If a folder is named, a recording of it stays there.
func PlayIncident(ctx context.Context, components, keep string, out, errOut io.Writer) error {
	// What this thread starts dies with it: keep it.
	runtime.LockOSThread()
	s, err := newStage(out, errOut, incidentNode)
	if err != nil {
		return err
	}
	i := &incident{stage: s, began: time.Now()}
	i.plane = &plane{
		bin: components, work: filepath.Join(s.work, "plane"), keep: keep,
		at: incidentServers, services: "192.168.0.0/16", names: incidentVIPs,
	}
	for _, scene := range []func(context.Context) error{i.cluster, i.record, i.resize, i.unretained, i.close} {
		if err := scene(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

// say tells what happens, and when.
func (i *incident) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	text = strings.ReplaceAll(text, "\n", "\n          ")
	fmt.Fprintf(i.out, "\n[%5.1f s] %s\n", time.Since(i.began).Seconds(), strings.ReplaceAll(text, "          \n", "\n"))
}

// cluster sets up what was there on the day.
func (i *incident) cluster(ctx context.Context) error {
	i.title("1. A cluster whose API servers share one address")
	i.say("etcd and %s start. Every API server advertises %s, the address of the\nload balancer before them (169.254.128.7:60002 in the incident).", "kube-apiserver-1", incidentServers)
	if err := i.startPlane(ctx); err != nil {
		return err
	}
	i.say("A cloud's controller has made kubernetes-intranet with the same endpoint, for clients inside the\nnetwork. Its name begins with the name of the other Service.")
	if err := i.kubectl("get", "services,endpointslices"); err != nil {
		return err
	}
	i.say("An agent starts on the node %s. Its kubeconfig names the VIP %s, as that of Cilium's\nagents did; --api-server names an API server itself.", incidentNode, vipAddress)
	if err := i.startIncidentAgent(); err != nil {
		return err
	}
	if err := i.rows(ownService, served); err != nil {
		return err
	}
	return i.frontends()
}

func (i *incident) startPlane(ctx context.Context) (err error) {
	if err := os.Mkdir(i.plane.work, 0o700); err != nil {
		return fmt.Errorf("make a folder for the control plane: %w", err)
	}
	if err := i.network.addPod(incidentPod); err != nil {
		return err
	}
	i.plane.ns, err = i.network.distant("control", incidentServers.Addr(), incidentNode, incidentPod)
	if err != nil {
		return err
	}
	if err := i.plane.start(); err != nil {
		return err
	}
	if i.serving, err = i.plane.add(ctx); err != nil {
		return err
	}
	if _, err := i.plane.kubectl(incidentObjects+deploy.RBAC, "apply", "--server-side", "--filename=-"); err != nil {
		return err
	}
	_, err = i.plane.kubectl("", "patch", "service", "kubernetes-intranet", "--subresource=status", "--type=merge", "-p", incidentIngress)
	return err
}

func (i *incident) startIncidentAgent(more ...string) error {
	config, err := i.plane.kubeconfig(agentUser, vipAddress)
	if err != nil {
		return err
	}
	return i.startAgent(append([]string{
		"--node-name", incidentNode.String(), "--cluster-cidr", "172.16.0.0/16", "--service-cidr", i.plane.services,
		"--kubeconfig", config, "--api-server", incidentServers.String(), "--state-file", filepath.Join(i.work, "state.json"),
	}, more...)...)
}

// visit lets a pod and the node use the API server by each address, and
// returns when all do.
func (i *incident) visit(ctx context.Context) error {
	here, err := netns.Get()
	if err != nil {
		return fmt.Errorf("find the node's namespace: %w", err)
	}
	for from, ns := range map[string]netns.NsHandle{"pod": i.network.podsNS, "kubelet": here} {
		for _, through := range []string{ownAddress, intranetAddress, vipAddress} {
			v := &visitor{from: from, through: through, dial: dialIn(ns, from), token: i.plane.tokens[admin], plane: i.plane}
			i.visitors = append(i.visitors, v)
			go v.visit(ctx)
		}
	}
	slices.SortStableFunc(i.visitors, func(a, b *visitor) int { return strings.Compare(b.from, a.from) })
	return i.until("pod and node to reach the API server", func() (bool, error) {
		for _, v := range i.visitors {
			if got := v.found(); got.answered == 0 || got.watches == 0 {
				return false, fmt.Errorf("%s through %s: %+v", v.from, v.through, got)
			}
		}
		return true, nil
	})
}

// How rows read: their action, and the states of their backends.
const (
	served     = "forward active"
	retained   = "forward retained"
	unverified = "forward unverified"
	rejecting  = "reject"
)

// rows waits until every row of the Service reads like one of these.
func (i *incident) rows(service string, want ...string) error {
	return i.until(fmt.Sprintf("the rows of %s to say %s", service, strings.Join(want, " or ")), func() (bool, error) {
		frontends, err := i.client.Frontends(context.Background())
		if err != nil {
			return false, err
		}
		found := false
		for _, row := range frontends {
			if row.Service != service {
				continue
			}
			if text := reading(row); !slices.Contains(want, text) {
				return false, fmt.Errorf("%s says %s", api.HostPort(row.Address, row.Port), text)
			}
			found = true
		}
		return found, nil
	})
}

func reading(row api.Frontend) string {
	states := []string{row.Action}
	for _, b := range row.Backends {
		states = append(states, b.State)
	}
	return strings.Join(states, " ")
}

func (i *incident) frontends() error {
	_, err := i.run("get", "frontends", ownService, intranetService)
	return err
}

// kubectl shows a command and what it prints.
func (i *incident) kubectl(args ...string) error {
	fmt.Fprintf(i.out, "\n$ kubectl -n default %s\n", strings.Join(args, " "))
	text, err := i.plane.kubectl("", append([]string{"-n", "default"}, args...)...)
	fmt.Fprint(i.out, text)
	return err
}

// empty waits until the API has an endpoint of default/kubernetes, or none.
func (i *incident) empty(ctx context.Context, want bool) error {
	return i.until(fmt.Sprintf("default/kubernetes to be empty: %v", want), func() (bool, error) {
		n, err := i.plane.endpoints(ctx)
		return err == nil && (n == 0) == want, err
	})
}

// counts prints what the visitors have found since it was last forgotten, and
// returns what went wrong, except through the address where it may. If
// something was changed meanwhile, each must have been told of it.
func (i *incident) counts(mayFail string, changed bool) error {
	w := tabwriter.NewWriter(i.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nFROM\tTHROUGH\tCONNECTIONS\tFAILED\tFIRST FAILURE\tWATCH")
	var wrong []error
	for _, v := range i.visitors {
		got := v.found()
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", v.from, v.through, got.answered+got.failed, got.failed, got.first, got.watch())
		if v.through != mayFail && got.failed+got.unheld > 0 {
			wrong = append(wrong, fmt.Errorf("%s through %s failed", v.from, v.through))
		}
		if changed && got.events == 0 {
			wrong = append(wrong, fmt.Errorf("%s through %s was told of no change by its watch", v.from, v.through))
		}
		if got.answered == 0 {
			wrong = append(wrong, fmt.Errorf("%s through %s had no answer", v.from, v.through))
		}
	}
	return errors.Join(append(wrong, w.Flush())...)
}

// allAnswered waits until each visitor has had an answer since it was last
// forgotten, those too who were refused till a moment ago.
func (i *incident) allAnswered() error {
	return i.until("everybody to reach the API server", func() (bool, error) {
		for _, v := range i.visitors {
			if v.found().answered == 0 {
				return false, fmt.Errorf("%s through %s had no answer", v.from, v.through)
			}
		}
		return true, nil
	})
}

// forget lets the visitors count anew.
func (i *incident) forget() {
	for _, v := range i.visitors {
		v.restart()
	}
}

// monitor shows refused connections, and steps of a retention, until it is
// ended; then it prints the first of them.
func (i *incident) monitor() (end func() error, err error) {
	var text strings.Builder
	cmd := exec.Command(i.self, "monitor")
	cmd.Env = append(without(os.Environ(), stageVariable), "FAIRLEAD_SOCKET="+i.socket)
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start fairlead monitor: %w", err)
	}
	return func() error {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			return fmt.Errorf("end fairlead monitor: %w", err)
		}
		cmd.Wait() // an interrupt is no success
		fmt.Fprintln(i.out, "\n$ fairlead monitor")
		lines := slices.Collect(strings.Lines(text.String()))
		for _, line := range lines[:min(len(lines), monitorLines)] {
			fmt.Fprint(i.out, line)
		}
		if more := len(lines) - monitorLines; more > 0 {
			fmt.Fprintf(i.out, "… and %d lines more\n", more)
		}
		return nil
	}, nil
}

// monitorLines is how many lines of a monitor are shown.
const monitorLines = 8
