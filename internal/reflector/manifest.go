// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/model"
)

// manifest is what one file holds.
type manifest struct {
	objects  []placed
	refused  []refusal
	problems []Problem
	// broken says that something in the file cannot even be named, so that
	// nothing may be concluded from what the file does not hold.
	broken bool
}

// placed is an object and where it stands.
type placed struct {
	Event
	file     string
	document int
	line     int // of the document
}

// refusal is an object that a file names but that cannot be used. Where the
// kind itself is wrong, it is a guess that this is what the object was before.
type refusal struct {
	object
	guess bool
}

// parser reads manifests.
type parser struct {
	convert *Converter
	kinds   kinds
}

func newParser() (*parser, error) {
	k, err := newKinds()
	if err != nil {
		return nil, err
	}
	return &parser{convert: &Converter{}, kinds: k}, nil
}

// parse reads the text of a file. It returns every object that can be used,
// whatever is wrong with the others.
func (p *parser) parse(file string, data []byte) manifest {
	m := &manifest{}
	if offset := binary(data); offset >= 0 {
		return unreadable(file, fmt.Sprintf("is not text: byte %#02x at offset %d", data[offset], offset))
	}
	for _, d := range split(data) {
		r := &reading{parser: p, manifest: m, file: file, document: d, lines: lines{document: d}}
		r.read()
	}
	return *m
}

// unreadable is the manifest of a file of which nothing can be said.
func unreadable(file, message string) manifest {
	return manifest{broken: true, problems: []Problem{{File: file, Message: message}}}
}

// binary returns the offset of the first byte that no text has, or -1.
func binary(data []byte) int {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i
	}
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// reading is the work on one document.
type reading struct {
	*parser
	manifest *manifest
	file     string
	document document
	lines    lines
}

// add records a problem. The line is looked up under inner, which is the path
// from the document to the object.
func (r *reading) add(object, inner, field, message string) {
	r.manifest.problems = append(r.manifest.problems, Problem{
		File:     r.file,
		Document: r.document.number,
		Line:     r.lines.of(inner + "." + field),
		Object:   oneLine(object),
		Field:    oneLine(field),
		Message:  oneLine(message),
	})
}

// addBroken records a problem that leaves the file without a meaning.
func (r *reading) addBroken(inner, field, message string) {
	r.manifest.broken = true
	r.add("", inner, field, message)
}

func (r *reading) read() {
	data, err := r.document.json()
	if err != nil {
		line, message := syntax(err)
		r.manifest.broken = true
		r.manifest.problems = append(r.manifest.problems, Problem{
			File:     r.file,
			Document: r.document.number,
			Line:     r.document.line - 1 + line,
			Message:  oneLine(message),
		})
		return
	}
	r.value(data, "", head{})
}

// syntax returns the line, within the document, and the first line of what a
// YAML parser complains about.
func syntax(err error) (int, string) {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	message = strings.TrimPrefix(message, "yaml: ")
	message = strings.TrimPrefix(message, "unmarshal errors:\n")
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	number, rest, found := strings.Cut(strings.TrimPrefix(message, "line "), ": ")
	line, notANumber := strconv.Atoi(number)
	if !found || notANumber != nil || line < 1 {
		return 1, "is not valid YAML: " + message
	}
	return line, "is not valid YAML: " + rest
}

// head is what every object says of itself.
type head struct {
	apiVersion string
	kind       string
	name       model.Name
}

// value reads one object, or a list of them. inherited stands in for what the
// items of a typed list leave out.
func (r *reading) value(data []byte, inner string, inherited head) {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		r.addBroken(inner, "", "is not a Kubernetes object: a mapping with apiVersion and kind is expected")
		return
	}
	h := readHead(fields)
	h.kind = cmp.Or(h.kind, inherited.kind)
	h.apiVersion = cmp.Or(h.apiVersion, inherited.apiVersion)
	item, isList := r.kinds.list(h)
	switch {
	case isList && inner != "":
		r.addBroken(inner, "kind", "a list inside a list is not read")
	case isList:
		r.items(fields["items"], item)
	default:
		r.one(data, inner, h)
	}
}

