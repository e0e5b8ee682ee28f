// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// judgeTraffic says which Services answer nobody any more, and which Ingresses
// lead nowhere.
func judgeTraffic(c *Case) []Consequence {
	var out []Consequence
	if c.touchesServing() {
		c.Need(EndpointSlices, "which Services lose their last ready endpoint")
		for _, f := range c.fates() {
			out = append(out, c.traffic(f)...)
		}
	}
	for _, o := range c.Deleted(Ingresses) {
		if ingress, ok := o.Content.(*networkingv1.Ingress); ok {
			out = append(out, c.ingressGone(o, ingress))
		}
	}
	return append(out, c.addressing()...)
}

// addressing is of the ranges from which Services get their addresses, and of
// the notes who has which.
func (c *Case) addressing() []Consequence {
	var out []Consequence
	if gone := c.Deleted(serviceCIDRs); len(gone) > 0 {
		out = append(out, c.rangesGone(gone))
	}
	var free []*Object
	for _, o := range c.Deleted(ipAddresses) {
		if cause, _ := c.Gone(o); cause.By == nil {
			free = append(free, o)
		}
	}
	if len(free) > 0 {
		out = append(out, Consequence{
			Severity: Note, Rank: len(free), ID: "address-note-gone", Objects: free,
			Title: fmt.Sprintf("the API server notes within minutes again whose %s %s, if a Service has it; until then a new Service may get it too", some(free), verb(len(free), "is", "are")),
		})
	}
	return out
}

// rangesGone is of ranges that go. One of which a Service has an address hangs in
// deletion, and the API server takes no address from it any more.
func (c *Case) rangesGone(gone []*Object) Consequence {
	c.Need(serviceCIDRs, "from which ranges new Services get addresses")
	q := Consequence{Severity: Note, Rank: len(gone), ID: "range-gone", Objects: gone}
	var left []*Object
	for _, o := range c.Of(serviceCIDRs) {
		if c.stays(o) && !o.Deleting {
			left = append(left, o)
		}
	}
	if len(left) > 0 {
		q.Title = fmt.Sprintf("new Services get addresses of %s only; %s %s once no Service has an address of it", some(left), some(gone), verb(len(gone), "goes", "go"))
		return q
	}
	q.Severity = Outage
	q.Title = fmt.Sprintf("new Services are refused, as no address is left for them: %s %s given up", some(gone), verb(len(gone), "is", "are"))
	q.Detail = []string{"It hangs in deletion, and kubectl waits, as long as a Service has an address of it; that of the API server always does. Services that are there keep theirs. To be safe, create another ServiceCIDR first."}
	return q
}

func (c *Case) traffic(f *fate) []Consequence {
	switch {
	case f.gone:
		return append([]Consequence{c.serviceGone(f)}, c.withoutService(f)...)
	case f.ends():
		return []Consequence{c.serviceEmpty(f)}
	}
	return c.slicesGone(f)
}

// inUse says that somebody answers for a Service, or that nobody can know.
func (c *Case) inUse(f *fate) bool { return f.before > 0 || c.Unknown(EndpointSlices) != "" }

func (c *Case) serviceGone(f *fate) Consequence {
	q := Consequence{Severity: Breaks, Rank: f.before, ID: "service-gone", Objects: []*Object{f.service}, Affected: f.pods(c)}
	service, _ := f.service.Content.(*corev1.Service)
	switch {
	case isAPI(f.key):
		q.Severity = Outage
		q.Title = "pods no longer reach the API server: " + f.service.String() + " is the address by which they know it"
		q.Detail = []string{"The API server makes it again within seconds. What is connected meanwhile may have to connect anew."}
		return q
	case service == nil:
		q.Title = f.service.String() + " answers nobody any more"
		return q
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		q.Title = fmt.Sprintf("the name %s.%s no longer leads to %s", f.key.Name, f.key.Namespace, service.Spec.ExternalName)
		q.Detail = []string{"Whether anybody uses the name cannot be seen."}
		return q
	case !c.inUse(f):
		q.Severity = Note
		q.Title = f.service.String() + " has no ready endpoint: nobody is served by it"
		return q
	case isDNS(f.service):
		q.Severity = Outage
		q.Title = "pods no longer resolve any name: " + f.service.String() + " (" + addresses(service) + ") is their DNS server"
		return q
	}
	q.Title = f.service.String() + " answers nobody any more: " + count(f.before, "ready endpoint") + " served " + addresses(service)
	if service.Spec.ClusterIP == corev1.ClusterIPNone {
		q.Title = fmt.Sprintf("%s, by which %s %s found, no longer resolves", f.service, count(f.before, "ready endpoint"), verb(f.before, "is", "are"))
	}
	q.Detail = exposure(service)
	return q
}

// pods are the pods that stay and answered for a Service.
func (f *fate) pods(c *Case) []string {
	var out []*Object
	for _, e := range servings.of(c.State)[f.key] {
		if e.pod != nil && c.stays(e.pod) {
			out = append(out, e.pod)
		}
	}
	return names(out)
}

// addresses are those inside the cluster.
func addresses(s *corev1.Service) string {
	if len(s.Spec.ClusterIPs) > 0 {
		return strings.Join(s.Spec.ClusterIPs, " and ")
	}
	if s.Spec.ClusterIP != "" {
		return s.Spec.ClusterIP
	}
	return "its name"
}

