// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/statefile"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// keep lets emptied sets go on with what the state file remembers of them, if
// one was named. An agent would find out which of these backends answer; here
// nobody has.
func (o *objectFlags) keep(w *world, services []*model.Service) error {
	if o.stateFile == "" {
		return nil
	}
	content, err := statefile.Read(o.stateFile)
	if err != nil {
		return err
	}
	for _, remembered := range content.Memory.Services {
		i := slices.IndexFunc(services, func(s *model.Service) bool { return s.Name == remembered.Object.Name })
		if i < 0 || !sameService(services[i], remembered.Object) {
			continue
		}
		for j := range w.resolved {
			if c := &w.resolved[j]; c.Service == remembered.Object.Name {
				c.Compiled = c.Compiled.WithKept(func(key model.SetKey) []model.Backend { return kept(remembered, key, &w.node) })
			}
		}
	}
	return nil
}

// sameService says that a memory is of this Service: nothing is kept for one
// that was deleted and made anew, or retyped. A manifest may not tell when its
// Service was made.
func sameService(s, remembered *model.Service) bool {
	return s.Type == remembered.Type &&
		(s.CreationTimestamp.IsZero() || s.CreationTimestamp.Equal(remembered.CreationTimestamp))
}

// kept are the backends that a memory has for a set, in the order of a set's.
func kept(s tables.RememberedService, key model.SetKey, node *model.Node) []model.Backend {
	i := slices.IndexFunc(s.Sets, func(r tables.RememberedSet) bool {
		return key == model.SetKey{Service: s.Object.Name, PortName: r.PortName, Protocol: r.Protocol, Family: r.Family, Role: r.Role}
	})
	if i < 0 || s.Sets[i].Ended != tables.NotEnded {
		return nil
	}
	backends := slices.SortedFunc(slices.Values(s.Sets[i].Backends), func(a, b model.Backend) int { return model.CompareAddrPort(a.AddrPort, b.AddrPort) })
	backends = slices.CompactFunc(backends, func(a, b model.Backend) bool { return a.AddrPort == b.AddrPort })
	for j := range backends {
		backends[j].State = model.StateUnverified
		backends[j].Local = backends[j].Node != "" && backends[j].Node == node.Name
	}
	return backends
}
