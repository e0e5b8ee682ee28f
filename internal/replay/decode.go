// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// kinds are the kinds of object that rows are made of.
var kinds = [...]journal.Kind{
	reflector.KindService:       {Version: "v1", Resource: "services", Kind: "Service"},
	reflector.KindEndpointSlice: {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices", Kind: "EndpointSlice"},
	reflector.KindNode:          {Version: "v1", Resource: "nodes", Kind: "Node"},
}

// kindOf says which of them an event is about, if any.
func kindOf(k journal.Kind) (reflector.Kind, bool) {
	for i := range kinds {
		if kinds[i] == k {
			return reflector.Kind(i), true
		}
	}
	return 0, false
}

// input is an event of a journal with what it means to the tables.
type input struct {
	event    journal.Event
	object   reflector.Event
	problems []reflector.Problem
	ours     bool // it is of a kind that rows are made of
}

// decoder turns the content of events into typed objects. It is for any number
// of goroutines.
type decoder struct {
	convert  *reflector.Converter
	nodeName string // of other Nodes nothing is read
	slices   sync.Pool
	options  [len(kinds)]json.Options
	known    known
}

// lenient is as encoding/json has it, for old contents are what they are.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// unread passes over what is in many objects, and in no row.
var unread = json.JoinUnmarshalers(json.UnmarshalFromFunc(pass[[]metav1.OwnerReference]), json.UnmarshalFromFunc(pass[[]metav1.ManagedFieldsEntry]))

func pass[T any](from *jsontext.Decoder, _ *T) error { return from.SkipValue() }

func newDecoder(convert *reflector.Converter, nodeName string) *decoder {
	others := json.JoinOptions(lenient, json.WithUnmarshalers(unread))
	d := &decoder{convert: convert, nodeName: nodeName, options: [...]json.Options{others, nil, others}}
	d.slices.New = func() any { return new(discoveryv1.EndpointSlice) }
	d.options[reflector.KindEndpointSlice] = json.JoinOptions(lenient, json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(d.endpoint), json.UnmarshalFromFunc(pass[metav1.Time]), unread)))
	return d
}

var endpointOptions = json.JoinOptions(lenient, json.WithUnmarshalers(json.UnmarshalFromFunc(pass[corev1.ObjectReference])))

// endpoint reads an endpoint. Most of a slice's are written as in its version
// before, and those were read already.
func (d *decoder) endpoint(from *jsontext.Decoder, into *discoveryv1.Endpoint) error {
	text, err := from.ReadValue()
	if err != nil {
		return err
	}
	if endpoint, ok := d.known.find(text); ok {
		*into = endpoint
		return nil
	}
	if err := json.Unmarshal(text, into, endpointOptions); err != nil {
		return err
	}
	d.known.add(text, *into)
	return nil
}

// decode never fails: what cannot be used says why.
func (d *decoder) decode(e journal.Event) input {
	kind, ours := kindOf(e.Kind)
	if !ours || kind == reflector.KindNode && e.Name != d.nodeName {
		return input{event: e}
	}
	in := input{event: e, ours: true, object: reflector.Event{
		Kind: kind, Name: model.Name{Namespace: e.Namespace, Name: e.Name}, ResourceVersion: e.ResourceVersion, Received: e.Time,
	}}
	switch e.Type {
	case journal.Deleted, journal.Absent:
		return in
	case journal.Listed, journal.Added, journal.Modified:
		d.read(&in)
	default:
		in.refuse("%q is no type of event", string(e.Type))
	}
	return in
}

func (d *decoder) read(in *input) {
	if len(in.event.Content) == 0 {
		in.refuse("the journal does not hold the object")
		return
	}
	object := d.object(in.object.Kind)
	defer d.release(object)
	if err := json.Unmarshal(in.event.Content, object, d.options[in.object.Kind]); err != nil {
		in.refuse("its content cannot be read: %s", faultText(err))
		return
	}
	// Recorders keep it beside the content.
	object.SetResourceVersion(in.event.ResourceVersion)
	converted, problems := d.convert.Event(object)
	for i := range problems {
		problems[i].File = in.place()
	}
	in.problems = problems
	if converted.Name != in.object.Name {
		in.refuse("its content is of %s", converted.Name)
		return
	}
	in.object.Service, in.object.Slice, in.object.Node = converted.Service, converted.Slice, converted.Node
}

// object returns an empty object. Nothing that was converted holds a part of it.
func (d *decoder) object(kind reflector.Kind) metav1.Object {
	switch kind {
	case reflector.KindService:
		return &corev1.Service{}
	case reflector.KindNode:
		return &corev1.Node{}
	}
	return d.slices.Get().(*discoveryv1.EndpointSlice)
}

// release keeps the room for endpoints, which are most of what is read.
func (d *decoder) release(object metav1.Object) {
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		*slice = discoveryv1.EndpointSlice{Endpoints: slice.Endpoints[:0]}
		d.slices.Put(slice)
	}
}

// faultText says what is wrong in words of our own: those of the decoder differ
// from one build to the next.
func faultText(err error) string {
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok && wrong.GoType != nil {
		return fmt.Sprintf("%s does not hold what a %s is written as", cmp.Or(string(wrong.JSONPointer), "it"), wrong.GoType)
	}
	if wrong, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Sprintf("it is no JSON from byte %d on", wrong.ByteOffset)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// refuse notes that the whole object cannot be used.
func (in *input) refuse(format string, args ...any) {
	in.problems = append(in.problems, reflector.Problem{File: in.place(), Object: objectTitle(&in.event), Message: fmt.Sprintf(format, args...)})
}

func (in *input) place() string { return fmt.Sprintf("event %d", in.event.ID) }

// gone says that the event brings no object.
func (in *input) gone() bool {
	return in.object.Service == nil && in.object.Slice == nil && in.object.Node == nil
}

// objectTitle names an object as problems and causes do.
func objectTitle(e *journal.Event) string {
	if e.Namespace == "" {
		return e.Kind.Kind + " " + e.Name
	}
	return e.Kind.Kind + " " + e.Namespace + "/" + e.Name
}
