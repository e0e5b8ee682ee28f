// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// readProbes reads what came of connections that were tried on a node.
func readProbes(_ *Case, s *Sample, r *evidence.Record) error {
	results, err := probe.Parse(r.Content)
	if err != nil {
		return err
	}
	for i, result := range results {
		if pod, is := strings.CutPrefix(result.From, probe.FromPod); is && !isPod(pod) {
			return fmt.Errorf("number %d was tried from %q, which names no pod", i+1, pod)
		}
	}
	n := s.node(r.Node)
	for _, result := range results {
		n.Probes = append(n.Probes, Probe{result, r})
	}
	return nil
}
