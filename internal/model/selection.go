// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// Selection says how one of several backends is chosen for a new connection.
type Selection uint8

// SelectionMaglev lets a packet choose by its addresses and ports, alike on
// every node. A socket has no source port yet when it connects: it chooses at
// random whatever the Selection.
const (
	SelectionRandom Selection = iota
	SelectionMaglev
)

func (s Selection) String() string { return [...]string{"random", "maglev"}[s] }

// ParseSelection reads a Selection as it writes itself.
func ParseSelection(text string) (Selection, error) {
	for s := SelectionRandom; s <= SelectionMaglev; s++ {
		if text == s.String() {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is none of random, maglev", text)
}

// MarshalText is String, for flags.
func (s Selection) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSelection, for flags.
func (s *Selection) UnmarshalText(text []byte) error {
	parsed, err := ParseSelection(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// selection returns how the Service chooses: as it says itself, else as the
// operator does.
func (o *Options) selection(svc *Service) Selection {
	if svc.HasSelection {
		return svc.Selection
	}
	return o.Selection
}
