// SPDX-License-Identifier: Apache-2.0

// Package apithroughservice looks for agents of a data plane that reach the API
// server through a Service which that data plane serves.
package apithroughservice

import (
	_ "embed"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/bugs"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

//go:embed README.md
var page string

const (
	id         = "api-through-service"
	kubernetes = "default/kubernetes"
)

// Check follows the address that agents are told to reach the API server at.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "agents that reach the API server through their own data plane", Rank: doctor.RankConfig, Page: page, Case: check}
}

func check(c *facts.Case) []doctor.Finding {
	last := c.Last()
	if last == nil {
		return nil
	}
	all := services.All(last.Objects)
	seen := map[string]bool{}
	var out []doctor.Finding
	for _, w := range ways(c, all) {
		service, found := behind(last.Objects, all, w.host, w.port)
		if !found || !serves(last, w.plane, service) || seen[w.component+" "+w.node] {
			continue
		}
		seen[w.component+" "+w.node] = true
		out = append(out, loop(c, w, service))
	}
	return out
}

// behind returns the Service that a host and port lead to.
func behind(o *facts.Objects, all []services.Service, host, port string) (services.Service, bool) {
	if isKubernetes(host) {
		return services.Find(all, kubernetes)
	}
	address, err := netip.ParseAddr(host)
	number, invalid := strconv.ParseUint(port, 10, 16)
	if err != nil || invalid != nil {
		return services.Service{}, false
	}
	address = address.Unmap()
	for _, s := range all {
		if s.Served() && slices.Contains(s.Addresses(), netip.AddrPortFrom(address, uint16(number))) {
			return s, true
		}
	}
	if !address.IsLoopback() && !ofNode(o, address) {
		return services.Service{}, false
	}
	for _, s := range all {
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 && uint64(p.NodePort) == number {
				return s, true
			}
		}
	}
	return services.Service{}, false
}

// isKubernetes says that a host is the name of the API server's own Service.
func isKubernetes(host string) bool {
	host = strings.TrimSuffix(host, ".")
	return host == "kubernetes.default" || host == "kubernetes.default.svc" || strings.HasPrefix(host, "kubernetes.default.svc.")
}

func ofNode(o *facts.Objects, address netip.Addr) bool {
	for _, n := range o.Nodes {
		for _, a := range n.Status.Addresses {
			if its, err := netip.ParseAddr(a.Address); err == nil && its.Unmap() == address {
				return true
			}
		}
	}
	return false
}

func loop(c *facts.Case, w way, service services.Service) doctor.Finding {
	last := c.Last()
	w.version = bugs.Only(last, bugs.Cilium)
	f := doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: w.component, Certain: true,
		Title: fmt.Sprintf("%s reaches the API server at %s, which is %s, a Service that it serves itself", w.component, net.JoinHostPort(w.host, w.port), service),
		Detail: []string{
			w.how,
			"Once that Service has no backend on a node, for whatever reason, the agent there cannot reach the API server, and so never hears of a new backend.",
		},
		Evidence: slices.Concat(w.shown, services.Shown(last.Objects, service)),
		Breaks:   []string{doctor.Loop(w.component, w.node)},
		Remedy:   remedies(last.Objects, w, service),
	}
	if !w.returns {
		f.Detail = append(f.Detail, "Restarting the agent does not help, for what it wrote stays in the kernel.")
	}
	if w.node != "" {
		f.Nodes = []string{w.node}
	}
	if without := empty(c, w, service); len(without) > 0 {
		f.Severity, f.Nodes = doctor.Critical, nil
		for _, d := range without {
			f.Nodes = append(f.Nodes, d.node)
			f.RestsOn = append(f.RestsOn, doctor.Backends(service.String(), d.node))
			f.Evidence = doctor.Join(f.Evidence, d.shown)
		}
		f.Detail = append(f.Detail, fmt.Sprintf("That has happened: %s has no backend on %s.", service, strings.Join(f.Nodes, ", ")))
	}
	return f
}

// serves says that a data plane serves a Service to processes of the nodes. Where
// Cilium leaves that to kube-proxy, its tables have Services too, for pods.
func serves(s *facts.Sample, plane facts.DataPlane, service services.Service) bool {
	if plane == facts.PlaneKubeProxy {
		return true
	}
	if replaces, known := replacesKubeProxy(s); known {
		return replaces
	}
	listed := false
	for _, n := range s.Nodes {
		for i := range n.Dumps {
			d := &n.Dumps[i]
			if d.DataPlane == facts.PlaneKubeProxy && d.Silent == "" {
				return false
			}
			_, here := backends(d, service)
			listed = listed || here && d.DataPlane == plane && d.Layer == facts.Kernel
		}
	}
	return listed
}

// dead is a node on which a Service has no backend.
type dead struct {
	node  string
	shown doctor.Evidence
}

// empty are the nodes on which a data plane has no backend of a Service by every
// sample that could show one.
func empty(c *facts.Case, w way, service services.Service) []dead {
	var out []dead
	for _, n := range c.Last().Nodes {
		if w.node != "" && n.Name != w.node {
			continue
		}
		shown := doctor.Evidence{}
		none := 0
		for _, s := range c.Samples {
			count, d := kernel(s.Node(n.Name), w.plane, service)
			if d == nil {
				continue
			}
			if count > 0 {
				none = 0
				break
			}
			none, shown = none+1, doctor.Excerpt(d.Record, fmt.Sprintf("%s  (no backend)", net.JoinHostPort(w.host, w.port)))
		}
		if none > 0 {
			out = append(out, dead{n.Name, shown})
		}
	}
	return out
}

// kernel is how many backends a Service has in the kernel of a node; no dump if
// none tells.
func kernel(n *facts.Node, plane facts.DataPlane, service services.Service) (int, *facts.Dump) {
	if n == nil {
		return 0, nil
	}
	for i := range n.Dumps {
		d := &n.Dumps[i]
		if d.DataPlane != plane || d.Layer != facts.Kernel || d.Silent != "" || d.Unread {
			continue
		}
		if count, listed := backends(d, service); listed {
			return count, d
		}
	}
	return 0, nil
}

func backends(d *facts.Dump, service services.Service) (count int, listed bool) {
	own := service.Addresses()
	for i := range d.Frontends {
		if f := &d.Frontends[i]; slices.Contains(own, f.Address) {
			count, listed = count+len(f.Backends)+f.More, true
		}
	}
	return count, listed
}
