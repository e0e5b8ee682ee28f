// SPDX-License-Identifier: Apache-2.0

package bugs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// Installed is a component that a sample shows.
type Installed struct {
	Component Component
	Version   Version
	// Node is where; "" is every node on which its DaemonSet runs.
	Node     string
	Evidence doctor.Evidence
}

// In returns the components whose versions a sample shows: by their own word on
// a node, else by the image of a pod there, else by that of a DaemonSet.
func In(s *facts.Sample) []Installed {
	var all []Installed
	known := map[source]bool{}
	take := func(c Component, node, version string, e doctor.Evidence) {
		v, err := ParseVersion(version)
		if err != nil || known[source{c, node}] {
			return
		}
		known[source{c, node}], known[source{c, ""}] = true, true
		all = append(all, Installed{c, v, node, e})
	}
	for _, n := range s.Nodes {
		if n.Cilium != nil && n.Cilium.VersionRecord != nil {
			take(Cilium, n.Name, n.Cilium.Version, doctor.Excerpt(n.Cilium.VersionRecord, lineWith(n.Cilium.VersionRecord, n.Cilium.Version)))
		}
		if n.KubeProxy != nil && n.KubeProxy.Record != nil {
			take(KubeProxy, n.Name, n.KubeProxy.Version, doctor.Excerpt(n.KubeProxy.Record, lineWith(n.KubeProxy.Record, n.KubeProxy.Version)))
		}
	}
	byImage(s.Objects, take)
	slices.SortStableFunc(all, func(a, b Installed) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Node, b.Node))
	})
	return all
}

type source struct {
	component Component
	node      string
}

// containers are those by whose images components are known.
var containers = map[string]Component{
	"cilium-agent": Cilium,
	"kube-proxy":   KubeProxy,
	"calico-node":  Calico,
}

func byImage(o *facts.Objects, take func(c Component, node, version string, e doctor.Evidence)) {
	if o == nil {
		return
	}
	for _, p := range o.Pods {
		for _, c := range p.Spec.Containers {
			component, known := containers[c.Name]
			if !known || p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning {
				continue
			}
			take(component, p.Spec.NodeName, tag(c.Image), doctor.Excerpt(o.Record(p), fmt.Sprintf("%s/%s  %s", p.Namespace, p.Name, c.Image)))
		}
	}
	for _, d := range o.DaemonSets {
		for _, c := range d.Spec.Template.Spec.Containers {
			if component, known := containers[c.Name]; known {
				take(component, "", tag(c.Image), doctor.Excerpt(o.Record(d), fmt.Sprintf("%s/%s  %s", d.Namespace, d.Name, c.Image)))
			}
		}
	}
}

// tag is that of an image's name: REGISTRY:PORT/NAME:TAG@DIGEST.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	return tag
}

// lineWith is the last line of a record with a text in it, for programs name
// their daemon after themselves; the text if there is none.
func lineWith(r *evidence.Record, text string) string {
	found := text
	for line := range strings.Lines(string(r.Content)) {
		if strings.Contains(line, text) {
			found = strings.TrimSpace(line)
		}
	}
	return found
}
