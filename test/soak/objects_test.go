// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/test/rig"
)

// The Services of the world. The endpoints of steady ones never change. Names
// that begin alike have led proxies to take one Service for another.
var (
	steadyNames = []string{"steady", "steady-1", "steadier"}
	livelyNames = []string{"lively", "lively-1", "lively-11", "lively-1-1", "livelyx", "live"}
)

// condition is what a slice says of an endpoint.
type condition int

const (
	ready condition = iota
	terminating
	notReady
)

// service is a Service and its two pairs of slices, as the API has them.
type service struct {
	rig.Service
	steady bool
	exists bool
	slices [2]map[int]condition // by number of the backend
}

func newService(name string, number int) *service {
	return &service{
		Service: rig.Service{
			Name: name, NodePort: uint16(30000 + number), Spec: "type: NodePort, ipFamilyPolicy: RequireDualStack",
			VIP: rig.ParsePair(fmt.Sprintf("10.96.1.%d", number), fmt.Sprintf("fd00:10:96::%x", number)),
		},
		slices: [2]map[int]condition{{}, {}},
	}
}

// key is the Service's name with its namespace.
func (s *service) key() string { return "default/" + s.Name }

// asks is what the Service's objects ask for: new connections go to ready
// endpoints, or else to terminating ones that serve (R7).
func (s *service) asks(backends []*rig.Backend) state {
	if !s.exists {
		return state{}
	}
	with := func(wanted condition) []string {
		found := map[string]bool{}
		for _, endpoints := range s.slices {
			for i, c := range endpoints {
				if c == wanted {
					found[backends[i].Name] = true
				}
			}
		}
		return slices.Sorted(maps.Keys(found))
	}
	if all := with(ready); len(all) > 0 {
		return state{usable: all, draining: with(terminating)}
	}
	return state{usable: with(terminating)}
}

// note tells the ledger what the next write makes of the Service.
func (w *world) note(s *service) { w.ledger.write(s.key(), s.asks(w.backends)) }

// create makes the Service, and then its slices. An API server that ends as it
// deletes a Service may leave its address or port given out for minutes: then
// there is none this time.
func (w *world) create(s *service, endpoints [2]map[int]condition) {
	s.exists = true
	w.note(s)
	w.apply("create "+s.Name, documents(s.YAML(nil))[0], func(err error) error {
		if !strings.Contains(err.Error(), "is already allocated") {
			return err
		}
		s.exists = false
		return nil
	})
	if !s.exists {
		w.note(s)
		return
	}
	for i := range endpoints {
		w.writeSlices(s, i, endpoints[i])
	}
}

// remove deletes the Service; its slices go after it, as the garbage collector
// of a real cluster has it.
func (w *world) remove(s *service) {
	s.exists, s.slices = false, [2]map[int]condition{{}, {}}
	w.note(s)
	w.write("delete "+s.Name, func(ctx context.Context, c kubernetes.Interface) error {
		return ignoreMissing(c.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, s.Name, metav1.DeleteOptions{}))
	})
	for i := range s.slices {
		w.deleteSlices(s, i)
	}
}

// touch changes something of the Service that means nothing.
func (w *world) touch(s *service) {
	w.write("touch "+s.Name, func(ctx context.Context, c kubernetes.Interface) error {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/touched":"%d"}}}`, w.report.steps)
		_, err := c.CoreV1().Services(metav1.NamespaceDefault).Patch(ctx, s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// writeSlices writes a pair of slices as it is now said to be.
func (w *world) writeSlices(s *service, i int, endpoints map[int]condition) {
	s.slices[i] = endpoints
	w.note(s)
	var all []rig.Endpoint
	for _, n := range slices.Sorted(maps.Keys(endpoints)) {
		make := map[condition]func(*rig.Backend) rig.Endpoint{ready: rig.Ready, terminating: rig.Terminating, notReady: rig.NotReady}[endpoints[n]]
		all = append(all, make(w.backends[n]))
	}
	for _, doc := range documents(rig.SliceYAML(sliceName(s, i), s.Name, all)) {
		w.apply("write slices of "+s.Name, doc, func(err error) error { return err })
	}
}

// deleteSlices deletes a pair of slices.
func (w *world) deleteSlices(s *service, i int) {
	s.slices[i] = map[int]condition{}
	w.note(s)
	for _, family := range []string{"ipv4", "ipv6"} {
		w.write("delete slices of "+s.Name, func(ctx context.Context, c kubernetes.Interface) error {
			name := sliceName(s, i) + "-" + family
			return ignoreMissing(c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}))
		})
	}
}

func sliceName(s *service, i int) string { return fmt.Sprintf("%s-%c", s.Name, 'x'+i) }

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// documents splits manifests.
func documents(text string) []string {
	var all []string
	for doc := range strings.SplitSeq(text, "---\n") {
		if doc != "" {
			all = append(all, doc)
		}
	}
	return all
}

// apply applies a Service or an EndpointSlice on the server's side. An error
// that failed makes nil is no reason to try again.
func (w *world) apply(what, doc string, failed func(error) error) {
	w.t.Helper()
	// The API takes YAML as well, but its audit log does not.
	patch, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "soak", Force: &force}
	w.write(what, func(ctx context.Context, c kubernetes.Interface) (err error) {
		name := objectName(doc)
		if strings.HasPrefix(doc, "apiVersion: v1\n") {
			_, err = c.CoreV1().Services(metav1.NamespaceDefault).Patch(ctx, name, types.ApplyPatchType, patch, options)
		} else {
			_, err = c.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Patch(ctx, name, types.ApplyPatchType, patch, options)
		}
		if err != nil {
			return failed(err)
		}
		return nil
	})
}

// objectName reads the name out of a manifest as package rig writes it.
func objectName(doc string) string {
	_, after, _ := strings.Cut(doc, "metadata: {name: ")
	name, _, _ := strings.Cut(after, ",")
	return name
}

// populate creates the Services that every run begins with.
func (w *world) populate() {
	for i, name := range slices.Concat(steadyNames, livelyNames) {
		s := newService(name, 10+i)
		s.steady = i < len(steadyNames)
		w.services = append(w.services, s)
		w.create(s, [2]map[int]condition{{i % 4: ready, (i + 1) % 4: ready}, {4 + i%2: ready}})
	}
}
