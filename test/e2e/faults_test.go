// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/rig"
)

func TestBrokenManifests(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	web := rig.Service{Name: "web", VIP: n.vip()}
	good := web.YAML(rig.AllReady(a))
	pod, _ := n.client(t, "client")

	for _, c := range []struct {
		name, text string
		line       int
	}{
		{"text that is no YAML", strings.Replace(good, "spec:", "spec: [", 1), 4},
		{"a port that is none", strings.Replace(good, "port: 80", "port: 80000", 1), 4},
		{"an address that is none", strings.Replace(good, a.Addrs.V4.String(), "10.0.0.300", 1), 13},
		{"a list where text belongs", strings.Replace(good, "apiVersion: v1", "apiVersion: [v1]", 1), 1},
	} {
		t.Run(c.name+" leaves the last good content in force, and says where it stands", func(t *testing.T) {
			n.Write(t, "web.yaml", good)
			n.Settle(t)
			n.Write(t, "web.yaml", c.text)
			where := fmt.Sprintf("%s:%d:", filepath.Join(n.Manifests, "web.yaml"), c.line)
			rig.Eventually(t, func() error {
				s := n.Status(t)
				if len(s.Problems) == 0 || !strings.HasPrefix(s.Problems[0], where) || s.Healthy {
					return fmt.Errorf("healthy: %v, problems %q, want one at %s", s.Healthy, s.Problems, where)
				}
				return nil
			})
			if out := n.Run(t, 1, "status"); !strings.Contains(out, where) {
				t.Errorf("status does not show %s:\n%s", where, out)
			}
			for _, w := range ways {
				rig.Expect(t, pod, w, web.VIP, rig.ServicePort, "a")
			}
			// Others are not held up.
			other := rig.Service{Name: "other", VIP: n.vip()}
			n.Write(t, "other.yaml", other.YAML(rig.AllReady(b)))
			rig.Eventually(t, func() error {
				if reply := ways[0].Ask(pod, other.VIP, rig.ServicePort); reply.Server != "b" {
					return fmt.Errorf("another Service: %s", reply)
				}
				return nil
			})
			n.Write(t, "web.yaml", web.YAML(rig.AllReady(b)))
			n.Remove(t, "other")
			rig.Expect(t, pod, ways[0], web.VIP, rig.ServicePort, "b")
			n.Run(t, 0, "status")
		})
	}
}

func TestFullMaps(t *testing.T) {
	// A Service of these tests has four frontends and four sets, one slot for
	// each set and one for each of its backends; slot 0 is never used.
	for _, c := range []struct{ flag, value string }{
		{"--max-frontends", "6"},
		{"--max-sets", "6"},
		{"--max-backends", "16"},
	} {
		t.Run(c.flag+" too small: what does not fit says so, the rest works, and room heals it", func(t *testing.T) {
			n := startNode(t, c.flag, c.value)
			b := n.backend(t, "web")
			first, second := rig.Service{Name: "first", VIP: n.vip()}, rig.Service{Name: "second", VIP: n.vip()}
			n.Serve(t, first, rig.Ready(b))
			pod, _ := n.client(t, "client")
			n.Run(t, 0, "status")

			n.Write(t, "second.yaml", second.YAML(rig.AllReady(b)))
			rig.Eventually(t, func() error { return expectErrors(n.Status(t), c.flag) })
			n.Run(t, 1, "status")
			for _, w := range ways {
				rig.Expect(t, pod, w, first.VIP, rig.ServicePort, "web")
			}
			failed := n.failures(t)
			if len(failed) == 0 || len(failed) == 4 {
				t.Errorf("%d of the second's rows failed, want some", len(failed))
			}
			for _, row := range failed {
				if row.Service != "default/second" || !strings.Contains(*row.Error, c.flag) {
					t.Errorf("row %s:%d of %s: %s", row.Address, row.Port, row.Service, *row.Error)
				}
			}

			n.Remove(t, "first")
			n.Run(t, 0, "status")
			for _, w := range ways {
				rig.Expect(t, pod, w, second.VIP, rig.ServicePort, "web")
				expectUntouched(t, pod, w, first.VIP, rig.ServicePort)
			}
		})
	}
}

// expectErrors says what keeps a status from being that of a full map.
func expectErrors(s api.Status, flag string) error {
	if s.Healthy || s.Errors == 0 {
		return fmt.Errorf("healthy: %v with %d errors, after %s was exhausted", s.Healthy, s.Errors, flag)
	}
	return nil
}

// failures are the rows that could not be written.
func (n *node) failures(t *testing.T) []api.Frontend {
	t.Helper()
	rows, err := n.API.Frontends(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var failed []api.Frontend
	for _, row := range rows {
		if row.Status == api.StatusError {
			failed = append(failed, row)
		}
	}
	return failed
}
