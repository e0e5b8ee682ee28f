// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"sigs.k8s.io/yaml"
)

// document is one YAML or JSON document of a file.
type document struct {
	number int // 1-based, counting documents that have content
	line   int // 1-based, of the first line that has content
	text   []byte
}

// Documents yields the documents of a YAML or JSON text, as JSON. One that is
// broken is an error in its place, and those after it are read all the same.
func Documents(text []byte) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		// What is one JSON value, as lists of the API are, needs no cutting.
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed) {
			yield(trimmed, nil)
			return
		}
		for _, d := range split(text) {
			data, err := d.json()
			if err != nil {
				line, message := syntax(err)
				err = fmt.Errorf("the document at line %d %s", d.line-1+line, oneLine(message))
			}
			if !yield(data, err) {
				return
			}
		}
	}
}

// split cuts a file into its documents. Cutting by lines, and not with a
// parser, lets a document be read although one before it is broken. YAML
// allows it: "---" at the start of a line is a marker wherever it stands.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var documents []document
	var current document
	flush := func() {
		if current.text != nil {
			documents = append(documents, values(current)...)
		}
		current = document{}
	}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if isMarker(line) {
			flush()
			line = append([]byte("   "), line[3:]...)
		}
		if current.text == nil && isBlank(line) {
			continue
		}
		if current.text == nil {
			current.line = number
		}
		current.text = append(current.text, line...)
	}
	flush()
	for i := range documents {
		documents[i].number = i + 1
	}
	return documents
}

// isMarker says that a line starts or ends a document.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0
}

// isBlank says that a line before a document has no content: white space, a
// comment, or a directive.
func isBlank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#' || line[0] == '%'
}

// values cuts a document that is several JSON values one after another, which
// YAML does not know, into these. Any other document stays as it is.
func values(d document) []document {
	if bytes.TrimSpace(d.text)[0] != '{' {
		return []document{d}
	}
	var out []document
	decoder := json.NewDecoder(bytes.NewReader(d.text))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == io.EOF {
			return out
		}
		if err != nil {
			return []document{d}
		}
		start := int(decoder.InputOffset()) - len(value)
		out = append(out, document{line: d.line + bytes.Count(d.text[:start], []byte("\n")), text: value})
	}
}

// json returns the document as JSON. Keys that stand twice in a mapping are an
// error, for what they mean depends on the reader.
func (d document) json() ([]byte, error) {
	if json.Valid(d.text) {
		return d.text, nil
	}
	return yaml.YAMLToJSONStrict(d.text)
}
