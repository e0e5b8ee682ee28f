// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
)

// The elements of JUnit's XML.
type (
	suites struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []suite  `xml:"testsuite"`
	}
	suite struct {
		Name      string     `xml:"name,attr"`
		Tests     int        `xml:"tests,attr"`
		Failures  int        `xml:"failures,attr"`
		Timestamp string     `xml:"timestamp,attr,omitempty"`
		Cases     []testCase `xml:"testcase"`
		Notes     *text      `xml:"system-err"`
	}
	testCase struct {
		Class   string   `xml:"classname,attr"`
		Name    string   `xml:"name,attr"`
		Failure *failure `xml:"failure"`
		Notes   *text    `xml:"system-out"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",cdata"`
	}
	text struct {
		Text string `xml:",cdata"`
	}
)

// JUnit writes one test case per check, which fails by its findings.
func JUnit(w io.Writer, r Report) error {
	s := suite{Name: "fairlead doctor", Tests: len(r.Checks)}
	if len(r.Samples) > 0 && timed(r.Samples[0]) {
		s.Timestamp = r.Samples[0].From.Format("2006-01-02T15:04:05")
	}
	unread := ""
	for _, u := range r.Unread {
		unread += "cannot tell: " + u.place() + ": " + u.Why + "\n"
	}
	s.Notes = textOf(unread)
	byCheck := map[string][]*Finding{}
	r.Each(func(f *Finding) { byCheck[f.Check] = append(byCheck[f.Check], f) })
	for _, id := range r.Checks {
		c := junitCase(id, byCheck[id])
		if c.Failure != nil {
			s.Failures++
		}
		s.Cases = append(s.Cases, c)
	}
	out, err := xml.MarshalIndent(suites{Suites: []suite{s}}, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, out)
	}
	if err != nil {
		return fmt.Errorf("write the report as JUnit: %w", err)
	}
	return nil
}

func junitCase(id string, found []*Finding) testCase {
	c := testCase{Class: "doctor", Name: id}
	var wrong []*Finding
	notes := ""
	for _, f := range found {
		if f.Severity == doctor.Info {
			notes += f.Title + "\n"
			continue
		}
		wrong = append(wrong, f)
	}
	c.Notes = textOf(notes)
	if len(wrong) == 0 {
		return c
	}
	worst := slices.MaxFunc(wrong, func(a, b *Finding) int { return int(a.Severity) - int(b.Severity) })
	message := worst.Title
	if len(wrong) > 1 {
		message = fmt.Sprintf("%s, and %d more", message, len(wrong)-1)
	}
	t := tree{View: View{Wide: true, Width: 100}}
	for _, f := range wrong {
		t.heading(f)
		t.blank()
		t.body(f)
	}
	c.Failure = &failure{Message: message, Type: worst.Severity.String(), Text: "\n" + t.b.String()}
	return c
}

func textOf(lines string) *text {
	if lines == "" {
		return nil
	}
	return &text{lines}
}

// Prometheus writes metrics in the text format, one series per finding and
// node.
func Prometheus(w io.Writer, r Report) error {
	var b strings.Builder
	family := func(name, help string, series map[string]string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
		for _, labels := range slices.Sorted(maps.Keys(series)) {
			fmt.Fprintf(&b, "%s%s %s\n", name, labels, series[labels])
		}
	}
	family("fairlead_doctor_findings", "Findings of fairlead doctor: 1 for each of a check about a subject on a node.", findingSeries(&r))
	family("fairlead_doctor_checks", "How many checks of fairlead doctor ran.", map[string]string{"": fmt.Sprint(len(r.Checks))})
	family("fairlead_doctor_services", "How many Services of the API were compared.", map[string]string{"": fmt.Sprint(r.Compared.Services)})
	family("fairlead_doctor_unread_outputs", "How many outputs could not be read, or only in part.", map[string]string{"": fmt.Sprint(len(r.Unread))})
	times := map[string]string{}
	for i, s := range r.Samples {
		if timed(s) {
			times[fmt.Sprintf("{sample=%q}", fmt.Sprint(i+1))] = fmt.Sprintf("%d.%03d", s.From.Unix(), s.From.Nanosecond()/1e6)
		}
	}
	family("fairlead_doctor_sample_timestamp_seconds", "When the layers were read, by sample.", times)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the report as metrics: %w", err)
	}
	return nil
}

// findingSeries has each series once, for a collector refuses a file that
// repeats one: findings that differ in words only are one.
func findingSeries(r *Report) map[string]string {
	series := map[string]string{}
	r.Each(func(f *Finding) {
		nodes := f.Nodes
		if len(nodes) == 0 {
			nodes = []string{""}
		}
		for _, node := range nodes {
			labels := fmt.Sprintf(`{check="%s",severity="%s",layer="%s",node="%s",subject="%s"}`,
				label(f.Check), f.Severity, label(string(f.Layer)), label(node), label(f.Subject))
			series[labels] = "1"
		}
	})
	return series
}

// label escapes the value of a label as the text format asks for.
func label(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value)
}
