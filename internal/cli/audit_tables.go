// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/correlation"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// foldFrom is from how many rows of one kind on a table has one row for all of
// them. The JSON has all.
const foldFrom = 10

// changeCells say who made a change, and where. A change by another's name
// names both.
func changeCells(c correlation.Change, wide bool) []string {
	cells := journalCells(c.Event, wide)
	who := c.Request.User
	if c.Request.Impersonated != "" {
		who += " as " + c.Request.Impersonated
	}
	fit := "time"
	if c.Exact {
		fit = "version"
	}
	delay := time.Duration(c.DelaySeconds * float64(time.Second)).Round(100 * time.Microsecond)
	client, _, _ := strings.Cut(c.Request.UserAgent, " ")
	return []string{cells[0], cells[1], cells[2], cells[3], managerText(c.Event, cells[4]), who, c.Request.Verb, strings.Join(c.Request.SourceIPs, ","),
		logText(c.Request.Server), fit, delay.String(), client, cells[6]}
}

// logText is the end of a log's path, which tells servers apart where paths are
// long: the file and its folder.
func logText(server string) string {
	if !filepath.IsAbs(server) {
		return server
	}
	return filepath.Join(filepath.Base(filepath.Dir(server)), filepath.Base(server))
}

// folded are rows of which those of one group are one row, if they are many.
func folded[T any, K comparable](all []T, group func(T) K, one func(T) []string, many func([]T) []string) [][]string {
	groups := map[K][]T{}
	for _, each := range all {
		groups[group(each)] = append(groups[group(each)], each)
	}
	var rows [][]string
	for _, each := range all {
		members := groups[group(each)]
		switch {
		case members == nil: // they have their row
		case len(members) <= foldFrom:
			rows = append(rows, one(each))
		default:
			rows = append(rows, many(members))
			groups[group(each)] = nil
		}
	}
	return rows
}

func missingTable(missing []correlation.Missing) *table {
	t := &table{columns: append(columns("TIME", "KIND", "OBJECT", "MANAGER", "CHANGED", "LIKELY REASON"), wideColumns("EVIDENCE")...)}
	one := func(m correlation.Missing) []string {
		cells := journalCells(m.Event, false)
		return []string{cells[0], cells[1], cells[2], managerText(m.Event, cells[4]), cmp.Or(cells[6], string(m.Event.Type)), m.Reason.Text, strings.Join(m.Reason.Evidence, "; ")}
	}
	many := func(all []correlation.Missing) []string {
		objects := map[string]bool{}
		for _, m := range all {
			objects[m.Event.Namespace+"/"+m.Event.Name] = true
		}
		cells := one(all[0])
		if len(objects) > 1 {
			cells[2] = fmt.Sprintf("(%d objects)", len(objects))
		}
		cells[4] = fmt.Sprintf("(%d changes until %s)", len(all), stampText(all[len(all)-1].Event.Time))
		return cells
	}
	type group struct{ kind, manager, reason string }
	of := func(m correlation.Missing) group {
		return group{m.Event.Kind.Kind, managerText(m.Event, m.Event.Manager), m.Reason.Text}
	}
	for _, row := range folded(missing, of, one, many) {
		t.add(row...)
	}
	return t
}

// managerText is who wrote: whoever deletes leaves no trace, and the object's
// manager is another.
func managerText(e journal.Event, manager string) string {
	if e.Type == journal.Deleted {
		return ""
	}
	return manager
}

func unseenTable(unseen []correlation.Unseen) *table {
	t := &table{columns: append(columns("TIME", "LOG", "USER", "VERB", "RESOURCE", "OBJECT", "LIKELY REASON"), wideColumns("EVIDENCE", "RECORD")...)}
	one := func(u correlation.Unseen) []string {
		r := u.Request
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		return []string{auditTime(r.Time), logText(r.Server), r.User, r.Verb, r.Resource, name, u.Reason.Text,
			strings.Join(u.Reason.Evidence, "; "), r.File + ":" + strconv.Itoa(r.Line)}
	}
	many := func(all []correlation.Unseen) []string {
		cells := one(all[0])
		cells[5] = fmt.Sprintf("(%d requests until %s)", len(all), auditTime(all[len(all)-1].Request.Time))
		return cells
	}
	type group struct{ log, user, verb, resource, reason string }
	of := func(u correlation.Unseen) group {
		return group{u.Request.Server, u.Request.User, u.Request.Verb, u.Request.Resource, u.Reason.Text}
	}
	for _, row := range folded(unseen, of, one, many) {
		t.add(row...)
	}
	return t
}

func joinedWritersTable(writers []correlation.Writer) *table {
	t := &table{columns: append(columns("MANAGER", "USER", "VERB", "RESOURCE", "CHANGES", "FIRST", "LAST"), wideColumns("CLIENT")...)}
	for _, w := range writers {
		t.add(w.Manager, w.User, w.Verb, w.Resource, strconv.Itoa(w.Changes), stampText(w.First), stampText(w.Last), w.UserAgent)
	}
	return t
}

func joinedStormsTable(storms []correlation.Storm) *table {
	var plain []audit.Storm
	for _, s := range storms {
		plain = append(plain, s.Storm)
	}
	t := stormsTable(plain)
	t.columns = slices.Insert(t.columns, 4, columns("CHANGES")...)
	for i, s := range storms {
		changes := strconv.Itoa(s.Events)
		if s.Events < 0 {
			changes = "not recorded"
		}
		t.rows[i] = slices.Insert(t.rows[i], 4, changes)
	}
	return t
}
