// SPDX-License-Identifier: Apache-2.0

// Package identityinit finds pods to which Cilium gave no identity of their own.
package identityinit

import (
	_ "embed"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

//go:embed README.md
var page string

// Check finds pods without an identity.
func Check() doctor.Check {
	return doctor.Check{
		ID: "identity-init", Title: "pods that are still reserved:init to Cilium", Rank: doctor.RankIdentity,
		Page: page, Sample: find,
	}
}

// The identities that a pod has before it gets its own.
const (
	unmanaged  = 3
	initialise = 5
)

// grace is more than an agent needs that reaches the API server.
const grace = 2 * time.Minute

// endpoint is a pod that waits for its identity.
type endpoint struct {
	pod     string // NAMESPACE/NAME; "" if it is not known
	address string
	row     string // as the command shows it
}

func find(s *facts.Sample) []doctor.Finding {
	in := finder{sample: s, pods: podsByAddress(s.Objects)}
	component := "kube-system/cilium"
	for _, p := range parts.Of(s.Objects) {
		if p.ID == "cilium-agent" {
			component = p.Name()
		}
	}
	var out []doctor.Finding
	listed := map[string]bool{}
	for _, n := range s.Nodes {
		if n.Cilium == nil || n.Cilium.EndpointsRecord == nil {
			continue
		}
		listed[n.Name] = true
		if waiting := in.waiting(n.Cilium.Endpoints); len(waiting) > 0 {
			out = append(out, finding(component, n.Name, n.Cilium.EndpointsRecord, waiting, len(n.Cilium.Endpoints)))
		}
	}
	return append(out, in.objects(component, listed)...)
}

// finder knows the pods of a sample.
type finder struct {
	sample *facts.Sample
	pods   map[netip.Addr]*corev1.Pod
}

func podsByAddress(o *facts.Objects) map[netip.Addr]*corev1.Pod {
	out := map[netip.Addr]*corev1.Pod{}
	if o == nil {
		return out
	}
	for _, pod := range o.Pods {
		for _, ip := range pod.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && !pod.Spec.HostNetwork {
				out[a] = pod
			}
		}
		if a, err := netip.ParseAddr(pod.Status.PodIP); err == nil && !pod.Spec.HostNetwork {
			out[a] = pod
		}
	}
	return out
}

// waiting are the endpoints that have waited for too long.
func (in *finder) waiting(all []cilium.Endpoint) []endpoint {
	var out []endpoint
	for _, e := range all {
		if !reserved(e.Identity) {
			continue
		}
		pod := in.pod(&e)
		if pod == nil && e.State != "ready" || pod != nil && in.young(pod) {
			continue
		}
		w := endpoint{pod: e.Pod}
		if pod != nil {
			w.pod = pod.Namespace + "/" + pod.Name
		}
		if len(e.Addresses) > 0 {
			w.address = e.Addresses[0].String()
		}
		w.row = strings.Join(strings.Fields(fmt.Sprintf("%d %s %s %d %s %s %s", e.ID, enforced(e.Ingress), enforced(e.Egress), e.Identity, strings.Join(e.Labels, ","), w.address, e.State)), "  ")
		out = append(out, w)
	}
	return out
}

func reserved(identity int) bool { return identity == initialise || identity == unmanaged }

func enforced(on bool) string {
	if on {
		return "Enabled"
	}
	return "Disabled"
}

// pod is that of an endpoint, by name or by address.
func (in *finder) pod(e *cilium.Endpoint) *corev1.Pod {
	if pod := facts.Find[corev1.Pod](in.sample.Objects, e.Pod); e.Pod != "" && pod != nil {
		return pod
	}
	for _, a := range e.Addresses {
		if pod := in.pods[a]; pod != nil {
			return pod
		}
	}
	return nil
}

// young says whether a pod may yet be waiting for good reason.
func (in *finder) young(pod *corev1.Pod) bool {
	since := pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		since = pod.Status.StartTime.Time
	}
	return since.After(in.sample.From.Add(in.sample.Objects.Skew() - grace))
}