// exposure says by which ways from outside a Service is reached.
func exposure(s *corev1.Service) []string {
	var out []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		out = append(out, fmt.Sprintf("The load balancer's address %s is given back; a new Service may get another one.", in.IP+in.Hostname))
	}
	for _, ip := range s.Spec.ExternalIPs {
		out = append(out, fmt.Sprintf("Nobody answers at the external address %s.", ip))
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			out = append(out, fmt.Sprintf("Port %d of every node is closed; a new Service may get another one.", p.NodePort))
		}
	}
	return out
}

// isDNS says that a Service is the one that kubelets give to pods as DNS server.
func isDNS(o *Object) bool {
	return o.Namespace == "kube-system" &&
		(o.Name == "kube-dns" || o.Name == "coredns" || o.Content.GetLabels()["k8s-app"] == "kube-dns")
}

// serviceEmpty is of a Service that stays and has nobody left.
func (c *Case) serviceEmpty(f *fate) Consequence {
	name := "Service " + f.key.Namespace + "/" + f.key.Name
	q := Consequence{Severity: Breaks, Rank: f.before, ID: "service-empty", Objects: f.causes(), Affected: []string{name}}
	until := ""
	if !f.forGood() {
		until = " until new ones are ready"
	}
	q.Title = fmt.Sprintf("%s answers nobody%s: it loses %s", name, until, lastOf(f.before))
	if f.service == nil {
		return q
	}
	switch {
	case isAPI(f.key):
		q.Severity = Outage
		q.Title = "pods do not reach the API server until it writes its addresses again: " + name + " loses " + lastOf(f.before)
	case isDNS(f.service):
		q.Title = "pods resolve no names" + until + ": " + name + " loses " + lastOf(f.before)
		if f.forGood() {
			q.Severity = Outage
		}
	}
	if routes := c.ingressesTo(f.key); len(routes) > 0 {
		q.Detail = append(q.Detail, "It stands behind "+some(routes)+".")
	}
	return q
}

func lastOf(n int) string {
	if n == 1 {
		return "its only ready endpoint"
	}
	return fmt.Sprintf("all of its %d ready endpoints", n)
}

// slicesGone is of EndpointSlices that go under a Service that keeps endpoints
// or never had any.
func (c *Case) slicesGone(f *fate) []Consequence {
	var again []*Object
	for _, o := range c.Deleted(EndpointSlices) {
		if o.Content != nil && serviceOf(o) == f.key && c.remakes(o) {
			again = append(again, o)
		}
	}
	if len(again) == 0 {
		return nil
	}
	return []Consequence{{
		Severity: Note, Rank: len(again), ID: "slice-remade", Objects: again,
		Title: fmt.Sprintf("%s %s back within seconds: a controller writes %s again", some(again), verb(len(again), "comes", "come"), verb(len(again), "it", "them")),
	}}
}

func (c *Case) ingressesTo(service Key) []*Object {
	var out []*Object
	for _, r := range references.of(c.State)[service] {
		if r.how == routesTo && c.stays(r.from) {
			out = append(out, r.from)
		}
	}
	return out
}

// withoutService is of Ingresses that stay and lead to a Service that goes.
func (c *Case) withoutService(f *fate) []Consequence {
	c.Need(Ingresses, "which of them lead to what goes")
	routes := c.ingressesTo(f.key)
	if len(routes) == 0 || !c.inUse(f) {
		return nil
	}
	var hosts []string
	for _, o := range routes {
		hosts = append(hosts, hostsOf(o.Content.(*networkingv1.Ingress))...)
	}
	slices.Sort(hosts)
	return []Consequence{{
		Severity: Breaks, Rank: f.before, ID: "ingress-without-service", Objects: []*Object{f.service}, Affected: names(routes),
		Title: fmt.Sprintf("requests for %s fail: %s leads to %s", sentence(slices.Compact(hosts)), some(routes), f.service),
	}}
}

func hostsOf(i *networkingv1.Ingress) []string {
	var out []string
	for _, rule := range i.Spec.Rules {
		if rule.Host != "" {
			out = append(out, rule.Host)
		}
	}
	if len(out) == 0 {
		return []string{"any host"}
	}
	return out
}

func (c *Case) ingressGone(o *Object, ingress *networkingv1.Ingress) Consequence {
	c.Need(EndpointSlices, "which Ingresses lead to somebody")
	q := Consequence{Severity: Note, ID: "ingress-gone", Objects: []*Object{o}}
	var live []string
	for _, name := range backendsOf(ingress) {
		if f := c.fate(Key{Services, o.Namespace, name}); c.inUse(f) {
			live = append(live, "Service "+o.Namespace+"/"+name)
			q.Rank += f.before
		}
	}
	if len(live) == 0 {
		q.Title = o.String() + " leads to no Service that has ready endpoints"
		return q
	}
	q.Severity = Breaks
	slices.Sort(live)
	q.Affected = live
	q.Title = fmt.Sprintf("requests for %s are no longer led to %s: %s goes", sentence(hostsOf(ingress)), sentence(live), o)
	return q
}
