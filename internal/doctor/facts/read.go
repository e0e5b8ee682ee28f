// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

// errPartial is wrapped by what a reader says of a record that it read, but not
// all of.
var errPartial = errors.New("only a part could be read")

// Read makes a case of what was collected. What cannot be read is in Unread;
// nothing makes it fail.
func Read(bundles ...*evidence.Bundle) *Case {
	c := &Case{Noted: true}
	var records []*evidence.Record
	for _, b := range bundles {
		c.Noted = c.Noted && !b.Made.IsZero()
		for i := range b.Records {
			records = append(records, &b.Records[i])
		}
	}
	// Of an object that stands twice the one in a list of all of them counts.
	slices.SortStableFunc(records, func(a, b *evidence.Record) int {
		return cmp.Compare(min(len(b.Resources), 1), min(len(a.Resources), 1))
	})
	for _, r := range records {
		c.take(r)
	}
	for _, s := range c.Samples {
		for _, n := range s.Nodes {
			slices.SortStableFunc(n.Dumps, func(a, b Dump) int { return cmp.Compare(a.Layer, b.Layer) })
		}
	}
	return c
}

func (c *Case) take(r *evidence.Record) {
	if r.Kind == evidence.Unknown {
		return
	}
	read, known := readers()[r.Kind]
	if !known {
		c.Unread = append(c.Unread, Unread{r, fmt.Sprintf("records of kind %q are not known to this version", r.Kind)})
		return
	}
	if r.Error != "" && len(r.Content) == 0 {
		c.Unread = append(c.Unread, Unread{r, r.Error})
		return
	}
	var s *Sample
	if isState(r.Kind) {
		s = c.sample(r)
	}
	err := read(c, s, r)
	whole := err == nil && r.Error == "" && !r.Cut
	if !whole {
		c.Unread = append(c.Unread, Unread{r, why(r, err)})
	}
	if s != nil && (err == nil || errors.Is(err, errPartial)) {
		from := source{r.Node, r.Command}
		before, again := s.read[from]
		s.read[from] = whole && (before || !again)
	}
}

// isState says that records of a kind tell how things were at one moment.
func isState(k evidence.Kind) bool { return k != evidence.Log && k != evidence.Events }

// why says what is missing in a record, in the words of who knows best.
func why(r *evidence.Record, err error) string {
	switch {
	case r.Error != "":
		return r.Error
	case err != nil:
		return err.Error()
	}
	return "it was too long, and is cut off"
}

// sample returns that of a record; the first one if it names none.
func (c *Case) sample(r *evidence.Record) *Sample {
	number := max(r.Sample, 1)
	i, found := slices.BinarySearchFunc(c.Samples, number, func(s *Sample, n int) int { return cmp.Compare(s.Number, n) })
	if !found {
		c.Samples = slices.Insert(c.Samples, i, &Sample{Number: number, read: map[source]bool{}})
	}
	s := c.Samples[i]
	if r.Sample > 0 && !r.Time.IsZero() {
		if s.From.IsZero() || r.Time.Before(s.From) {
			s.From = r.Time
		}
		if r.Time.After(s.To) {
			s.To = r.Time
		}
	}
	return s
}

// node returns what is known of a node, and makes it if nothing was.
func (s *Sample) node(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *Node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		s.Nodes = slices.Insert(s.Nodes, i, &Node{Name: name})
	}
	return s.Nodes[i]
}
