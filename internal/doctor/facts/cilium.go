// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"

	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// cilium returns what is known of the node's Cilium agent, and makes it if
// nothing was.
func (n *Node) cilium() *Cilium {
	if n.Cilium == nil {
		n.Cilium = &Cilium{}
	}
	return n.Cilium
}

// part marks the error of a parser that has read some of a record.
func part(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errPartial, err)
}

func readCiliumVersion(_ *Case, s *Sample, r *evidence.Record) error {
	version, err := cilium.ParseVersion(r.Content)
	if err != nil {
		return err
	}
	c := s.node(r.Node).cilium()
	c.Version, c.VersionRecord = version, r
	return nil
}

// readCiliumStatus also takes the version from it where no other record tells.
func readCiliumStatus(_ *Case, s *Sample, r *evidence.Record) error {
	status, err := cilium.ParseStatus(r.Content)
	if err != nil {
		return err
	}
	c := s.node(r.Node).cilium()
	c.Status, c.StatusRecord = status, r
	if version := status.Version(); c.Version == "" && version != "" {
		c.Version, c.VersionRecord = version, r
	}
	return nil
}

func readCiliumConfig(_ *Case, s *Sample, r *evidence.Record) error {
	config, err := cilium.ParseConfig(r.Content)
	if config == nil {
		return err
	}
	c := s.node(r.Node).cilium()
	c.Config, c.ConfigRecord = config, r
	return part(err)
}

func readCiliumEndpoints(_ *Case, s *Sample, r *evidence.Record) error {
	endpoints, err := cilium.ParseEndpoints(r.Content)
	if endpoints == nil {
		return err
	}
	for i := range endpoints {
		if !isPod(endpoints[i].Pod) {
			endpoints[i].Pod = ""
		}
	}
	c := s.node(r.Node).cilium()
	c.Endpoints, c.EndpointsRecord = endpoints, r
	return part(err)
}

func readCiliumIdentities(_ *Case, s *Sample, r *evidence.Record) error {
	identities, err := cilium.ParseIdentities(r.Content)
	if identities == nil {
		return err
	}
	c := s.node(r.Node).cilium()
	c.Identities, c.IdentitiesRecord = identities, r
	return part(err)
}

func readCiliumMetrics(_ *Case, s *Sample, r *evidence.Record) error {
	pressure, err := cilium.ParseMapPressure(r.Content)
	if pressure == nil {
		return err
	}
	c := s.node(r.Node).cilium()
	c.MapPressure, c.MetricsRecord = pressure, r
	return part(err)
}
