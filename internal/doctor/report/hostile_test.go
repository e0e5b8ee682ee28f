// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// sample is a line of the text format for metrics.
var sample = regexp.MustCompile(`^fairlead_doctor_[a-z_]+(\{([a-z]+="([^"\\\n]|\\[\\n"])*",?)+\})? [0-9.]+$`)

// everywhere has a text in each place that can hold one.
func everywhere(text string) doctor.Report {
	f := doctor.Finding{
		Check: "backends-missing", Severity: doctor.Critical, Layer: doctor.LayerKernel, Subject: text, Nodes: []string{text}, Title: text, Detail: []string{text},
		Evidence: []doctor.Evidence{{Node: text, Command: text, Path: text, Excerpt: text + "\n" + text}},
		Remedy:   []doctor.Remedy{{Text: text, Commands: []string{text}}},
	}
	leaf := &doctor.Node{Finding: f, Also: []string{text}}
	return doctor.Report{
		Causes: []*doctor.Node{{Finding: f, Consequences: []*doctor.Node{leaf}}}, Notes: []*doctor.Node{{Finding: f}},
		Nodes: []string{text}, Checks: []string{"backends-missing"},
		Unread: []facts.Unread{{Record: &evidence.Record{Node: text, Command: text, Path: text}, Why: text}},
	}
}

func TestNoTextOfAStrangerGetsOutRaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text") + string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + "\x1b]0;x\x07\u202e]]>\"\\\n<script>"
		r := New(everywhere(text))
		for name, write := range map[string]func(io.Writer, Report) error{
			"tree": func(w io.Writer, r Report) error { return Tree(w, r, View{Wide: true, Width: 80}) },
			"json": jsonText, "junit": JUnit, "prometheus": Prometheus, "html": HTML,
		} {
			var out bytes.Buffer
			if err := write(&out, r); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			have := out.String()
			if !utf8.ValidString(have) {
				t.Errorf("%s: invalid UTF-8: %q", name, have)
			}
			if strings.ContainsFunc(have, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
				t.Errorf("%s: what cannot be printed: %q", name, have)
			}
			checkFormat(t, name, have)
		}
	})
}

func checkFormat(t *rapid.T, name, have string) {
	switch name {
	case "html":
		if strings.Contains(have, "<script") {
			t.Error("html: a script")
		}
	case "junit":
		var parsed suites
		if err := xml.Unmarshal([]byte(have), &parsed); err != nil {
			t.Errorf("junit: %v in %q", err, have)
		}
	case "prometheus":
		for line := range strings.Lines(have) {
			if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "# ") && !sample.MatchString(line) {
				t.Errorf("prometheus: no sample: %q", line)
			}
		}
	}
}

func TestNoSecretOfAStrangerGetsOut(t *testing.T) {
	for _, secret := range []string{
		"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl", "Bearer abcdefghijklmnop0123456789",
		"https://admin:hunter2hunter2@10.0.0.1/", "-----BEGIN RSA PRIVATE KEY-----MIIEpAIBAAKCAQEA-----END RSA PRIVATE KEY-----",
	} {
		var out bytes.Buffer
		if err := jsonText(&out, New(everywhere("before "+secret+" after"))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is shown:\n%s", secret, &out)
		}
	}
	var out bytes.Buffer
	if err := jsonText(&out, New(doctor.Report{Causes: []*doctor.Node{{Finding: doctor.Finding{Detail: []string{"password=hunter2hunter2"}, Evidence: []doctor.Evidence{{Excerpt: "token: hunter2hunter2"}}}}}})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("a password is shown:\n%s", &out)
	}
}

func TestASeriesIsWrittenOnce(t *testing.T) {
	one := &doctor.Node{Finding: doctor.Finding{Check: "duplicate-vip", Subject: "shop/a", Title: "one"}}
	two := &doctor.Node{Finding: doctor.Finding{Check: "duplicate-vip", Subject: "shop/a", Title: "two"}}
	var out bytes.Buffer
	if err := Prometheus(&out, New(doctor.Report{Causes: []*doctor.Node{one, two}})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "fairlead_doctor_findings{"); n != 1 {
		t.Errorf("%d series:\n%s", n, &out)
	}
}

// inBrowser opens a file in a Chromium in a network namespace of its own,
// without any way out, and returns the document as the browser understood it.
func inBrowser(t *testing.T, path string, more ...string) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is missing: `make deps` installs it")
	}
	arguments := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage",
		"--user-data-dir=" + t.TempDir()}, more...)
	cmd := exec.CommandContext(t.Context(), program, append(arguments, "--dump-dom", "file://"+path)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	document, err := cmd.Output()
	if err != nil {
		t.Fatalf("open the page: %v", err)
	}
	return string(document)
}

func TestABrowserShowsTextOfStrangersAsText(t *testing.T) {
	text := `</pre><script>document.title = 'owned'</script><img src=x onerror="document.title='owned'"><style>*{display:none}</style>`
	var out bytes.Buffer
	if err := HTML(&out, New(everywhere(text))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hostile.html")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	document := inBrowser(t, path)
	if strings.Contains(document, "<title>owned") || strings.Contains(document, "<script") || strings.Contains(document, "<img") || strings.Count(document, "<style") != 1 {
		t.Errorf("text became elements:\n%s", document)
	}
	if n := strings.Count(document, "&lt;script&gt;"); n < 10 {
		t.Errorf("it is shown %d times", n)
	}
}

// The pictures are for people: REPORT_PICTURES names the folder for them.
func TestABrowserShowsEveryFinding(t *testing.T) {
	var out bytes.Buffer
	r := New(outage())
	if err := HTML(&out, r); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "outage.html")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	document := inBrowser(t, path)
	r.Each(func(f *Finding) {
		if !strings.Contains(document, f.Title) {
			t.Errorf("%s is not on the page", f.Title)
		}
	})
	folder := os.Getenv("REPORT_PICTURES")
	if folder == "" {
		return
	}
	for _, width := range []int{1280, 500} {
		for name, flags := range map[string][]string{"light": nil, "dark": {"--blink-settings=preferredColorScheme=0"}} {
			picture := filepath.Join(folder, fmt.Sprintf("outage-%d-%s.png", width, name))
			inBrowser(t, path, append(flags, "--hide-scrollbars", fmt.Sprintf("--window-size=%d,1300", width), "--screenshot="+picture)...)
		}
	}
}
