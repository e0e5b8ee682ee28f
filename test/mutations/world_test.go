// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/model"
)

// healthy are bundles of nodes on which nothing was wrong, by data plane.
const healthy = "../doctor/testdata/healthy"

// world is a healthy bundle, and what of it may be broken.
type world struct {
	name     string
	plane    facts.DataPlane
	bundle   *evidence.Bundle
	services []service
	known    map[string]bool // titles of what is found without a fault
}

// service is a Service of a world that its data plane serves.
type service struct {
	object   *corev1.Service
	backends []netip.AddrPort // ready ones, at one port, that the kernel leads to
	port     corev1.ServicePort
}

func (s *service) name() model.Name {
	return model.Name{Namespace: s.object.Namespace, Name: s.object.Name}
}

// holds says that a frontend is the Service's port.
func (s *service) holds(address netip.AddrPort, protocol string) bool {
	if protocol != "" && protocol != string(protocolOf(s.port)) {
		return false
	}
	if s.port.NodePort != 0 && address.Port() == uint16(s.port.NodePort) {
		return true
	}
	if address.Port() != uint16(s.port.Port) {
		return false
	}
	own := slices.Concat(s.object.Spec.ClusterIPs, s.object.Spec.ExternalIPs)
	for _, in := range s.object.Status.LoadBalancer.Ingress {
		own = append(own, in.IP)
	}
	return slices.Contains(own, address.Addr().String())
}

func protocolOf(p corev1.ServicePort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}

// worlds reads the healthy bundles of a data plane.
func worlds(t *testing.T, plane facts.DataPlane) []world {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(healthy, string(plane)+"*", "*"))
	if err != nil || len(files) < 10 {
		t.Fatalf("there are %d healthy bundles of %s, want 10: %v", len(files), plane, err)
	}
	var out []world
	for _, file := range files {
		w := world{name: filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file), plane: plane, bundle: settled(read(t, file)), known: map[string]bool{}}
		for _, n := range examine(w.bundle).Causes {
			if strings.HasPrefix(n.Check, "backends-") || strings.HasPrefix(n.Check, "frontend-") {
				t.Errorf("%s is healthy, and %s says: %s", w.name, n.Check, n.Title)
			}
			w.known[n.Title] = true
		}
		w.find()
		if len(w.services) > 0 {
			out = append(out, w)
		}
	}
	return out
}

func read(t *testing.T, file string) *evidence.Bundle {
	t.Helper()
	if !strings.HasSuffix(file, ".txtar") {
		b, err := evidence.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := doctortest.Bundle(archive)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// settled has both samples of a bundle say what the last one does: a fault of a
// table that changes besides is another one each time.
func settled(b *evidence.Bundle) *evidence.Bundle {
	last := map[string]*evidence.Record{}
	for i := range b.Records {
		last[b.Records[i].Path] = &b.Records[i]
	}
	for i := range b.Records {
		r := &b.Records[i]
		if rest, first := strings.CutPrefix(r.Path, "1/"); first && last["2/"+rest] != nil {
			r.Content = last["2/"+rest].Content
		}
	}
	return b
}

// find looks for the Services that the kernel serves with ready endpoints.
func (w *world) find() {
	last := facts.Read(w.bundle).Last()
	ready := map[string][]netip.AddrPort{}
	for _, slice := range last.Objects.EndpointSlices {
		for _, p := range slice.Ports {
			if p.Port == nil {
				continue
			}
			key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName] + ":"
			if p.Name != nil {
				key += *p.Name
			}
			ready[key] = append(ready[key], readyOf(slice, uint16(*p.Port))...)
		}
	}
	for _, object := range last.Objects.Services {
		for _, port := range object.Spec.Ports {
			s := service{object: object, port: port}
			s.backends = w.served(last, &s, ready[object.Namespace+"/"+object.Name+":"+port.Name])
			if len(s.backends) > 0 {
				w.services = append(w.services, s)
			}
		}
	}
}

func readyOf(slice *discoveryv1.EndpointSlice, port uint16) []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, a := range e.Addresses {
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), port))
		}
	}
	return out
}

// served are those of some endpoints that the kernel leads to from the Service's
// own ClusterIP, of the family of its first one.
func (w *world) served(s *facts.Sample, svc *service, ready []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, n := range s.Nodes {
		for i := range n.Dumps {
			if n.Dumps[i].Layer != facts.Kernel {
				continue
			}
			for _, fe := range n.Dumps[i].Frontends {
				if fe.Address.Addr().String() != svc.object.Spec.ClusterIP || !svc.holds(fe.Address, fe.Protocol.String()) {
					continue
				}
				for _, b := range fe.Backends {
					if slices.Contains(ready, b.Address) {
						out = append(out, b.Address)
					}
				}
			}
		}
	}
	slices.SortFunc(out, model.CompareAddrPort)
	return slices.Compact(out)
}

// pick draws a Service, and one of its backends.
func (w *world) pick(r *rand.Rand) (*service, netip.AddrPort) {
	s := &w.services[r.IntN(len(w.services))]
	return s, s.backends[r.IntN(len(s.backends))]
}

// other draws a backend of another Service that the first has not, of one
// family; false: there is none.
func (w *world) other(r *rand.Rand, s *service) (netip.AddrPort, bool) {
	for range 20 {
		o, b := w.pick(r)
		if o.name() != s.name() && !slices.Contains(s.backends, b) && b.Addr().Is4() == s.backends[0].Addr().Is4() {
			return b, true
		}
	}
	return netip.AddrPort{}, false
}

// clone copies a bundle, for its records to be changed.
func clone(b *evidence.Bundle) *evidence.Bundle {
	out := *b
	out.Records = slices.Clone(b.Records)
	return &out
}

// edit changes the records of a kind, as a whole or those whose content holds a
// word. It fails if a sample stays as it was.
func edit(b *evidence.Bundle, change func(r *evidence.Record) ([]byte, error)) error {
	changed := map[int]bool{}
	for i := range b.Records {
		r := &b.Records[i]
		content, err := change(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Path, err)
		}
		if content != nil && !bytes.Equal(content, r.Content) {
			r.Content, changed[r.Sample] = content, true
		}
	}
	if !changed[1] || !changed[2] {
		return errUnchanged
	}
	return nil
}
