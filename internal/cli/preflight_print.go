// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/impact"
)

// preflightAnswer is the JSON of a judgement.
type preflightAnswer struct {
	SchemaVersion int                 `json:"schemaVersion"`
	Verdict       string              `json:"verdict"`
	Kinds         []goingKind         `json:"kinds"`
	Objects       []goingObject       `json:"objects"`
	Consequences  []consequenceAnswer `json:"consequences"`
	NotFound      []string            `json:"notFound"`
	Incomplete    []string            `json:"incomplete"`
}

type goingKind struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Kind     string `json:"kind"`
	Named    int    `json:"named"`
	WithThem int    `json:"withThem"`
}

type goingObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Because says with what the object goes, and why; of what the command names
	// it is empty.
	Because string `json:"because,omitempty"`
}

type consequenceAnswer struct {
	Severity string   `json:"severity"`
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Objects  []string `json:"objects"`
	Affected []string `json:"affected"`
	Detail   []string `json:"detail"`
}

func (e *env) printJudgement(f *format, j *judgement) error {
	if f.data() {
		return e.printData(f, j.answer())
	}
	for _, err := range j.missing {
		e.warn("%s", err)
	}
	var b strings.Builder
	j.writeGoing(&b, e.colour)
	j.writeConsequences(&b, e.colour)
	j.writeDetails(&b)
	writeList(&b, "Not judged, since it is not known:", together(j.Incomplete))
	b.WriteString("\n" + j.sentence() + "\n")
	return e.print(b.String())
}

func (j *judgement) answer() preflightAnswer {
	answer := preflightAnswer{
		SchemaVersion: api.SchemaVersion, Verdict: j.verdict(),
		Kinds: []goingKind{}, Objects: []goingObject{}, Consequences: []consequenceAnswer{}, NotFound: []string{}, Incomplete: strs(j.Incomplete),
	}
	for _, g := range j.Groups {
		answer.Kinds = append(answer.Kinds, goingKind{g.Resource.Group, g.Resource.Version, g.Resource.Resource, g.Resource.Kind, g.Named, g.Cascaded})
	}
	for _, o := range j.Deletion.Objects() {
		going := goingObject{Kind: o.Resource.Kind, Namespace: o.Namespace, Name: o.Name}
		if cause, _ := j.Gone(o); cause.By != nil {
			going.Because = cause.Why + " " + cause.By.String()
		}
		answer.Objects = append(answer.Objects, going)
	}
	for i := range j.Consequences {
		c := &j.Consequences[i]
		answer.Consequences = append(answer.Consequences, consequenceAnswer{
			c.Severity.String(), c.ID, c.Title, objectNames(c.Objects), strs(c.Affected), strs(c.Detail),
		})
	}
	for _, err := range j.missing {
		answer.NotFound = append(answer.NotFound, err.Error())
	}
	return answer
}

// strs lets an empty list be one in JSON.
func strs(list []string) []string { return append([]string{}, list...) }

func objectNames(objects []*impact.Object) []string {
	names := make([]string, len(objects))
	for i, o := range objects {
		names[i] = o.String()
	}
	return names
}

// verdict is one word for programs.
func (j *judgement) verdict() string {
	switch {
	case j.Worst() >= impact.Breaks:
		return strings.ToLower(j.Worst().String())
	case len(j.Incomplete) > 0:
		return "incomplete"
	}
	return "harmless"
}

// sentence is the verdict for people.
func (j *judgement) sentence() string {
	count := map[impact.Severity]int{}
	for i := range j.Consequences {
		count[j.Consequences[i].Severity]++
	}
	incomplete := ""
	if len(j.Incomplete) > 0 {
		incomplete = " Not all of it could be judged."
	}
	switch {
	case j.Worst() == impact.Outage:
		return fmt.Sprintf("This takes down what the cluster rests on: %s.%s", plural(count[impact.Outage], "outage"), incomplete)
	case j.Worst() == impact.Breaks:
		return fmt.Sprintf("Something in use would break: %s.%s", plural(count[impact.Breaks], "consequence"), incomplete)
	case len(j.Deletion.Objects()) == 0 && incomplete == "":
		return "Nothing would be deleted."
	case incomplete != "":
		return "Nothing that is known would break." + incomplete
	}
	return "Nothing in use would break."
}

