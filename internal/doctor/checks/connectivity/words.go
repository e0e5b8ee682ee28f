// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// subjects are what is tried of no Service.
var subjects = map[probe.Purpose]string{
	probe.APIDirect: "API servers",
	probe.DNSDirect: "DNS servers",
	probe.Peer:      "pods of other nodes",
	probe.Gateway:   "the pods' gateway",
}

// said are the outcomes as what is said of an address.
var said = map[probe.Outcome]string{
	probe.NotPermitted:    "may not be dialled (operation not permitted)",
	probe.Refused:         "refuses connections",
	probe.HostUnreachable: "is unreachable (no route to host)",
	probe.NetUnreachable:  "is unreachable (no network)",
	probe.Reset:           "resets connections",
	probe.Timeout:         "does not answer",
	probe.BadAnswer:       "answers something else than was asked for",
}

// answered are the layers as what is said of who answered.
var answered = map[probe.Layer]string{
	probe.LayerSocket:  "A program on the cgroup answers, before a packet leaves",
	probe.LayerPacket:  "A rule on packets answers on this node",
	probe.LayerService: "The Service layer of this node answers, or leads elsewhere",
	probe.LayerBackend: "Who listens at the address answers",
	probe.LayerNetwork: "The network between here and there answers, or is silent",
	probe.LayerUnknown: "Who answers cannot be told",
}

func (g group) subject() string {
	switch {
	case g.service != "":
		return g.service
	case g.target != "":
		return g.target
	}
	return subjects[g.purpose]
}

// what is the subject as a title names it.
func (g group) what() string {
	switch g.purpose {
	case probe.APIService, probe.DNSService, probe.Frontend:
		return g.service
	case probe.APIDirect:
		return "the API server behind " + g.service
	case probe.DNSDirect:
		return "the DNS server behind " + g.service
	case probe.Backend:
		return "a backend of " + g.service
	case probe.DNSLocal:
		return "the node's DNS cache " + g.target
	case probe.Peer:
		return "a pod of another node"
	}
	return g.subject()
}

// finding is what is said of a group; nothing of what others answer for.
func (w node) finding(g group) (doctor.Finding, bool) {
	if said[g.outcome] == "" {
		return doctor.Finding{}, false
	}
	f := doctor.Finding{
		Severity: w.severity(g), Layer: doctor.LayerConnection, Subject: g.subject(), Nodes: w.nodes(),
		Title:    fmt.Sprintf("%s %s from %s", g.what(), said[g.outcome], w.places(g)),
		Detail:   w.detail(g),
		Evidence: w.evidence(g),
		Remedy:   w.remedy(g),
	}
	if g.purpose.Direct() != "" {
		f.RestsOn = append(f.RestsOn, doctor.Backends(g.service, w.name))
	}
	if strings.HasPrefix(string(g.purpose), "dns-") {
		f.RestsOn = append(f.RestsOn, doctor.DNS(w.name))
	}
	if !slices.ContainsFunc(g.failed, isHost) && !slices.ContainsFunc(g.failed, inService) {
		f.RestsOn = append(f.RestsOn, doctor.PodNetwork(w.name))
	}
	return f, true
}

func (w node) nodes() []string {
	if w.name == "" {
		return []string{}
	}
	return []string{w.name}
}

func (w node) places(g group) string {
	var places []string
	if slices.ContainsFunc(g.failed, isHost) {
		places = append(places, "the host")
	}
	if len(w.podsOf(g)) > 0 {
		places = append(places, "pods")
	}
	return strings.Join(places, " and from ")
}

func (w node) detail(g group) []string {
	detail := []string{fmt.Sprintf("Tried: %s from %s.", list(g.failed, target), list(g.failed, place))}
	for _, layer := range layersOf(g.failed) {
		i := slices.IndexFunc(g.failed, func(p *facts.Probe) bool { return p.Layer == layer })
		detail = append(detail, sentence(answered[layer], g.failed[i].Because))
	}
	if service := w.serviceOf(g); len(service) > 0 {
		detail = append(detail, fmt.Sprintf("The Service fails alike, at %s.", list(service, target)))
	}
	if well := w.elsewhere(g); len(well) > 0 {
		detail = append(detail, fmt.Sprintf("From %s it works.", list(well, place)))
	}
	return detail
}

