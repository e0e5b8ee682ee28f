// SPDX-License-Identifier: Apache-2.0

package doctortest_test

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/model"
)

// example finds Services that the API has and a dump has no backend of.
func example() doctor.Check {
	return doctor.Check{ID: "example", Rank: doctor.RankKernel, Sample: func(s *facts.Sample) []doctor.Finding {
		if !s.Objects.Complete("services") {
			return nil
		}
		var out []doctor.Finding
		for _, n := range s.Nodes {
			for _, d := range n.Dumps {
				out = append(out, empty(s, n, &d)...)
			}
		}
		return out
	}}
}

func empty(s *facts.Sample, n *facts.Node, d *facts.Dump) []doctor.Finding {
	var out []doctor.Finding
	for _, fe := range d.Frontends {
		for _, svc := range s.Objects.Services {
			name := model.Name{Namespace: svc.Namespace, Name: svc.Name}
			if svc.Spec.ClusterIP != fe.Address.Addr().String() || len(fe.Backends) > 0 {
				continue
			}
			out = append(out, doctor.Finding{
				Severity: doctor.Critical, Layer: doctor.LayerKernel, Subject: name.String(), Nodes: []string{n.Name},
				Title:    fmt.Sprintf("%s has no backend", name),
				Breaks:   []string{doctor.Backends(name.String(), n.Name)},
				Evidence: []doctor.Evidence{{Node: n.Name, Command: d.Record.Command, Excerpt: fe.Address.String()}},
			})
		}
	}
	return out
}

func TestCases(t *testing.T) { doctortest.Run(t, []doctor.Check{example()}, "testdata") }
