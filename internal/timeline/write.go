// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// maxDiffs bounds what the diffs take of a page, in bytes, so that browsers on
// any machine open it.
const maxDiffs = 32 << 20

//go:embed page
var page embed.FS

// scripts are the parts of the page's one script, in the order in which they
// are put together.
var scripts = [...]string{
	"data.js", "text.js", "filter.js", "view.js", "theme.js", "lanes.js", "paint.js", "chart.js",
	"pointer.js", "overview.js", "table.js", "panel.js", "headline.js", "main.js",
}

// Write makes the page: one HTML file that needs nothing else.
func Write(w io.Writer, d Data) error {
	d.Events = sorted(d.Events, func(e Event) time.Time { return e.Time })
	before, after, err := frame(strings.ToValidUTF8(d.Title, "\uFFFD"))
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(w, 1<<16)
	buffer.WriteString(before)
	if err := writeData(buffer, d); err != nil {
		return err
	}
	buffer.WriteString(after)
	// The buffer keeps the first error of all that was written.
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("write the timeline: %w", err)
	}
	return nil
}

// writeData writes two blocks that no browser runs. The encoder escapes <, > and
// &, so nothing in them can end a block.
func writeData(buffer *bufio.Writer, d Data) error {
	buffer.WriteString(`<script type="application/json" id="data">`)
	if err := json.NewEncoder(buffer).Encode(pack(d)); err != nil {
		return fmt.Errorf("write the timeline: %w", err)
	}
	buffer.WriteString("</script>\n" + `<script type="text/plain" id="diffs">`)
	for i, line := range diffLines(d.Events, d.Findings, maxDiffs) {
		if i > 0 {
			buffer.WriteByte('\n')
		}
		buffer.Write(line)
	}
	buffer.WriteString("</script>\n")
	return nil
}

// frame is the page before and after the data. Its policy lets nothing be
// loaded, and nothing run but this one script.
func frame(title string) (before, after string, err error) {
	script, err := script()
	if err != nil {
		return "", "", err
	}
	style, err := source("style.css")
	if err != nil {
		return "", "", err
	}
	text, err := source("page.html")
	if err != nil {
		return "", "", err
	}
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; script-src " + hash(script) + "; style-src " + hash(style)
	text = strings.NewReplacer(
		"{{policy}}", html.EscapeString(policy),
		"{{title}}", html.EscapeString(title),
		"{{style}}", style,
		"{{script}}", script,
	).Replace(text)
	before, after, _ = strings.Cut(text, "{{data}}\n")
	return before, after, nil
}

// script joins the parts in one scope of their own.
func script() (string, error) {
	var all strings.Builder
	all.WriteString("'use strict';\n(() => {\n")
	for _, name := range scripts {
		text, err := source(name)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	all.WriteString("})();\n")
	return all.String(), nil
}

func source(name string) (string, error) {
	text, err := page.ReadFile("page/" + name)
	if err != nil {
		return "", fmt.Errorf("read a part of the page: %w", err)
	}
	return string(text), nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