// serviceOf are the addresses of the Service that fail with those behind it.
func (w node) serviceOf(g group) []*facts.Probe {
	return filter(w.probes, func(p *facts.Probe) bool {
		return !p.Works() && p.Service == g.service && p.Purpose.Direct() == g.purpose && p.Outcome == g.outcome && w.failsWithBackends(p)
	})
}

// layersOf are the layers that answered, in the order of the results. That one
// place cannot tell adds nothing where another one can.
func layersOf(failed []*facts.Probe) []probe.Layer {
	var layers []probe.Layer
	for _, p := range failed {
		if _, known := answered[p.Layer]; known && !slices.Contains(layers, p.Layer) {
			layers = append(layers, p.Layer)
		}
	}
	if len(layers) < 2 {
		return layers
	}
	return slices.DeleteFunc(layers, func(l probe.Layer) bool { return l == probe.LayerUnknown })
}

// sentence says something with its reasons.
func sentence(text string, because []string) string {
	if len(because) == 0 {
		return text + "."
	}
	return text + ": " + strings.Join(because, "; ") + "."
}

// elsewhere are the same targets where they work.
func (w node) elsewhere(g group) []*facts.Probe {
	return filter(w.probes, func(p *facts.Probe) bool {
		same := func(f *facts.Probe) bool { return f.Target == p.Target && f.Purpose == p.Purpose }
		return p.Works() && slices.ContainsFunc(g.failed, same)
	})
}

func target(p *facts.Probe) string { return p.Target }

func place(p *facts.Probe) string {
	if isHost(p) {
		return "the host"
	}
	return p.From
}

// list names the first few of some, each once.
func list(probes []*facts.Probe, name func(*facts.Probe) string) string {
	const few = 4
	var names []string
	for _, p := range probes {
		if n := name(p); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	if more := len(names) - few; more > 0 {
		names = append(names[:few], fmt.Sprintf("%d more", more))
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return strings.Join(names, "")
}

// evidence shows what failed, and then what it is compared with: the same
// target, and those behind the same Service, from the same places.
func (w node) evidence(g group) []doctor.Evidence {
	compared := filter(w.probes, func(p *facts.Probe) bool {
		return !slices.Contains(g.failed, p) && p.Service == g.service && p.Service != "" &&
			(p.Purpose == g.purpose || p.Purpose == g.purpose.Direct())
	})
	return excerpt(g.failed, compared)
}

// excerpt shows the first of some failures and of what they are compared with.
func excerpt(lists ...[]*facts.Probe) []doctor.Evidence {
	const few = 4
	var out []doctor.Evidence
	for _, list := range lists {
		for _, p := range list[:min(len(list), few)] {
			out = doctor.Join(out, doctor.Excerpt(p.Record, line(p)))
		}
	}
	return out
}

// line is one result as a person would note it.
func line(p *facts.Probe) string {
	result := string(p.Outcome)
	if p.Error != "" {
		result += ": " + p.Error
	}
	if p.Answer != "" {
		result += ": " + p.Answer
	}
	return fmt.Sprintf("%s → %s (%s): %s, %d ms", p.From, p.Target, p.Purpose, result, p.Millis)
}

func (w node) remedy(g group) []doctor.Remedy {
	remedies := []doctor.Remedy{}
	if namespace, name, ok := strings.Cut(g.service, "/"); ok {
		text := "Compare what the data plane of this node holds for the Service with its endpoints."
		if g.purpose.Direct() == "" {
			text = "See who should listen there, and whether it is still an endpoint."
		}
		remedies = append(remedies, doctor.Remedy{
			Text:     text,
			Commands: []string{doctor.Kubectl(namespace, "get", "endpointslices.discovery.k8s.io", "--selector", "kubernetes.io/service-name="+name, "--output", "wide")},
		})
	}
	if !slices.ContainsFunc(g.failed, inService) {
		remedies = append(remedies, policies(w.podsOf(g))...)
	}
	return remedies
}

// policies is how to see whether policies ask for it.
func policies(pods []string) []doctor.Remedy {
	var commands []string
	for _, pod := range pods {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(pod, probe.FromPod), "/")
		command := doctor.Kubectl(namespace, "get", "networkpolicies.networking.k8s.io")
		if !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	if len(commands) == 0 {
		return nil
	}
	return []doctor.Remedy{{Text: "See whether a policy selects the pods from which it was tried.", Commands: commands}}
}
