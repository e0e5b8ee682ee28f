// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// Source is who named an endpoint.
type Source string

// The sources of learned addresses.
const (
	Slices Source = "slices" // the EndpointSlices of default/kubernetes
	Kernel Source = "kernel" // the backends in the maps of a predecessor
	File   Source = "file"   // what an earlier run knew
)

// The sources that the operator set.
const (
	flag       Source = "flag"
	kubeconfig Source = "kubeconfig"
	pod        Source = "pod" // the pod's environment, which names a Service address
)

// preference is the order of the sources, the one to try first in front.
var preference = []Source{flag, kubeconfig, Slices, Kernel, File, pod}

// serviceName stands in the certificate of every API server.
const serviceName = "kubernetes.default.svc"

// endpoint is a place at which the API server is, or was.
type endpoint struct {
	url     url.URL  // canonical
	sources []Source // in order of preference
	lot     uint32   // decides between those of one source: each agent draws its own
	state   string   // api.Endpoint…
	since   time.Time
	err     error
	tried   time.Time
}

func (e endpoint) key() string { return e.url.String() }

func (e endpoint) namedBy(sources ...Source) bool {
	return slices.ContainsFunc(sources, func(s Source) bool { return slices.Contains(e.sources, s) })
}

// isService says that only the pod's environment names it.
func (e endpoint) isService() bool { return len(e.sources) == 1 && e.sources[0] == pod }

func (e *endpoint) add(source Source) {
	if e.namedBy(source) {
		return
	}
	e.sources = append(e.sources, source)
	slices.SortFunc(e.sources, func(a, b Source) int { return rank(a) - rank(b) })
}

func (e *endpoint) drop(source Source) {
	e.sources = slices.DeleteFunc(e.sources, func(s Source) bool { return s == source })
}

func rank(s Source) int { return slices.Index(preference, s) }

// names are those of which the certificate must have one, in the order in
// which they are asked for. own is what the server that came with the credentials
// has to be called.
func (e endpoint) names(own string) []string {
	var names []string
	add := func(more ...string) {
		for _, name := range more {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if e.namedBy(kubeconfig, pod) {
		add(own)
	}
	if e.namedBy(flag) {
		add(e.url.Hostname())
	}
	// What nobody names any more, but is in use, was learned.
	if len(e.sources) == 0 || e.namedBy(flag, Slices, Kernel, File) {
		add(learnedNames(own)...)
	}
	return names
}

// learnedNames are those of API servers alone. The host is none of them: the
// authority of a cluster may sign a node's address for its kubelet, too.
func learnedNames(own string) []string { return []string{serviceName, own} }

// address is where the endpoint is, if that is all there is to say of it.
func (e endpoint) address() (netip.AddrPort, bool) {
	if e.url.Scheme != "https" || e.url.Path != "" {
		return netip.AddrPort{}, false
	}
	at, err := netip.ParseAddrPort(e.url.Host)
	return at, err == nil
}

// atAddress is the URL of an API server at a bare address.
func atAddress(at netip.AddrPort) url.URL {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	return url.URL{Scheme: "https", Host: at.String()}
}

// usable says that an API server could have this address. Zones are names of
// interfaces, which mean something else on each machine.
func usable(at netip.AddrPort) bool {
	a := at.Addr()
	return at.IsValid() && at.Port() != 0 && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast()
}

// compareEndpoints puts endpoints in the order in which they are tried. best
// is the key of the last one that was used.
func compareEndpoints(best string) func(a, b endpoint) int {
	turn := func(e endpoint) int {
		switch {
		case e.state == api.EndpointForeign:
			return 3
		case e.isService():
			return 2
		case e.key() == best:
			return 0
		}
		return 1
	}
	source := func(e endpoint) int {
		if len(e.sources) == 0 {
			return len(preference)
		}
		return rank(e.sources[0])
	}
	return func(a, b endpoint) int {
		return cmp.Or(turn(a)-turn(b), source(a)-source(b), cmp.Compare(a.lot, b.lot))
	}
}
