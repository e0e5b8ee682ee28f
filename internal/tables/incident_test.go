// SPDX-License-Identifier: Apache-2.0

package tables

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// incident is the archive of the first incident: what it is about, what the
// API says at each moment, and the transcript that the tables make of it.
const incident = "testdata/incident-1.txtar"

// A default/kubernetes without endpoints is one like any other Service (R40).
func TestIncident1(t *testing.T) {
	archive, err := txtar.ParseFile(incident)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	told := &teller{world: w}
	moments := momentsOf(archive)
	for _, moment := range moments {
		told.moment(t, moment.Name, moment.Data)
	}

	t.Run("the tables tell it as the transcript does", func(t *testing.T) {
		golden(t, archive, len(moments), told.text.Bytes())
	})
	t.Run("the row of the Service that was only annotated is the very same Compiled at every moment", func(t *testing.T) {
		for i, row := range told.intranet {
			if !sameCompiled(told.intranet[0], row) || len(row.History) != 1 {
				t.Errorf("at moment %d it is another, after %d transitions", i+1, len(row.History))
			}
		}
	})
	t.Run("and the annotation did reach it", func(t *testing.T) {
		if before, after := told.intranet[1].Object.ResourceVersion, told.intranet[2].Object.ResourceVersion; before == after {
			t.Errorf("the row is of version %s before and after", after)
		}
	})
}

// The same, with retention for the API server's own Service: nobody loses the way
// to an API server that still answers where it was (R40).
func TestIncident1WithRetention(t *testing.T) {
	archive, err := txtar.ParseFile(incident)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.Retain(Retention{Services: []model.Name{{Namespace: "default", Name: "kubernetes"}}, Limit: 10 * time.Minute})
	told := &teller{world: w}
	moments := momentsOf(archive)
	for i, moment := range moments {
		told.moment(t, moment.Name, moment.Data)
		if i == 1 {
			told.heartbeat(t, addrPort("169.254.128.7:60002"), VerdictAnswers)
		}
	}
	t.Run("the tables tell it as the second transcript does", func(t *testing.T) {
		golden(t, archive, len(moments)+1, told.text.Bytes())
	})
	t.Run("and the row of the other Service is the very same Compiled at every moment", func(t *testing.T) {
		for i, row := range told.intranet {
			if !sameCompiled(told.intranet[0], row) || len(row.History) != 1 {
				t.Errorf("at moment %d it is another, after %d transitions", i+1, len(row.History))
			}
		}
	})
}

// momentsOf are the files before the transcripts.
func momentsOf(archive *txtar.Archive) []txtar.File {
	return archive.Files[:slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "transcript" })]
}

func golden(t *testing.T, archive *txtar.Archive, transcript int, got []byte) {
	t.Helper()
	if *update {
		archive.Files[transcript].Data = got
		if err := os.WriteFile(incident, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := archive.Files[transcript].Data; !bytes.Equal(want, got) {
		t.Errorf("the transcript is\n%s\nwant\n%s", got, want)
	}
}

// teller plays moments to the tables and writes what became of each row.
type teller struct {
	*world
	text     bytes.Buffer
	intranet []*Service // the row of default/kubernetes-intranet at each moment
}

// moment hands in manifests as events, in one batch, and tells.
func (s *teller) moment(t *testing.T, name string, manifests []byte) {
	t.Helper()
	before := rowsOf(s.tables)
	objects, problems, err := reflector.ReadFiles([]string{"-"}, bytes.NewReader(manifests))
	if err != nil || len(problems) > 0 {
		t.Fatalf("%s: %v %v", name, problems, err)
	}
	s.version++
	var events []reflector.Event
	for _, o := range objects.Services {
		events = append(events, reflector.Event{Kind: reflector.KindService, Name: o.Name, ResourceVersion: o.ResourceVersion, Service: o})
	}
	for _, o := range objects.Slices {
		events = append(events, reflector.Event{Kind: reflector.KindEndpointSlice, Name: o.Name, ResourceVersion: o.ResourceVersion, Slice: o})
	}
	s.Events(events)
	s.Flush()

	fmt.Fprintf(&s.text, "# %s\n", strings.ReplaceAll(strings.TrimSuffix(name, ".yaml"), "-", " "))
	for _, e := range events {
		fmt.Fprintf(&s.text, "event: %s %s at %s\n", e.Kind, e.Name, e.ResourceVersion)
	}
	s.became(t, before)
}

// heartbeat hands in what was found at a backend's address, and tells.
func (s *teller) heartbeat(t *testing.T, at netip.AddrPort, v Verdict) {
	t.Helper()
	before := rowsOf(s.tables)
	s.version++
	s.Judge(map[netip.AddrPort]Verdict{at: v})
	s.Flush()
	fmt.Fprintf(&s.text, "# the agent's own heartbeat is answered at %s\n", at)
	s.became(t, before)
}

// became tells what is made of each row.
func (s *teller) became(t *testing.T, before map[model.Name]*Service) {
	t.Helper()
	for row := range s.tables.Snapshot().Services() {
		s.tell(before[row.Name], row)
	}
	s.text.WriteByte('\n')
	s.intranet = append(s.intranet, s.row(t, model.Name{Namespace: "default", Name: "kubernetes-intranet"}))
}

func (s *teller) tell(before, row *Service) {
	switch {
	case before == row:
		fmt.Fprintf(&s.text, "%s: not touched\n", row.Name)
	case before != nil && sameCompiled(before, row):
		fmt.Fprintf(&s.text, "%s: now of version %s, nothing else is new\n", row.Name, row.Object.ResourceVersion)
	default:
		fmt.Fprintf(&s.text, "%s:\n", row.Name)
		last := row.History[len(row.History)-1]
		for _, c := range last.Causes {
			fmt.Fprintf(&s.text, "  because of %s\n", cmp.Or(c.Other, fmt.Sprintf("%s %s at %s", c.Kind, c.Name, c.ResourceVersion)))
		}
		for _, change := range last.Changes {
			fmt.Fprintf(&s.text, "  %s\n", change)
		}
	}
	for _, f := range api.Frontends(row.Name, &row.Compiled) {
		fmt.Fprintf(&s.text, "  %-22s %-13s %s\n", fmt.Sprintf("%s:%d/%s", f.Address, f.Port, f.Protocol), f.Type, arrow(f))
	}
}

// arrow says where a connection to a frontend goes.
func arrow(f api.Frontend) string {
	var to []string
	for _, b := range f.Backends {
		text := fmt.Sprintf("%s:%d", b.Address, b.Port)
		if b.State != model.StateActive.String() {
			text += " (" + b.State + ")"
		}
		to = append(to, text)
	}
	slices.Sort(to)
	return "→ " + cmp.Or(strings.Join(to, ", "), f.Action+": "+f.Reason)
}
