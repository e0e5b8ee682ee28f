// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/test/rig"
)

// frontends is how many frontends a Service has in this world: those that the
// test makes have a ClusterIP and a NodePort, of two families and two protocols.
func frontends(service string) int {
	if service == kubernetesKey {
		return 1
	}
	return 8
}

// watcher reads the pinned maps all the time, whether or not an agent runs,
// and holds them against the ledger.
type watcher struct {
	pins  string
	names map[netip.AddrPort]string // of the endpoints
}

func (w *world) newWatcher() watcher {
	k := watcher{w.agent.Pins, map[netip.AddrPort]string{}}
	for _, b := range w.backends {
		for _, addr := range b.Addrs.List() {
			k.names[netip.AddrPortFrom(addr, rig.BackendPort)] = b.Name
		}
	}
	for _, s := range w.servers {
		k.names[s.at()] = apiServerName
	}
	return k
}

// startWatcher watches until the test ends.
func (w *world) startWatcher() {
	k := w.newWatcher()
	w.always(func() { k.look(w) })
}

// contents are the frontends in the kernel, by Service.
func (k watcher) contents() (map[string][]api.KernelEntry, error) {
	reader, err := datapath.OpenReader(k.pins)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	kernel, err := reader.Kernel()
	if err != nil {
		return nil, err
	}
	entries := map[string][]api.KernelEntry{}
	for _, e := range kernel.Entries {
		entries[e.Service] = append(entries[e.Service], e)
	}
	return entries, nil
}

// look reads the kernel once. What was promised must be there.
func (k watcher) look(w *world) {
	var attempts []attempt
	for _, s := range w.services {
		attempts = append(attempts, w.ledger.begin(s.key()))
	}
	attempts = append(attempts, w.ledger.begin(kubernetesKey))
	entries, err := k.contents()
	if err != nil {
		if attempts[0].promised() {
			w.ledger.breach("the kernel cannot be read: %v", err)
		}
		return
	}
	w.report.glances.Add(1)
	for _, a := range attempts {
		if problem := k.judge(a, entries[a.service]); problem != "" && a.promised() {
			w.ledger.breach("in the kernel %s %s, which its objects have not asked for since the last quiet point", a.service, problem)
		}
	}
}

// judge says what is wrong with the frontends of a Service that is promised.
func (k watcher) judge(a attempt, entries []api.KernelEntry) string {
	if want := frontends(a.service); len(entries) < want {
		return fmt.Sprintf("has %d frontends of %d", len(entries), want)
	}
	for _, e := range entries {
		at := fmt.Sprintf("%s %d/%s", e.Address, e.Port, e.Protocol)
		if e.Problem != "" {
			return fmt.Sprintf("at %s makes no sense: %s", at, e.Problem)
		}
		servers := k.servers(e)
		if len(servers) == 0 {
			return fmt.Sprintf("at %s has no backends", at)
		}
		for _, server := range servers {
			if !a.may(server) {
				return fmt.Sprintf("at %s has the backend %s", at, server)
			}
		}
	}
	return ""
}

// servers are the names of an entry's backends, or their addresses where they
// have none; sorted, and each once.
func (k watcher) servers(e api.KernelEntry) []string {
	var all []string
	for _, b := range e.Backends {
		at := fmt.Sprintf("%s port %d", b.Address, b.Port)
		if addr, err := netip.ParseAddr(b.Address); err == nil && k.names[netip.AddrPortFrom(addr, b.Port)] != "" {
			at = k.names[netip.AddrPortFrom(addr, b.Port)]
		}
		all = append(all, at)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
