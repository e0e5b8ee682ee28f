// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
)

// The sentences of findings. They are for people, and may change.

// told is what broke, and what more there is to say of it.
type told struct{ text, detail string }

const (
	fewBackends = 5
	fewChanges  = 3
	fewRunes    = 80
)

func lostText(lost []model.Backend) told {
	return told{"the row lacks " + backendText(lost), "the objects of the Service give what it lacks"}
}

func backendText(all []model.Backend) string {
	var texts []string
	for i, b := range all {
		if i == fewBackends {
			texts = append(texts, fmt.Sprintf("%d more", len(all)-i))
			break
		}
		texts = append(texts, b.AddrPort.String())
	}
	noun := "backends "
	if len(all) == 1 {
		noun = "backend "
	}
	return noun + strings.Join(texts, ", ")
}

// emptyText says what a Service in front of the API server lost, and what
// becomes of its clients.
func (c *checker) emptyText(change *Change) told {
	had := backendText(backends(&change.Before.Own))
	if change.After == nil {
		return told{"the Service was deleted, with " + had, "nothing is retained for it"}
	}
	text := "the API left the Service without " + had
	if CountBackends(change.After).Retained == 0 {
		return told{text, "nothing is retained, and new connections to the API server are refused"}
	}
	return told{text, fmt.Sprintf("an agent goes on with what the Service had for %s at most; "+
		"an agent without retention refuses new connections to the API server", DurationText(c.limit))}
}

// DurationText is a duration without the zeros at its end: 10m rather than 10m0s.
func DurationText(d time.Duration) string {
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-len("0s")]
		}
	}
	return text
}

func (c *checker) contestText(spot model.Spot, loser, winner model.Name) told {
	mine, other := c.engine.rows[loser].Object.CreationTimestamp, c.engine.rows[winner].Object.CreationTimestamp
	why := "comes first by name, both being of one age"
	switch {
	case mine.IsZero() && !other.IsZero():
		why = "comes first, for it is not known when this one was created"
	case !mine.Equal(other):
		why = fmt.Sprintf("is older (%s, this one %s)", stamp(other), stamp(mine))
	}
	return told{fmt.Sprintf("it claims %s, which %s holds", spot, winner), fmt.Sprintf("%s %s: connections go there", winner, why)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// counters change with everything else.
var counters = []string{"/metadata/generation", "/metadata/resourceVersion"}

// changeText is a diff in short.
func changeText(diff []journal.Change) string {
	diff = slices.DeleteFunc(diff, func(c journal.Change) bool { return slices.Contains(counters, c.Path) })
	if len(diff) == 0 {
		return ""
	}
	var texts []string
	for i, change := range diff {
		if i == fewChanges {
			texts = append(texts, fmt.Sprintf("%d more", len(diff)-i))
			break
		}
		texts = append(texts, change.Path+" "+valueText(change))
	}
	return "changed: " + strings.Join(texts, ", ")
}

func valueText(c journal.Change) string {
	switch c.Op {
	case "add":
		return "+" + short(c.New)
	case "remove":
		return "-" + short(c.Old)
	}
	return short(c.Old) + "→" + short(c.New)
}

func short(value []byte) string {
	runes := []rune(string(value))
	if len(runes) <= fewRunes {
		return string(runes)
	}
	return string(runes[:fewRunes]) + "…"
}

func gapText(g journal.Gap, e *journal.Event) string {
	how := "it came while nobody watched "
	if g.Kind == e.Kind {
		how = "it was found after nobody had watched "
	}
	return fmt.Sprintf("%s%s from %s to %s (%s), so the order may have been another", how, g.Kind.Resource, stamp(g.Began), stamp(g.Ended), g.Reason)
}