func readHead(fields map[string]json.RawMessage) head {
	var h head
	var metadata map[string]json.RawMessage
	// A field of another type stays empty here, and is named when the object
	// as a whole is decoded.
	_ = json.Unmarshal(fields["apiVersion"], &h.apiVersion)
	_ = json.Unmarshal(fields["kind"], &h.kind)
	_ = json.Unmarshal(fields["metadata"], &metadata)
	_ = json.Unmarshal(metadata["name"], &h.name.Name)
	if namespace := metadata["namespace"]; namespace != nil && json.Unmarshal(namespace, &h.name.Namespace) != nil {
		// Half a name would point to another object.
		h.name = model.Name{}
	}
	return h
}

func (r *reading) items(data []byte, inherited head) {
	if len(data) == 0 {
		return
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		r.addBroken("", "items", "is not a list")
		return
	}
	for i, item := range items {
		r.value(item, fmt.Sprintf("items[%d]", i), inherited)
	}
}

// one reads one object that is no list.
func (r *reading) one(data []byte, inner string, h head) {
	into, kind, complaint := r.kinds.find(h)
	if complaint.message != "" {
		r.add(strings.TrimSpace(h.kind+" "+h.name.Name), inner, complaint.field, complaint.message)
		r.guess(h)
		return
	}
	if into == nil {
		return
	}
	h.name = home(kind, h.name)
	title := describe(kind, h.name)
	remarks, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		r.mistyped(err, title, inner)
		r.refuse(kind, h.name)
		return
	}
	for _, remark := range remarks {
		r.remark(remark, title, inner)
	}
	if kind != KindNode {
		into.SetNamespace(h.name.Namespace)
	}
	event, problems := r.convert.Event(into)
	for _, p := range problems {
		r.add(p.Object, inner, p.Field, p.Message)
	}
	if !event.gone() {
		r.manifest.objects = append(r.manifest.objects,
			placed{Event: event, file: r.file, document: r.document.number, line: r.document.line})
		return
	}
	if len(problems) > 0 {
		r.refuse(kind, h.name)
	}
}

// refuse notes that an object cannot be used. One without a name could be any.
func (r *reading) refuse(kind Kind, name model.Name) {
	if name.Name == "" {
		r.manifest.broken = true
		return
	}
	r.manifest.refused = append(r.manifest.refused, refusal{object: object{kind, name}})
}

// guess notes an object whose kind is wrong, which may be a slip of the pen.
func (r *reading) guess(h head) {
	for _, kind := range []Kind{KindService, KindEndpointSlice, KindNode} {
		r.manifest.refused = append(r.manifest.refused, refusal{object{kind, home(kind, h.name)}, true})
	}
}

// remark reports what a strict decoder noticed. Unknown fields do no harm;
// fields that stand twice do, as in YAML.
func (r *reading) remark(remark error, title, inner string) {
	field := ""
	if at, ok := remark.(kjson.FieldError); ok {
		field = at.FieldPath()
	}
	if strings.HasPrefix(remark.Error(), "unknown field") {
		r.add(title, inner, field, "ignored: unknown field")
		return
	}
	r.addBroken(inner, field, remark.Error())
}

// mistyped reports a value of the wrong type.
func (r *reading) mistyped(err error, title, inner string) {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		r.add(title, inner, "", err.Error())
		return
	}
	line, field := r.lines.find(join(inner, wrong.Field), hasType(wrong.Value))
	r.manifest.problems = append(r.manifest.problems, Problem{
		File:     r.file,
		Document: r.document.number,
		Line:     line,
		Object:   oneLine(title),
		Field:    strings.TrimPrefix(field, inner+"."),
		Message:  fmt.Sprintf("%s stands where %s is expected", article(wrong.Value), typeName(wrong.Type)),
	})
}

// home is where an object of the kind lies if it does not say.
func home(kind Kind, name model.Name) model.Name {
	if kind == KindNode {
		return model.Name{Name: name.Name}
	}
	return model.Name{Namespace: cmp.Or(name.Namespace, corev1.NamespaceDefault), Name: name.Name}
}
