// SPDX-License-Identifier: Apache-2.0

package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed page
var page embed.FS

// HTML writes one page that loads nothing and runs nothing: browsers get a
// policy with it that lets them do neither.
func HTML(w io.Writer, r Report) error {
	style, err := page.ReadFile("page/style.css")
	if err != nil {
		return fmt.Errorf("read a part of the page: %w", err)
	}
	sum := sha256.Sum256(style)
	t, err := template.New("page.html").Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(style) },
		"policy":  func() string { return policy(sum) },
		"moment":  func(t time.Time) string { return moment(t.UTC()) },
		"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"onNodes": func(nodes []string) string { return onNodes(nodes, false) },
		"join":    strings.Join,
		"count":   count,
	}).ParseFS(page, "page/page.html")
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	if err := t.Execute(w, &view{r}); err != nil {
		return fmt.Errorf("write the report as a page: %w", err)
	}
	return nil
}

// view is what the page asks of a report.
type view struct{ Report }

// Headline is what was found, in a line.
func (v *view) Headline() string { return v.headline() }

// Moments is when the layers were read.
func (v *view) Moments() string { return v.moments() }

// Places are where what was not read would have come from, and why.
func (v *view) Places() []string {
	var all []string
	for _, u := range v.Unread {
		all = append(all, u.place()+": "+u.Why)
	}
	return all
}

func policy(style [sha256.Size]byte) string {
	return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(style[:]) + "'"
}
