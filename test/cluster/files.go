// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"text/template"
)

// templates are the configuration files of everybody else's programs.
//
//go:embed files
var files embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(files, "files/*"))

func render(name string, data any) ([]byte, error) {
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, name, data); err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return text.Bytes(), nil
}

func renderTo(path, name string, data any) error {
	text, err := render(name, data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
