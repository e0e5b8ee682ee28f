// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// check makes sure of what the readers of a Content rely on. A right checksum
// says that a file is as it was written, not that an agent wrote it.
func check(c Content) error {
	for i, at := range c.Endpoints {
		if !dialable(at) {
			return fmt.Errorf("endpoints[%d]: %s is not the address and port of a server", i, at)
		}
	}
	for i, service := range c.Memory.Services {
		if err := checkService(service); err != nil {
			return fmt.Errorf("memory.services[%d]: %w", i, err)
		}
	}
	return nil
}

func checkService(s tables.RememberedService) error {
	if s.Object == nil || s.Object.Namespace == "" || s.Object.Name.Name == "" {
		return errors.New("the Service is missing, or its name")
	}
	if err := checkObject(s.Object); err != nil {
		return fmt.Errorf("%s: %w", s.Object.Name, err)
	}
	for i, set := range s.Sets {
		if err := checkSet(set); err != nil {
			return fmt.Errorf("%s: sets[%d]: %w", s.Object.Name, i, err)
		}
	}
	return nil
}

func checkObject(s *model.Service) error {
	if s.Type > model.ServiceExternalName {
		return fmt.Errorf("%d is no type of a Service", s.Type)
	}
	if s.InternalTrafficPolicy > model.PolicyLocal || s.ExternalTrafficPolicy > model.PolicyLocal {
		return errors.New("a traffic policy is neither Cluster nor Local")
	}
	if s.Selection > model.SelectionMaglev {
		return fmt.Errorf("%d is no way to select a backend", s.Selection)
	}
	for _, port := range s.Ports {
		if err := checkProtocol(port.Protocol); err != nil {
			return err
		}
		if port.Port == 0 {
			return errors.New("a port has no number")
		}
	}
	for _, address := range addressesOf(s) {
		if !plain(address) {
			return fmt.Errorf("%s is not the address of a Service", address)
		}
	}
	for _, prefix := range s.SourceRanges {
		if !prefix.IsValid() || prefix.Masked() != prefix {
			return fmt.Errorf("%s is not a source range", prefix)
		}
	}
	return nil
}

func addressesOf(s *model.Service) []netip.Addr {
	all := append(append([]netip.Addr(nil), s.ClusterIPs...), s.ExternalIPs...)
	for _, ingress := range s.LoadBalancerIngress {
		all = append(all, ingress.Address)
	}
	return all
}

func checkSet(s tables.RememberedSet) error {
	if err := checkProtocol(s.Protocol); err != nil {
		return err
	}
	if s.Family != model.IPv4 && s.Family != model.IPv6 {
		return fmt.Errorf("%d is no IP family", s.Family)
	}
	if s.Role > model.RoleVIPInternal {
		return fmt.Errorf("%d is no role of a backend set", s.Role)
	}
	for _, b := range s.Backends {
		if !dialable(b.AddrPort) || model.FamilyOf(b.AddrPort.Addr()) != s.Family {
			return fmt.Errorf("%s is not an %s backend", b.AddrPort, s.Family)
		}
		if b.State > model.StateUnverified {
			return fmt.Errorf("%d is no state of a backend", b.State)
		}
	}
	switch s.Ended {
	case tables.NotEnded, tables.EndedLimit, tables.EndedReleased:
		return nil
	}
	return fmt.Errorf("%q is no ending of a retention", s.Ended)
}

func checkProtocol(p model.Protocol) error {
	if _, err := model.ParseProtocol(p.String()); err != nil {
		return fmt.Errorf("%d is the number of none of TCP, UDP, SCTP", uint8(p))
	}
	return nil
}

// plain says that an address is as the model's are: valid, and one family's.
func plain(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }

// dialable says that a server may be there.
func dialable(at netip.AddrPort) bool {
	return plain(at.Addr()) && !at.Addr().IsUnspecified() && !at.Addr().IsMulticast() && at.Port() != 0
}
