// SPDX-License-Identifier: Apache-2.0

package dnschain

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// pods is the first link: whether pods reach whom they ask.
func (c *chain) pods(in *facts.Case) link {
	s := cmp.Or(in.Last(), &facts.Sample{})
	l := link{from: pods, to: coreDNS}
	purpose := probe.DNSService
	if c.cache {
		l.to, purpose = cacheName, probe.DNSLocal
	}
	for _, n := range s.Nodes {
		a := c.asked(s, n.Name, purpose)
		l.works = l.works || len(a.answered) > 0
		failed := slices.DeleteFunc(a.failed, func(p facts.Probe) bool {
			return a.answered[p.Target] || slices.ContainsFunc(in.Samples, func(other *facts.Sample) bool {
				return c.asked(other, n.Name, purpose).answered[p.Target]
			})
		})
		if len(failed) > 0 {
			l.broken, l.sure = true, true
			l.nodes = append(l.nodes, n.Name)
			l.rests = append(l.rests, doctor.PodNetwork(n.Name))
			l.evidence = append(l.evidence, doctor.Excerpt(failed[0].Record, probeLine(failed[0])))
		}
	}
	if !c.cache && l.broken {
		l.rests = append(l.rests, c.backends(l.nodes)...)
	}
	l.works = l.works && !l.broken
	l.why = fmt.Sprintf("Pods ask %s for names, and get no answer from there.", l.to)
	l.remedy = doctor.Remedy{Text: "See whether pods reach anybody else from these nodes, and whether the address answers the node itself.", Commands: []string{"fairlead doctor"}}
	return l
}

// answers are what pods of a node got from whom they asked.
type answers struct {
	answered map[string]bool // by target: UDP may fail where TCP does not
	failed   []facts.Probe
}

// asked are the answers on a node. Where one pod gets them and another does not,
// or policies may forbid it, it is not the chain that is broken.
func (c *chain) asked(s *facts.Sample, node string, purpose probe.Purpose) answers {
	out := answers{answered: map[string]bool{}}
	isolated, _ := parts.Isolated(s.Objects)
	n := s.Node(node)
	if n == nil {
		return out
	}
	for _, p := range n.Probes {
		pod, is := strings.CutPrefix(p.From, probe.FromPod)
		namespace, _, _ := strings.Cut(pod, "/")
		switch {
		case p.Purpose != purpose || !is:
		case p.Works():
			out.answered[p.Target] = true
		case p.Fails() && p.Outcome != probe.BadAnswer && !isolated[namespace]:
			out.failed = append(out.failed, p)
		}
	}
	return out
}

func probeLine(p facts.Probe) string {
	return strings.TrimSpace(fmt.Sprintf("%s to %s %s: %s %s", p.From, p.Purpose, p.Target, p.Outcome, p.Error))
}

func (c *chain) backends(nodes []string) []string {
	if len(nodes) == 0 {
		return []string{doctor.Backends(c.service, "")}
	}
	var out []string
	for _, node := range nodes {
		out = append(out, doctor.Backends(c.service, node))
	}
	return out
}

// upstream is a line of the cache about a server that it asks.
var upstream = regexp.MustCompile(`plugin/errors: .*(?:->|dial (?:tcp|udp) )([0-9a-fA-F.:\[\]]+:\d+): (?:connect: )?(i/o timeout|connection refused|no route to host|operation not permitted|network is unreachable)`)

// cached is the link from the cache on a node to CoreDNS.
func (c *chain) cached(in *facts.Case) link {
	const usual = 3 // fewer are lost datagrams
	l := link{from: cacheName, to: coreDNS, why: "The cache on the node asks CoreDNS, and gets no answer from there."}
	for _, log := range in.Logs {
		if p, is := parts.Speaker(c.parts, log); !is || p.ID != "node-local-dns" {
			continue
		}
		lines, _ := parts.Recent(in, log)
		var said []facts.Line
		for _, line := range lines {
			if m := upstream.FindStringSubmatch(line.Text); m != nil && c.isServer(m[1]) {
				said = append(said, line)
			}
		}
		if len(said) < usual {
			continue
		}
		l.broken, l.sure = true, l.sure || parts.Lasts(said)
		if log.Node != "" {
			l.nodes = append(l.nodes, log.Node)
		}
		l.evidence = append(l.evidence, doctor.Excerpt(log.Record, texts(said[len(said)-usual:])...))
		l.rests = append(l.rests, doctor.PodNetwork(log.Node))
		l.rests = append(l.rests, c.backends(nodesOf(log.Node))...)
	}
	l.remedy = doctor.Remedy{Text: "See whether CoreDNS answers its own node.", Commands: []string{
		"kubectl --namespace kube-system get pods -l k8s-app=kube-dns -o wide",
		"dig @$(kubectl --namespace kube-system get pods -l k8s-app=kube-dns -o jsonpath='{.items[0].status.podIP}') kubernetes.default.svc.cluster.local",
	}}
	return l
}

func texts(lines []facts.Line) []string {
	var out []string
	for _, line := range lines {
		out = append(out, line.Text)
	}
	return out
}

func nodesOf(node string) []string {
	if node == "" {
		return nil
	}
	return []string{node}
}

// isServer says whether an address is one of CoreDNS, or of a Service in front
// of it: the cache also asks servers outside, for names that are not the
// cluster's.
func (c *chain) isServer(at string) bool {
	address, err := netip.ParseAddrPort(at)
	return err == nil && c.servers[address.Addr()]
}

// server is whether there is a CoreDNS that answers: the Service has endpoints
// that are ready, as far as all are known.
func (c *chain) server(s *facts.Sample) link {
	l := link{from: "the Service " + c.service, to: coreDNS, why: "No endpoint of the Service is ready, so nobody answers for names."}
	record := s.Objects.List("endpointslices.discovery.k8s.io")
	if record == nil || facts.Find[corev1.Service](s.Objects, c.service) == nil {
		return l
	}
	ready, all := 0, 0
	for _, slice := range s.Objects.EndpointSlices {
		if slice.Namespace+"/"+slice.Labels[discoveryv1.LabelServiceName] != c.service {
			continue
		}
		for _, e := range slice.Endpoints {
			all++
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				ready++
			}
		}
	}
	if ready > 0 {
		l.works = true
		return l
	}
	l.broken, l.sure = true, true
	l.evidence = []doctor.Evidence{doctor.Excerpt(record, fmt.Sprintf("endpoints of %s: %d, ready: 0", c.service, all))}
	l.rests = append(l.rests, doctor.PodNetwork(""), doctor.Reach(c.account, ""), doctor.Permission(c.account))
	l.remedy = doctor.Remedy{Text: "See why CoreDNS is not ready.", Commands: []string{
		"kubectl --namespace kube-system get pods -l k8s-app=kube-dns -o wide",
		"kubectl --namespace kube-system logs -l k8s-app=kube-dns --tail 20",
	}}
	return l
}

// behind is a line of CoreDNS that says that it cannot follow the API.
var behind = regexp.MustCompile(`Failed to (?:watch|list)|plugin/kubernetes: .*(?:Unauthorized|is forbidden|connection refused|i/o timeout|no route to host|x509)|failed to list \*`)

// follows is the link from CoreDNS to the API server.
func (c *chain) follows(in *facts.Case) link {
	const usual = 2 // one is an API server that was started anew
	l := link{from: coreDNS, to: apiServer, why: "CoreDNS cannot follow the API: it answers with what it knew, or, if it was started meanwhile, not at all."}
	for _, log := range in.Logs {
		p, is := parts.Speaker(c.parts, log)
		if !is || p.ID != "coredns" {
			continue
		}
		lines, _ := parts.Recent(in, log)
		var said []facts.Line
		for _, line := range lines {
			if behind.MatchString(line.Text) {
				said = append(said, line)
			}
		}
		if len(said) < usual {
			continue
		}
		l.broken, l.sure = true, l.sure || parts.Lasts(said)
		if log.Node != "" && !slices.Contains(l.nodes, log.Node) {
			l.nodes = append(l.nodes, log.Node)
		}
		l.evidence = append(l.evidence, doctor.Excerpt(log.Record, texts(said[len(said)-usual:])...))
		l.rests = append(l.rests, doctor.PodNetwork(log.Node), doctor.Reach(c.account, log.Node), doctor.Permission(c.account), doctor.Backends("default/kubernetes", log.Node))
	}
	l.remedy = doctor.Remedy{Text: "See whether its pods reach the API server, and may do what they need; `Unauthorized` is a token that is no longer taken: recreate the pods.", Commands: []string{
		printable.Command("kubectl", "auth", "can-i", "list", "services", "--all-namespaces", "--as", "system:serviceaccount:"+strings.Replace(c.account, "/", ":", 1)),
		"kubectl --namespace kube-system delete pods -l k8s-app=kube-dns",
	}}
	return l
}