func (j *judgement) writeGoing(b *strings.Builder, colour bool) {
	if len(j.Groups) == 0 {
		return
	}
	t := &table{columns: columns("WHAT GOES", "NAMED", "WITH THEM", "FOR EXAMPLE")}
	all, byName := len(j.Deletion.Objects()), 0
	for _, g := range j.Groups {
		byName += g.Named
		t.add(g.Resource.Kind, fmt.Sprint(g.Named), fmt.Sprint(g.Cascaded), examplesOf(g))
	}
	b.WriteString(t.text(false, colour))
	fmt.Fprintf(b, "\n%s: %d by name, %d with them.\n", plural(all, "object"), byName, all-byName)
}

func examplesOf(g impact.Group) string {
	names := make([]string, len(g.Examples))
	for i, o := range g.Examples {
		names[i] = place(o)
	}
	if g.Named+g.Cascaded > len(names) {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// place is an object's name among those of its kind.
func place(o *impact.Object) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

func (j *judgement) writeConsequences(b *strings.Builder, colour bool) {
	if len(j.Consequences) == 0 {
		return
	}
	t := &table{columns: columns("SEVERITY", "OBJECT", "WHAT PEOPLE WOULD SEE")}
	for i := range j.Consequences {
		c := &j.Consequences[i]
		t.add(c.Severity.String(), firstOf(c), c.Title)
	}
	b.WriteString("\n" + t.text(false, colour))
}

// firstOf is the object that stands for a consequence.
func firstOf(c *impact.Consequence) string {
	if len(c.Objects) == 0 {
		return ""
	}
	return c.Objects[0].String()
}

// few is how many of a list people read.
const few = 8

// writeDetails says more of each consequence of which there is more to say.
func (j *judgement) writeDetails(b *strings.Builder) {
	for i := range j.Consequences {
		c := &j.Consequences[i]
		if len(c.Objects) <= 1 && len(c.Affected) == 0 && len(c.Detail) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s: %s\n", c.Severity.String(), clean(cmp.Or(firstOf(c), c.ID)))
		if len(c.Objects) > 1 {
			fmt.Fprintf(b, "  goes: %s\n", cut(objectNames(c.Objects)))
		}
		if len(c.Affected) > 0 {
			fmt.Fprintf(b, "  hits: %s\n", cut(c.Affected))
		}
		for _, sentence := range c.Detail {
			fmt.Fprintf(b, "  %s\n", clean(sentence))
		}
	}
}

// cut names the first of many.
func cut(list []string) string {
	left := len(list) - few
	if left <= 1 { // what is left takes no more room than its number
		return clean(strings.Join(list, ", "))
	}
	return clean(strings.Join(slices.Clone(list[:few]), ", ")) + fmt.Sprintf(" and %d more", left)
}

// together makes one line of kinds of which the same is said, and puts what is said
// of few kinds first: who may list next to nothing reads on what a judgement rests
// before the rest.
func together(lines []string) []string {
	var said []string
	kinds := map[string][]string{}
	for _, line := range lines {
		kind, text, _ := strings.Cut(line, ": ")
		if strings.Contains(kind, " ") { // it is of no kind
			kind, text = "", line
		}
		if kinds[text] == nil {
			said = append(said, text)
		}
		kinds[text] = append(kinds[text], kind)
	}
	slices.SortStableFunc(said, func(a, b string) int { return cmp.Compare(len(kinds[a]), len(kinds[b])) })
	for i, text := range said {
		if of := kinds[text]; of[0] != "" {
			said[i] = cut(of) + ": " + text
		}
	}
	return said
}

func writeList(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	for _, line := range lines {
		b.WriteString("  " + clean(line) + "\n")
	}
}
