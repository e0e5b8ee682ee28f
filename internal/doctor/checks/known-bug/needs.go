// SPDX-License-Identifier: Apache-2.0

package knownbug

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

// answer is whether a cluster has what a bug needs.
type answer struct {
	is      truth
	because string // a sentence
	shown   []doctor.Evidence
	breaks  []string
}

type truth int

const (
	unknown truth = iota
	no
	yes
)

// need says whether a cluster has something.
type need struct {
	// ofNode is that it may be so on one node, and not on another.
	ofNode bool
	look   func(c *facts.Case, node string) answer
}

// needs are all that bugs of the list name.
func needs() map[string]need {
	return map[string]need{
		"slice-name-repeats":        {look: sliceNameRepeats},
		"several-slices":            {look: severalSlices},
		"failed-to-delete-backends": {ofNode: true, look: failedToDeleteBackends},
		"nft-crashes":               {ofNode: true, look: nftCrashes},
		"init-label-stays":          {ofNode: true, look: initLabelStays},
		"udp":                       {look: udp},
		"udp-without-endpoints":     {look: udpWithoutEndpoints},
		"ebpf-bootstrap":            {look: ebpfBootstrap},
		"ebpf-affinity":             {look: ebpfAffinity},
	}
}

func cannotTell(what string) answer {
	return answer{is: unknown, because: fmt.Sprintf("Whether it can bite here is not known: %s.", what)}
}

func sliceNameRepeats(c *facts.Case, _ string) answer {
	o := c.Last().Objects
	if !o.Complete("endpointslices.discovery.k8s.io") {
		return cannotTell("not all EndpointSlices are known")
	}
	first := map[string]*discoveryv1.EndpointSlice{}
	for _, slice := range o.EndpointSlices {
		if _, headless := slice.Labels["service.kubernetes.io/headless"]; headless {
			continue
		}
		other := first[slice.Name]
		if other == nil {
			first[slice.Name] = slice
			continue
		}
		return answer{
			is:      yes,
			because: fmt.Sprintf("Here %s/%s and %s/%s have one name.", other.Namespace, other.Name, slice.Namespace, slice.Name),
			shown:   []doctor.Evidence{doctor.Excerpt(o.Record(slice), other.Namespace+"/"+other.Name, slice.Namespace+"/"+slice.Name)},
		}
	}
	return answer{is: no}
}

func severalSlices(c *facts.Case, _ string) answer {
	o := c.Last().Objects
	all := services.All(o)
	if all == nil {
		return cannotTell("not all Services and EndpointSlices are known")
	}
	i := slices.IndexFunc(all, func(s services.Service) bool { return s.Served() && len(s.Slices) > 1 })
	if i < 0 {
		return answer{is: no}
	}
	return answer{
		is:      yes,
		because: fmt.Sprintf("Here %s has %d slices.", all[i], len(all[i].Slices)),
		shown:   services.ShownSlices(o, all[i]),
	}
}

func failedToDeleteBackends(c *facts.Case, node string) answer {
	const line = "BUG: Unexpected failure to delete backends"
	if a := logged(c, node, "cilium-agent", line); a.is == yes {
		return a
	}
	return cannotTell("it leaves nothing but a line in the agent's log, \"" + line + "\", and none is here")
}

// nftCrashes looks for what cannot be overlooked where it happens: kube-proxy
// tries again every half minute.
func nftCrashes(c *facts.Case, node string) answer {
	return logged(c, node, "kube-proxy", "failed to run nft: signal: segmentation fault")
}

// logged says whether an agent wrote something into its log, on a node or,
// without one, on any.
func logged(c *facts.Case, node, container, text string) answer {
	for _, l := range c.Logs {
		if node != "" && l.Node != node || l.Container != "" && l.Container != container {
			continue
		}
		for _, line := range l.Lines {
			if strings.Contains(line.Text, text) {
				return answer{is: yes, because: "It has happened: the agent logged so.", shown: []doctor.Evidence{doctor.Excerpt(l.Record, line.Text)}}
			}
		}
	}
	return answer{is: no}
}