// objects finds the same in CiliumEndpoint objects, on nodes whose agents were
// not asked.
func (in *finder) objects(component string, listed map[string]bool) []doctor.Finding {
	if in.sample.Objects == nil {
		return nil
	}
	waiting, totals := map[string][]endpoint{}, map[string]int{}
	var record *evidence.Record
	for _, o := range in.sample.Objects.Others {
		if o.GetKind() != "CiliumEndpoint" {
			continue
		}
		name := o.GetNamespace() + "/" + o.GetName()
		pod := facts.Find[corev1.Pod](in.sample.Objects, name)
		if pod == nil || listed[pod.Spec.NodeName] {
			continue
		}
		totals[pod.Spec.NodeName]++
		identity := identityOf(o)
		if !reserved(identity) || in.young(pod) {
			continue
		}
		record = in.sample.Objects.Record(o)
		waiting[pod.Spec.NodeName] = append(waiting[pod.Spec.NodeName], endpoint{
			pod: name, address: pod.Status.PodIP, row: fmt.Sprintf("%s  status.identity.id: %d", name, identity),
		})
	}
	var out []doctor.Finding
	for node, all := range waiting {
		out = append(out, finding(component, node, record, all, totals[node]))
	}
	slices.SortFunc(out, func(a, b doctor.Finding) int { return slices.Compare(a.Nodes, b.Nodes) })
	return out
}

func identityOf(o *unstructured.Unstructured) int {
	value, _, err := unstructured.NestedFieldNoCopy(o.Object, "status", "identity", "id")
	if err != nil {
		return 0
	}
	switch id := value.(type) {
	case int64:
		return int(id)
	case float64:
		return int(id)
	}
	return 0
}

const mostRows = 5

func finding(component, node string, r *evidence.Record, waiting []endpoint, total int) doctor.Finding {
	var rows []string
	for _, w := range waiting[:min(len(waiting), mostRows)] {
		rows = append(rows, w.row)
	}
	if more := len(waiting) - mostRows; more > 0 {
		rows = append(rows, fmt.Sprintf("and %d more", more))
	}
	return doctor.Finding{
		Severity: doctor.Critical, Layer: doctor.LayerAgent, Subject: "identities of Cilium", Nodes: nodesOf(node),
		Title: "pods have no identity of their own: to Cilium they are reserved:init",
		Detail: []string{
			fmt.Sprintf("It is so for %d of %d endpoints on %s.", len(waiting), total, nameOf(node)),
			"The agent did not read their labels, so no policy lets them do anything, and what they send is dropped.",
		},
		Evidence: []doctor.Evidence{doctor.Excerpt(r, rows...)},
		Remedy:   remedy(waiting),
		RestsOn:  []string{doctor.Permission(component), doctor.Reach(component, node)},
		Breaks:   []string{doctor.Identities(node), doctor.PodNetwork(node)},
	}
}

func nodesOf(node string) []string {
	if node == "" {
		return nil
	}
	return []string{node}
}

func nameOf(node string) string {
	if node == "" {
		return "a node that is not named"
	}
	return node
}

// remedy recreates the pods, once the agent gets their labels again.
func remedy(waiting []endpoint) []doctor.Remedy {
	var commands, addresses []string
	for _, w := range waiting {
		if namespace, name, known := strings.Cut(w.pod, "/"); known {
			commands = append(commands, doctor.Kubectl(namespace, "delete", "pod", name))
		} else if w.address != "" {
			addresses = append(addresses, "-e", " "+w.address+" ")
		}
	}
	if len(addresses) > 0 {
		commands = append(commands, "kubectl get pods --all-namespaces -o wide | grep "+printable.Command(addresses...))
	}
	return []doctor.Remedy{{Text: "Once the agent gets labels again, recreate these pods: an endpoint that was made without labels stays without.", Commands: commands}}
}
