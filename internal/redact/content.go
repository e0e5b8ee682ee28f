// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Objects returns objects of the API, JSON or YAML, one or many or lists of
// them, without what must not be known. Documents without secrets stay as they
// are. What cannot be read is treated as any other text.
func (r *Redactor) Objects(content []byte) []byte {
	return r.documents(content, func(p *pass, value any) any {
		fields, isObject := value.(map[string]any)
		if !isObject {
			return p.any(value)
		}
		p.one(fields, text(fields, "kind"))
		return fields
	})
}

// Content returns what a command printed, JSON or YAML or any text, without what
// looks like a secret.
func (r *Redactor) Content(content []byte) []byte {
	if c := bytes.TrimSpace(content); len(c) == 0 || c[0] != '{' && c[0] != '[' {
		return []byte(Text(string(content)))
	}
	return r.documents(content, (*pass).any)
}

// any goes through a value that is no object of the API.
func (p *pass) any(value any) any {
	if instead, secret := p.value("", value); secret {
		return instead
	}
	return value
}

// one goes through an object, or through the items of a list, which are of the
// list's kind unless they say so themselves.
func (p *pass) one(fields map[string]any, kind string) {
	items, isList := fields["items"].([]any)
	if item, named := strings.CutSuffix(kind, "List"); isList && named {
		for _, i := range items {
			if of, ok := i.(map[string]any); ok {
				own := text(of, "kind")
				if own == "" {
					own = item
				}
				p.one(of, own)
			}
		}
		return
	}
	resource := ""
	switch kind {
	case "Secret":
		resource = "secrets"
	case "ConfigMap":
		resource = "configmaps"
	}
	p.object("", resource, fields)
}

// documents gives each document of a text to a function, and writes those anew
// of which something was left out.
func (r *Redactor) documents(content []byte, each func(*pass, any) any) []byte {
	if values, err := jsonValues(content); err == nil {
		return r.json(content, values, each)
	}
	var out []byte
	for _, document := range yamlDocuments(content) {
		out = append(out, r.yaml(document, each)...)
	}
	return out
}

func (r *Redactor) json(content []byte, values []any, each func(*pass, any) any) []byte {
	p := &pass{Redactor: r}
	for i, value := range values {
		values[i] = each(p, value)
	}
	if len(p.now) == 0 && !p.lost {
		return content
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	for _, value := range values {
		if err := encoder.Encode(value); err != nil {
			return []byte(Text(string(content))) // of values that were read just now, none fails
		}
	}
	return out.Bytes()
}

// jsonValues reads values that stand one after another, with numbers as they
// are written.
func jsonValues(content []byte) ([]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var values []any
	for {
		var value any
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) && len(values) > 0 {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
}

// yaml keeps the marker at which a document begins. A document that leaves
// something out becomes JSON, which is YAML as well.
func (r *Redactor) yaml(document []byte, each func(*pass, any) any) []byte {
	start := 0
	if bytes.HasPrefix(document, []byte("---")) {
		start = bytes.IndexByte(append(slices.Clone(document), '\n'), '\n') + 1
		start = min(start, len(document))
	}
	asJSON, err := yaml.YAMLToJSON(document)
	if err != nil {
		return []byte(Text(string(document)))
	}
	values, err := jsonValues(asJSON)
	if err != nil {
		return []byte(Text(string(document)))
	}
	if left := r.json(asJSON, values, each); !bytes.Equal(left, asJSON) {
		return append(slices.Clone(document[:start]), left...)
	}
	return comments(document)
}

// comments are no part of what was gone through.
func comments(document []byte) []byte {
	return []byte(eachLine(string(document), func(line string) string {
		at := strings.Index(line, "#")
		if at < 0 || at > 0 && line[at-1] != ' ' && line[at-1] != '\t' {
			return line
		}
		return line[:at] + Text(line[at:])
	}))
}

// yamlDocuments cuts a text before the lines that begin a document.
func yamlDocuments(content []byte) [][]byte {
	var out [][]byte
	for line := range bytes.Lines(content) {
		if len(out) == 0 || bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0) {
			out = append(out, nil)
		}
		last := len(out) - 1
		out[last] = append(out[last], line...)
	}
	return out
}
