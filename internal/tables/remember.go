// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/model"
)

// The most that is taken from a file: more than any API server has.
const (
	maxRememberedPorts    = 256
	maxRememberedBackends = 4096
)

// memory is what the file is to know of the Service, if anything.
func (k *keeper) memory() (RememberedService, bool) {
	if k.object == nil || len(k.sets) == 0 {
		return RememberedService{}, false
	}
	m := RememberedService{Object: k.object, Sets: make([]RememberedSet, len(k.sets))}
	for i, s := range k.sets {
		m.Sets[i] = RememberedSet{
			PortName: s.key.PortName, Protocol: s.key.Protocol, Family: s.key.Family, Role: s.key.Role,
			Backends: k.mine(&k.sets[i]), Emptied: s.emptied.UTC(), Ended: s.ended,
		}
	}
	return m, true
}

// mine are the backends that may be used again: not those that belong to
// something else, or may.
func (k *keeper) mine(s *keptSet) []model.Backend {
	if !s.rebooted {
		return s.own()
	}
	return slices.DeleteFunc(slices.Clone(s.own()), func(b model.Backend) bool { return s.isLost(&b, k.node) })
}

// sameMemory says that the file need not be written. That an object has a new
// version is nothing to remember.
func sameMemory(a, b *Memory) bool {
	return slices.EqualFunc(a.Services, b.Services, func(x, y RememberedService) bool {
		return sameObject(x.Object, y.Object) && slices.EqualFunc(x.Sets, y.Sets, sameRemembered)
	})
}

func sameObject(a, b *model.Service) bool {
	if a == b {
		return true
	}
	if a == nil || b == nil || !a.CreationTimestamp.Equal(b.CreationTimestamp) {
		return false
	}
	one, other := *a, *b
	one.ResourceVersion, one.CreationTimestamp = other.ResourceVersion, other.CreationTimestamp
	return reflect.DeepEqual(one, other)
}

func sameRemembered(a, b RememberedSet) bool {
	sameBackend := func(x, y model.Backend) bool {
		return x.AddrPort == y.AddrPort && x.State == y.State && x.Local == y.Local && x.Node == y.Node && slices.Equal(x.Slices, y.Slices)
	}
	return a.PortName == b.PortName && a.Protocol == b.Protocol && a.Family == b.Family && a.Role == b.Role &&
		a.Emptied.Equal(b.Emptied) && a.Ended == b.Ended && slices.EqualFunc(a.Backends, b.Backends, sameBackend)
}

// nameOf is the Service that is remembered; the zero Name, which no Service has,
// if none is.
func nameOf(m *RememberedService) model.Name {
	if m.Object == nil {
		return model.Name{}
	}
	return m.Object.Name
}

// remember takes from a file what makes sense. Nobody knows what else wrote it.
func (k *keeper) remember(m *RememberedService, now time.Time) {
	if !soundService(m.Object) {
		return
	}
	k.object = m.Object
	for i := range m.Sets {
		r := &m.Sets[i]
		key := model.SetKey{Service: k.name, PortName: r.PortName, Protocol: r.Protocol, Family: r.Family, Role: r.Role}
		at, taken := findKept(k.sets, key)
		backends, sound := soundBackends(r)
		if taken || !sound {
			continue
		}
		s := keptSet{key: key, backends: backends, emptied: r.Emptied.UTC(), ended: r.Ended}
		s.remain(k.limit, now)
		k.sets = slices.Insert(k.sets, at, s)
	}
}

// adopt takes a set from the kernel, which tells no more than addresses.
func (k *keeper) adopt(key model.SetKey, addresses []netip.AddrPort) {
	r := RememberedSet{PortName: key.PortName, Protocol: key.Protocol, Family: key.Family, Role: key.Role}
	for _, at := range addresses {
		r.Backends = append(r.Backends, model.Backend{AddrPort: at})
	}
	at, taken := findKept(k.sets, key)
	if backends, sound := soundBackends(&r); sound && !taken {
		k.sets = slices.Insert(k.sets, at, keptSet{key: key, backends: backends})
	}
}

// remain sets how long the set may still be kept, by a clock that nobody turns:
// what the wall's said when it was emptied counts, but whatever became of that
// clock since, there is never more left than the limit.
func (s *keptSet) remain(limit time.Duration, now time.Time) {
	if s.emptied.IsZero() {
		return
	}
	if s.emptied.After(now) {
		s.emptied = now
	}
	s.deadline = now.Add(max(0, limit-now.Sub(s.emptied)))
}

// soundService says that Compile can read the Service.
func soundService(s *model.Service) bool {
	invalid := func(a netip.Addr) bool { return !soundAddr(a) }
	return s != nil && s.Type <= model.ServiceExternalName &&
		s.InternalTrafficPolicy <= model.PolicyLocal && s.ExternalTrafficPolicy <= model.PolicyLocal &&
		s.Selection <= model.SelectionMaglev &&
		len(s.Ports) <= maxRememberedPorts && !slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Port == 0 || !soundProtocol(p.Protocol) }) &&
		len(s.ClusterIPs)+len(s.ExternalIPs)+len(s.LoadBalancerIngress)+len(s.SourceRanges) <= maxRememberedBackends &&
		!slices.ContainsFunc(s.ClusterIPs, invalid) && !slices.ContainsFunc(s.ExternalIPs, invalid) &&
		!slices.ContainsFunc(s.LoadBalancerIngress, func(in model.LoadBalancerIngress) bool { return invalid(in.Address) }) &&
		!slices.ContainsFunc(s.SourceRanges, func(p netip.Prefix) bool { return !p.IsValid() || invalid(p.Addr()) || p != p.Masked() })
}

// soundBackends returns the backends of a set in their order, unless the set
// makes no sense.
func soundBackends(r *RememberedSet) ([]model.Backend, bool) {
	family := r.Family == model.IPv4 || r.Family == model.IPv6
	ended := r.Ended == NotEnded || r.Ended == EndedLimit || r.Ended == EndedReleased
	if !family || !ended || !soundProtocol(r.Protocol) || r.Role > model.RoleVIPInternal || len(r.Backends) > maxRememberedBackends {
		return nil, false
	}
	var backends []model.Backend
	for _, b := range r.Backends {
		at := b.AddrPort.Addr()
		if soundAddr(at) && model.FamilyOf(at) == r.Family && b.AddrPort.Port() != 0 && !at.IsLoopback() && !at.IsUnspecified() && !at.IsMulticast() {
			b.State = min(b.State, model.StateTerminating)
			backends = append(backends, b)
		}
	}
	slices.SortFunc(backends, func(a, b model.Backend) int {
		return cmp.Or(model.CompareAddrPort(a.AddrPort, b.AddrPort), cmp.Compare(a.Node, b.Node))
	})
	backends = slices.CompactFunc(backends, func(a, b model.Backend) bool { return a.AddrPort == b.AddrPort })
	return backends, len(backends) > 0
}

func soundProtocol(p model.Protocol) bool { return p == model.TCP || p == model.UDP || p == model.SCTP }

// soundAddr says that the model may have the address.
func soundAddr(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }
