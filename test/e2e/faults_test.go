// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
)

func TestBrokenManifests(t *testing.T) {
	n := startNode(t)
	a, b := n.backend(t, "a"), n.backend(t, "b")
	web := service{name: "web", vip: n.vip()}
	good := web.yaml(allReady(a))
	pod, _ := n.client(t, "client")

	for _, c := range []struct {
		name, text string
		line       int
	}{
		{"text that is no YAML", strings.Replace(good, "spec:", "spec: [", 1), 4},
		{"a port that is none", strings.Replace(good, "port: 80", "port: 80000", 1), 4},
		{"an address that is none", strings.Replace(good, a.addrs.v4.String(), "10.0.0.300", 1), 13},
		{"a list where text belongs", strings.Replace(good, "apiVersion: v1", "apiVersion: [v1]", 1), 1},
	} {
		t.Run(c.name+" leaves the last good content in force, and says where it stands", func(t *testing.T) {
			n.write(t, "web.yaml", good)
			n.settle(t)
			n.write(t, "web.yaml", c.text)
			where := fmt.Sprintf("%s:%d:", filepath.Join(n.manifests, "web.yaml"), c.line)
			eventually(t, func() error {
				s := n.status(t)
				if len(s.Problems) == 0 || !strings.HasPrefix(s.Problems[0], where) || s.Healthy {
					return fmt.Errorf("healthy: %v, problems %q, want one at %s", s.Healthy, s.Problems, where)
				}
				return nil
			})
			if out := n.run(t, 1, "status"); !strings.Contains(out, where) {
				t.Errorf("status does not show %s:\n%s", where, out)
			}
			for _, w := range ways {
				expect(t, pod, w, web.vip, servicePort, "a")
			}
			// Others are not held up.
			other := service{name: "other", vip: n.vip()}
			n.write(t, "other.yaml", other.yaml(allReady(b)))
			eventually(t, func() error {
				if reply := ways[0].ask(pod, other.vip, servicePort); reply.Server != "b" {
					return fmt.Errorf("another Service: %s", reply)
				}
				return nil
			})
			n.write(t, "web.yaml", web.yaml(allReady(b)))
			n.remove(t, "other")
			expect(t, pod, ways[0], web.vip, servicePort, "b")
			n.run(t, 0, "status")
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
			first, second := service{name: "first", vip: n.vip()}, service{name: "second", vip: n.vip()}
			n.serve(t, first, ready(b))
			pod, _ := n.client(t, "client")
			n.run(t, 0, "status")

			n.write(t, "second.yaml", second.yaml(allReady(b)))
			eventually(t, func() error { return expectErrors(n.status(t), c.flag) })
			n.run(t, 1, "status")
			for _, w := range ways {
				expect(t, pod, w, first.vip, servicePort, "web")
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

			n.remove(t, "first")
			n.run(t, 0, "status")
			for _, w := range ways {
				expect(t, pod, w, second.vip, servicePort, "web")
				expectUntouched(t, pod, w, first.vip, servicePort)
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
	rows, err := n.api.Frontends(t.Context())
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
