// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"io"
	"time"
)

// Format is one kind of text that a proxy's tools print. A text says by its
// content what it is: by its first line, or, if it is JSON, by what it holds.
type Format struct {
	Source string
	// Begins says whether a line is the first of such a text. Nil for JSON.
	Begins func(line string) bool
	// Alike is that every line of such a text looks like its first one.
	Alike bool
	// Holds says whether JSON is of this format, by its first part. Nil for text.
	Holds func(json []byte) bool
	// Part names what a text holds of a dump that comes in several, like the
	// tables of iptables-save. Texts of one group and different parts that
	// follow each other are one dump. Nil if each text is a dump.
	Part func(text []byte) (group, part string)
	// Time is when a text was printed by its own words, which may leave the zone
	// open. Nil if it never says.
	Time func(text []byte, zone *time.Location) time.Time
	// Parse reads the text. Nil for one that tells nothing of backends.
	Parse func(io.Reader) Dump
}
