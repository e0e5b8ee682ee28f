// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// lines finds the line of a field in a document. The document is parsed for
// it only once somebody asks, that is, when something is wrong with it.
type lines struct {
	document document
	root     *yaml.Node
}

// of returns the line of a field such as "spec.ports[0].port", or of the
// nearest field above it that is there.
func (l *lines) of(field string) int {
	line, _ := l.find(field, func(*yaml.Node) bool { return true })
	return line
}

// find looks for a field whose value matches. Where the path lacks the index
// of a list, every element is tried. It returns the line and the full path; if
// nothing matches, the line of what comes nearest and the path as given.
func (l *lines) find(field string, match func(*yaml.Node) bool) (int, string) {
	if l.root == nil {
		var root yaml.Node
		// What cannot be parsed has no lines but the document's own.
		_ = yaml.Unmarshal(l.document.text, &root)
		l.root = &root
	}
	nearest := 1
	if len(l.root.Content) > 0 {
		nearest = l.root.Content[0].Line
		if line, path, ok := descend(l.root.Content[0], nearest, segments(field), "", match, &nearest); ok {
			return l.document.line - 1 + line, path
		}
	}
	return l.document.line - 1 + nearest, field
}

// segments cuts "spec.ports[0].port" into "spec", "ports", "[0]", "port".
func segments(field string) []string {
	cut := func(r rune) bool { return r == '.' }
	return strings.FieldsFunc(strings.ReplaceAll(field, "[", ".["), cut)
}

func descend(n *yaml.Node, line int, rest []string, path string, match func(*yaml.Node) bool, nearest *int) (int, string, bool) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if len(rest) == 0 {
		return line, path, match(n)
	}
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; key.Value == rest[0] {
				*nearest = key.Line
				return descend(n.Content[i+1], key.Line, rest[1:], join(path, rest[0]), match, nearest)
			}
		}
	case n.Kind == yaml.SequenceNode && strings.HasPrefix(rest[0], "["):
		i, err := strconv.Atoi(strings.Trim(rest[0], "[]"))
		if err == nil && i >= 0 && i < len(n.Content) {
			*nearest = n.Content[i].Line
			return descend(n.Content[i], *nearest, rest[1:], path+rest[0], match, nearest)
		}
	case n.Kind == yaml.SequenceNode:
		for i, element := range n.Content {
			if line, path, ok := descend(element, element.Line, rest, fmt.Sprintf("%s[%d]", path, i), match, nearest); ok {
				return line, path, true
			}
		}
	}
	return 0, "", false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
