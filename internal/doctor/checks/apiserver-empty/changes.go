// SPDX-License-Identifier: Apache-2.0

package apiserverempty

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
)

// changes are times at which default/kubernetes was emptied and filled again:
// by a journal, else by the difference of samples.
func changes(c *facts.Case) []doctor.Finding {
	gaps := gapsOf(services.Past(c.Events, "default", "kubernetes"))
	if len(gaps) == 0 {
		return between(c)
	}
	const most = 5
	var times []string
	longest := time.Duration(0)
	for _, g := range gaps {
		longest = max(longest, g.lasted())
		if len(times) < most {
			times = append(times, g.String())
		}
	}
	if more := len(gaps) - most; more > 0 {
		times = append(times, fmt.Sprintf("and %d more", more))
	}
	first := gaps[0].emptied.Event
	return []doctor.Finding{flapping(
		fmt.Sprintf("%s was emptied %s, for up to %s", kubernetes, count(len(gaps)), longest.Round(time.Millisecond)),
		[]string{"Without endpoints it was: " + strings.Join(times, ", ") + "."},
		doctor.Evidence{Command: "fairlead events --kind endpointslices --namespace default --name kubernetes", Time: first.Time, Excerpt: excerpt(gaps)},
	)}
}

func flapping(title string, detail []string, shown ...doctor.Evidence) doctor.Finding {
	return doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: kubernetes, Certain: true, Title: title,
		Detail:   append(detail, "Each time, data planes empty it on every node, and what dials it meanwhile is refused. An agent that reaches the API server by it may not find back."),
		Evidence: shown,
		RestsOn:  []string{doctor.Advertised()},
		Remedy: []doctor.Remedy{{
			Text: "Give each API server an --advertise-address of its own, so that the others stay when one stops; and agents an address of the API server that is no Service's (see api-through-service).",
		}},
	}
}

// gap is a time without endpoints, from one event to another.
type gap struct{ emptied, filled services.Moment }

func (g gap) lasted() time.Duration { return g.filled.Event.Time.Sub(g.emptied.Event.Time) }

func (g gap) String() string {
	by := ""
	if g.emptied.Event.Manager != "" {
		by = " by " + g.emptied.Event.Manager
	}
	return fmt.Sprintf("%s%s, for %s", g.emptied.Event.Time.UTC().Format(time.RFC3339), by, g.lasted().Round(time.Millisecond))
}

// gapsOf are those that are over. A slice that goes is followed by one of another
// name, if by any, so all slices are looked at together.
func gapsOf(past []services.Moment) []gap {
	var out []gap
	filled := map[string]bool{} // slices with ready endpoints, by name
	var emptied *services.Moment
	for i := range past {
		m := &past[i]
		before := some(filled)
		filled[m.Event.Name] = len(m.Ready()) > 0
		switch after := some(filled); {
		case before && !after:
			emptied = m
		case after && emptied != nil:
			out, emptied = append(out, gap{*emptied, *m}), nil
		}
	}
	return out
}

func some(filled map[string]bool) bool {
	for _, is := range filled {
		if is {
			return true
		}
	}
	return false
}

func excerpt(gaps []gap) string {
	const most = 3
	text := ""
	for _, g := range gaps[:min(most, len(gaps))] {
		for _, m := range []services.Moment{g.emptied, g.filled} {
			if text != "" {
				text += "\n"
			}
			text += fmt.Sprintf("%s  %s  endpointslices default/%s  %s  %d ready endpoints", m.Event.Time.UTC().Format(time.RFC3339Nano), m.Event.Type, m.Event.Name, m.Event.Manager, len(m.Ready()))
		}
	}
	return text
}

// between is that samples differ: one shows it empty, a later one does not.
func between(c *facts.Case) []doctor.Finding {
	var emptied *facts.Sample
	for _, sample := range c.Samples {
		s, known := services.Find(services.All(sample.Objects), kubernetes)
		switch {
		case !known:
		case len(s.Ready()) == 0:
			emptied = sample
		case emptied != nil:
			then, _ := services.Find(services.All(emptied.Objects), kubernetes)
			return []doctor.Finding{flapping(
				fmt.Sprintf("%s had no endpoints, and %s later it has some", kubernetes, sample.Objects.Time.Sub(emptied.Objects.Time)),
				nil, slices.Concat(services.ShownSlices(emptied.Objects, then), services.ShownSlices(sample.Objects, s))...)}
		}
	}
	return nil
}

func count(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
