// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/adapter/fairlead"
	"github.com/fairlead-io/fairlead/internal/adapter/recording"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// reader reads the content of a record of one kind into a sample, which is nil
// for what is no state. What it read
// of a record stands even if it returns an error that wraps errPartial.
type reader func(c *Case, s *Sample, r *evidence.Record) error

// readers are all that there are. A kind that is missing here is not read.
func readers() map[evidence.Kind]reader {
	return map[evidence.Kind]reader{
		evidence.Objects: readObjects,
		evidence.Dump:    readDumps,

		evidence.FairleadStatus:    readFairleadStatus,
		evidence.FairleadFrontends: readFairleadFrontends,
		evidence.FairleadKernel:    readFairleadKernel,
		evidence.KubeProxyVersion:  readKubeProxyVersion,
		evidence.KubeProxyMode:     readKubeProxyMode,

		evidence.Version:          readVersion,
		evidence.Conntrack:        readConntrack,
		evidence.Events:           readEvents,
		evidence.Log:              readLog,
		evidence.Access:           readAccess,
		evidence.Probes:           readProbes,
		evidence.CiliumVersion:    readCiliumVersion,
		evidence.CiliumStatus:     readCiliumStatus,
		evidence.CiliumConfig:     readCiliumConfig,
		evidence.CiliumEndpoints:  readCiliumEndpoints,
		evidence.CiliumIdentities: readCiliumIdentities,
		evidence.CiliumMetrics:    readCiliumMetrics,
	}
}

// plane says which data plane, and which layer of it, prints a table.
func plane(source string) (DataPlane, Layer) {
	switch source {
	case "cilium service list", "cilium db/show frontends":
		return PlaneCilium, Frontends
	case "cilium db/show backends":
		return PlaneCilium, Backends
	case fairlead.FrontendsSource:
		return PlaneFairlead, Frontends
	case fairlead.KernelSource:
		return PlaneFairlead, Kernel
	}
	if strings.HasPrefix(source, "cilium ") {
		return PlaneCilium, Kernel
	}
	return PlaneKubeProxy, Kernel
}

// readDumps reads the tables of Services in a record: a file may hold the rules
// of both families, or all tables of an agent.
func readDumps(c *Case, s *Sample, r *evidence.Record) error {
	dumps := c.same(r)
	if dumps == nil {
		var err error
		if dumps, _, err = recording.Dumps(r.Content, time.UTC); err != nil {
			return fmt.Errorf("find the tables in it: %w", err)
		}
	}
	if len(dumps) == 0 {
		return errors.New("it holds no table of Cilium, iptables-save, nft -j or ipvsadm")
	}
	var partial error
	for _, d := range dumps {
		plane, layer := plane(d.Source)
		partial = cmp.Or(partial, s.node(r.Node).take(r, plane, layer, d))
	}
	return partial
}

// same are the tables of another sample in which the same command printed the
// same on the node, as it mostly does; nil: there is none. Tables are read only,
// so samples share them: of a large cluster they are what takes time and memory.
func (c *Case) same(r *evidence.Record) []adapter.Dump {
	if r.Time.IsZero() || r.Cut || r.Error != "" {
		return nil
	}
	for _, s := range c.Samples {
		n := s.Node(r.Node)
		if n == nil {
			continue
		}
		alike := slices.IndexFunc(n.Dumps, func(d Dump) bool {
			return !d.Record.Cut && d.Record.Error == "" && bytes.Equal(d.Record.Content, r.Content)
		})
		if alike >= 0 {
			return n.of(n.Dumps[alike].Record)
		}
	}
	return nil
}

// of are the tables of one record.
func (n *Node) of(r *evidence.Record) (out []adapter.Dump) {
	for _, d := range n.Dumps {
		if d.Record == r {
			out = append(out, d.Dump)
		}
	}
	return out
}

// take adds a table. It returns what of it could not be read.
func (n *Node) take(r *evidence.Record, plane DataPlane, layer Layer, d adapter.Dump) error {
	d.Unread = d.Unread || r.Cut || r.Error != ""
	if !r.Time.IsZero() {
		d.Time = r.Time
	}
	n.Dumps = append(n.Dumps, Dump{Dump: d, DataPlane: plane, Layer: layer, Record: r})
	if !d.Unread || len(d.Problems) == 0 {
		return nil
	}
	var problems []string
	for _, p := range d.Problems[:min(len(d.Problems), maxFaults)] {
		problems = append(problems, fmt.Sprintf("line %d: %s", p.Line, p.Text))
	}
	return fmt.Errorf("%w: %s, %s", errPartial, d.Source, strings.Join(problems, "; "))
}
