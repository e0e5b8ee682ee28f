// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
)

// component is who writes a data plane's tables.
type component struct {
	name string // NAMESPACE/SERVICEACCOUNT
	part *parts.Part
}

type components []parts.Part

// component is that of the parting's data plane, by the objects if they show
// it, else by the names that its installer gives.
func (p *Parting) component() component {
	id := map[facts.DataPlane]string{facts.PlaneCilium: "cilium-agent", facts.PlaneKubeProxy: "kube-proxy", facts.PlaneFairlead: "fairlead"}[p.Plane]
	all := facts.Derived(p.Sample, func(s *facts.Sample) components { return parts.Of(s.Objects) })
	for i := range all {
		if all[i].ID == id {
			return component{all[i].Name(), &all[i]}
		}
	}
	account := map[facts.DataPlane]string{facts.PlaneCilium: "cilium", facts.PlaneKubeProxy: "kube-proxy", facts.PlaneFairlead: "fairlead"}[p.Plane]
	return component{"kube-system/" + account, nil}
}

// restart are the commands that start the agent of the node anew.
func (p *Parting) restart() []string {
	c := p.component()
	if c.part != nil {
		i := slices.IndexFunc(c.part.Pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == p.Node.Name })
		if i >= 0 {
			pod := c.part.Pods[i]
			return []string{doctor.Kubectl(pod.Namespace, "delete", "pod", pod.Name)}
		}
		if restart := c.part.Restart(); restart != "" {
			return []string{restart}
		}
	}
	if p.Plane == facts.PlaneFairlead {
		return nil
	}
	namespace, name, _ := strings.Cut(c.name, "/")
	return []string{doctor.Kubectl(namespace, "rollout", "restart", "daemonset/"+name)}
}

// remedy is what makes the data plane write it again.
func (p *Parting) remedy() []doctor.Remedy {
	if p.Kind == compare.Unchosen {
		return nil
	}
	switch p.Plane {
	case facts.PlaneFairlead:
		text := "The agent compares its maps with its tables at intervals and repairs them. If this stays, its status says why."
		if p.Layer() == doctor.LayerAgent {
			text = "The agent's status says whether it still hears of changes, and what it could not write."
		}
		return []doctor.Remedy{{Text: text, Commands: []string{"fairlead diff", "fairlead status"}}}
	case facts.PlaneCilium:
		text := "A restarted agent writes its maps anew from what the API has."
		if p.Layer() == doctor.LayerAgent {
			text = "The agent's own tables are wrong, so a change of the Service does not bring them right; a restart builds them anew from what the API has. An agent that reaches the API server only through this Service must get a direct address first."
		}
		return []doctor.Remedy{{Text: text, Commands: p.restart()}}
	}
	return []doctor.Remedy{{Text: "A restarted kube-proxy writes its rules anew.", Commands: p.restart()}}
}
