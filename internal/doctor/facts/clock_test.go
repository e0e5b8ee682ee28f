// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

func TestSkew(t *testing.T) {
	noon := time.Date(2026, time.January, 3, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		label string
		ago   []time.Duration
		want  time.Duration
	}{
		"Leases that were renewed just now: the clocks agree":         {"apiserver.kubernetes.io/identity: kube-apiserver", []time.Duration{8 * time.Second}, 0},
		"a Lease of the future: who collected is behind":              {"apiserver.kubernetes.io/identity: kube-apiserver", []time.Duration{-5 * time.Minute}, 5 * time.Minute},
		"none was renewed of late: who collected is ahead":            {"apiserver.kubernetes.io/identity: kube-apiserver", []time.Duration{5 * time.Minute, 40 * time.Minute}, -5 * time.Minute},
		"an API server that is gone says nothing of those that run":   {"apiserver.kubernetes.io/identity: kube-apiserver", []time.Duration{time.Second, 40 * time.Minute}, 0},
		"a Lease of somebody else's may be old, and says nothing":     {"app: x", []time.Duration{40 * time.Minute}, 0},
		"without Leases nothing tells, and clocks are taken to agree": {},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: kube-system}}\n"
			for i, ago := range tt.ago {
				text += fmt.Sprintf("- apiVersion: coordination.k8s.io/v1\n  kind: Lease\n  metadata: {name: l%d, namespace: kube-system, labels: {%s}}\n  spec: {renewTime: %q}\n",
					i, tt.label, noon.Add(-ago).Format("2006-01-02T15:04:05.000000Z07:00"))
			}
			b := &evidence.Bundle{Records: []evidence.Record{{Path: "1/objects/_leases.yaml", Kind: evidence.Objects, Sample: 1, Time: noon, Content: []byte(text)}}}
			c := Read(b)
			if len(c.Unread) > 0 {
				t.Fatal(c.Unread[0].Why)
			}
			if got := c.Skew(); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
