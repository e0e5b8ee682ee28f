// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// Plane is a data plane that can be asked in its pods.
type Plane string

// The data planes.
const (
	Fairlead  Plane = "fairlead"
	Cilium    Plane = "cilium"
	KubeProxy Plane = "kube-proxy"
)

// label is what the manifests of the data plane give to its pods.
func (p Plane) label() string { return p.labelKey() + "=" + string(p) }

func (p Plane) labelKey() string {
	if p == Fairlead {
		return "app.kubernetes.io/name"
	}
	return "k8s-app"
}

// container is where the tools are, in such a pod.
func (p Plane) container() string {
	if p == Cilium {
		return "cilium-agent"
	}
	return string(p)
}

func (p Plane) commands() []command {
	switch p {
	case Fairlead:
		return fairleadCommands()
	case Cilium:
		return append(ciliumCommands(), conntrackOfPod())
	}
	all := []command{{file: "kube-proxy-version.txt", kind: evidence.KubeProxyVersion, argv: []string{"kube-proxy", "--version"}}}
	return append(all, conntrackOfPod())
}

// command is a program whose output is a record.
type command struct {
	file string
	kind evidence.Kind
	argv []string
	// old is what argv[0] was called in older versions; "": no other name.
	old string
}

func fairleadCommands() []command {
	return []command{
		{file: "fairlead-status.json", kind: evidence.FairleadStatus, argv: []string{"fairlead", "status", "-o", "json"}},
		{file: "fairlead-frontends.json", kind: evidence.FairleadFrontends, argv: []string{"fairlead", "get", "frontends", "-o", "json"}},
		{file: "fairlead-kernel.json", kind: evidence.FairleadKernel, argv: []string{"fairlead", "get", "kernel", "-o", "json"}},
	}
}

// ciliumCommands are what Cilium's agent prints. The tables of its shell are
// there from 1.18 on, the list of services until then and later.
func ciliumCommands() []command {
	dbg := func(file string, kind evidence.Kind, args ...string) command {
		return command{file: file, kind: kind, argv: append([]string{"cilium-dbg"}, args...), old: "cilium"}
	}
	return []command{
		dbg("cilium-version.txt", evidence.CiliumVersion, "version"),
		dbg("cilium-status.txt", evidence.CiliumStatus, "status", "--verbose"),
		dbg("cilium-config.txt", evidence.CiliumConfig, "config", "--all"),
		dbg("cilium-endpoints.json", evidence.CiliumEndpoints, "endpoint", "list", "-o", "json"),
		dbg("cilium-identities.json", evidence.CiliumIdentities, "identity", "list", "-o", "json"),
		dbg("cilium-metrics.txt", evidence.CiliumMetrics, "metrics", "list"),
		dbg("dump-cilium-backends.txt", evidence.Dump, "shell", "--", "db/show", "backends"),
		dbg("dump-cilium-frontends.txt", evidence.Dump, "shell", "--", "db/show", "frontends"),
		dbg("dump-cilium-services.txt", evidence.Dump, "service", "list"),
		dbg("dump-cilium-maps.txt", evidence.Dump, "bpf", "lb", "list"),
	}
}

func conntrackOfPod() command {
	return command{file: "conntrack.txt", kind: evidence.Conntrack, argv: conntrackCommand}
}

// eitherName runs a command, and under its old name where there is no new one.
func eitherName(c command, run func(argv []string) (output, error)) (output, error) {
	out, err := run(c.argv)
	if c.old == "" || !errors.Is(err, errNoProgram) {
		return out, err
	}
	return run(append([]string{c.old}, c.argv[1:]...))
}

// pod is one in which commands run.
type pod struct {
	plane                      Plane
	namespace, name, container string
	node                       string
}

// errNoPods says that a data plane has no pods where they were looked for.
var errNoPods = errors.New("is the data plane another one, or does it run without pods? On its nodes `fairlead bundle` reads it without them")

// podsOf finds the running pods of data planes.
func (c *cluster) podsOf(planes []Plane, nodes []string) (all []pod, err error) {
	if c.podsErr != nil && len(planes) > 0 {
		return nil, c.podsErr
	}
	for _, plane := range planes {
		before := len(all)
		for i := range c.pods {
			all = plane.add(all, &c.pods[i], nodes)
		}
		if len(all) == before {
			return nil, fmt.Errorf("no running pod has the label %s and a container %s%s: %w", plane.label(), plane.container(), onNodes(nodes), errNoPods)
		}
	}
	return all, nil
}

func onNodes(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	return " on " + strings.Join(nodes, ", ")
}

// runs says whether a data plane has a running pod on a node, as far as that is
// known.
func (c *cluster) runs(plane Plane, node string) bool {
	if c == nil {
		return false
	}
	return slices.ContainsFunc(c.pods, func(p corev1.Pod) bool { return len(plane.add(nil, &p, []string{node})) > 0 })
}

// add adds a pod if it is one of the data plane's and commands can run in it.
func (p Plane) add(all []pod, found *corev1.Pod, nodes []string) []pod {
	if found.Labels[p.labelKey()] != string(p) || found.Status.Phase != corev1.PodRunning || len(nodes) > 0 && !slices.Contains(nodes, found.Spec.NodeName) {
		return all
	}
	for _, c := range found.Spec.Containers {
		if c.Name == p.container() {
			return append(all, pod{p, found.Namespace, found.Name, c.Name, found.Spec.NodeName})
		}
	}
	return all
}

// sources are what the commands print in the pod.
func (p pod) sources(api *cluster) group {
	source := func(c command) source { return p.source(api, c) }
	var all group
	var silent error // why the agent is not asked again
	for _, c := range p.plane.commands() {
		s := source(c)
		switch c.kind {
		case evidence.FairleadStatus:
			s.read = first(s.read, &silent)
		case evidence.FairleadFrontends:
			s.read = unless(s.read, &silent)
		}
		all = append(all, s)
	}
	if p.plane == KubeProxy {
		all = append(all, rules{meant: true, source: source}.group()...)
	}
	return all
}

// podAgentTime is agentTime with the way through an API server.
const podAgentTime = 10 * time.Second

// first is a bounded question to an agent, and notes why it was not answered.
func first(read reader, silent *error) reader {
	return func(ctx context.Context) (output, error) {
		ctx, cancel := context.WithTimeout(ctx, podAgentTime)
		defer cancel()
		out, err := read(ctx)
		*silent = err
		return out, err
	}
}

// unless asks nobody who did not answer before.
func unless(read reader, silent *error) reader {
	return func(ctx context.Context) (output, error) {
		if *silent != nil {
			return output{}, *silent
		}
		return read(ctx)
	}
}

func (p pod) source(api *cluster, c command) source {
	return source{
		record: evidence.Record{
			Path: "nodes/" + p.node + "/" + c.file, Kind: c.kind, Node: p.node, Pod: p.namespace + "/" + p.name, Container: p.container,
			Command: printable.Command(c.argv...),
		},
		read: p.read(api, c),
	}
}

func (p pod) read(api *cluster, c command) func(context.Context) (output, error) {
	read := func(ctx context.Context) (output, error) {
		out, err := eitherName(c, func(argv []string) (output, error) { return api.exec(ctx, p, argv) })
		if err == nil && c.kind == evidence.Conntrack {
			return conntrackNumbers(string(out.content))
		}
		return out, err
	}
	if c.kind == evidence.Conntrack {
		return absent(read)
	}
	return read
}
