// SPDX-License-Identifier: Apache-2.0

// Package points lists the failpoints that the sources of a package have, so
// that a test of them all misses none. It is for tests, and reads sources
// alone.
package points

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// In returns the names of the failpoints in the Go files of a folder, tests
// aside, sorted. Each name must be written out where it is hit, and stand at
// one place alone.
func In(folder string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list the sources in %s: %w", folder, err)
	}
	var names []string
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		of, err := inFile(path)
		if err != nil {
			return nil, err
		}
		names = append(names, of...)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			return nil, fmt.Errorf("the failpoint %q stands at two places in %s: give each a name of its own", names[i], folder)
		}
	}
	return names, nil
}

func inFile(path string) (names []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read the failpoints of %s: %w", path, err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !isHit(call.Fun) || err != nil {
			return err == nil
		}
		name, failed := nameIn(call)
		if failed != nil {
			err = fmt.Errorf("%s: %w", files.Position(call.Pos()), failed)
		}
		names = append(names, name)
		return true
	})
	return names, err
}

func isHit(f ast.Expr) bool {
	s, ok := f.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Hit" {
		return false
	}
	in, ok := s.X.(*ast.Ident)
	return ok && in.Name == "failpoint"
}

func nameIn(hit *ast.CallExpr) (string, error) {
	if len(hit.Args) != 1 {
		return "", fmt.Errorf("a failpoint has one name, this one %d", len(hit.Args))
	}
	literal, ok := hit.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", fmt.Errorf("the name of a failpoint is not written out")
	}
	name, err := strconv.Unquote(literal.Value)
	if err != nil || name == "" || strings.ContainsRune(name, '#') {
		return "", fmt.Errorf("%s cannot be the name of a failpoint", literal.Value)
	}
	return name, nil
}