// initLabelStays looks for pods whose labels are known, and that have the label
// of those whose labels are not.
func initLabelStays(c *facts.Case, node string) answer {
	n := c.Last().Node(node)
	if n == nil || n.Cilium == nil || n.Cilium.EndpointsRecord == nil {
		return cannotTell("the list of the agent's endpoints is missing")
	}
	for _, e := range n.Cilium.Endpoints {
		known := slices.ContainsFunc(e.Labels, func(l string) bool { return strings.HasPrefix(l, "k8s:") })
		if known && slices.Contains(e.Labels, "reserved:init") {
			return answer{
				is:      yes,
				because: fmt.Sprintf("Here endpoint %d has it, besides labels of its own.", e.ID),
				shown:   []doctor.Evidence{doctor.Excerpt(n.Cilium.EndpointsRecord, fmt.Sprintf("%d  %d  %s", e.ID, e.Identity, strings.Join(e.Labels, " ")))},
				breaks:  []string{doctor.Identities(node)},
			}
		}
	}
	return answer{is: no}
}

func udp(c *facts.Case, _ string) answer {
	return someUDP(c, "Here %s is served by UDP.", func(services.Service) bool { return true })
}

func udpWithoutEndpoints(c *facts.Case, _ string) answer {
	return someUDP(c, "Here %s has no endpoint.", func(s services.Service) bool { return len(s.Ready()) == 0 })
}

// someUDP looks for a UDP Service of which something is so.
func someUDP(c *facts.Case, because string, is func(services.Service) bool) answer {
	o := c.Last().Objects
	all := services.All(o)
	if all == nil {
		return cannotTell("not all Services and EndpointSlices are known")
	}
	for _, s := range all {
		if s.Served() && hasUDP(s) && is(s) {
			return answer{is: yes, because: fmt.Sprintf(because, s), shown: append(services.Shown(o, s), services.ShownSlices(o, s)...)}
		}
	}
	return answer{is: no}
}

func hasUDP(s services.Service) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP })
}

const calicoNode = "calico-node"

func calico(o *facts.Objects) *appsv1.DaemonSet {
	for _, d := range o.DaemonSets {
		if d.Name == calicoNode {
			return d
		}
	}
	return nil
}

// ebpfBootstrap is that Felix is given the API server's Service before it starts,
// and goes through it from then on.
func ebpfBootstrap(c *facts.Case, _ string) answer {
	o := c.Last().Objects
	if o == nil || calico(o) == nil {
		return cannotTell("the DaemonSet calico-node is missing")
	}
	d := calico(o)
	for _, init := range d.Spec.Template.Spec.InitContainers {
		given := slices.ContainsFunc(init.Env, func(e corev1.EnvVar) bool { return e.Name == "KUBERNETES_SERVICE_IPS_PORTS" })
		if init.Name == "ebpf-bootstrap" && given {
			return answer{
				is:      yes,
				because: fmt.Sprintf("Here the init container %s of %s/%s prepares that.", init.Name, d.Namespace, d.Name),
				shown:   []doctor.Evidence{doctor.Excerpt(o.Record(d), fmt.Sprintf("%s/%s  %s: KUBERNETES_SERVICE_IPS_PORTS", d.Namespace, d.Name, init.Name))},
				breaks:  []string{doctor.Loop(d.Namespace+"/"+d.Spec.Template.Spec.ServiceAccountName, "")},
			}
		}
	}
	return answer{is: no}
}

func ebpfAffinity(c *facts.Case, _ string) answer {
	sticky := someUDP(c, "Here %s asks for it.", func(s services.Service) bool { return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP })
	if sticky.is != yes {
		return sticky
	}
	switch ebpf(c.Last().Objects) {
	case no:
		return answer{is: no}
	case unknown:
		return cannotTell("nothing says whether Calico runs its eBPF data plane")
	}
	return sticky
}

// ebpf says whether Calico serves Services by eBPF: by the variables of its
// container, else by its configuration.
func ebpf(o *facts.Objects) truth {
	if d := calico(o); d != nil {
		for _, container := range d.Spec.Template.Spec.Containers {
			for _, e := range container.Env {
				if e.Name == "FELIX_BPFENABLED" {
					return truthOf(strings.EqualFold(e.Value, "true"))
				}
			}
		}
	}
	if config := facts.Find[unstructured.Unstructured](o, "FelixConfiguration default"); config != nil {
		on, _, err := unstructured.NestedBool(config.Object, "spec", "bpfEnabled")
		return truthOf(on && err == nil)
	}
	return unknown
}

func truthOf(is bool) truth {
	if is {
		return yes
	}
	return no
}
