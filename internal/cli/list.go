// SPDX-License-Identifier: Apache-2.0

package cli

import "strings"

// list is the value of a flag that takes several values, by commas or by
// repeating it, each of them checked as it is read.
type list[T any] struct {
	kind   string
	parse  func(string) (T, error)
	texts  []string
	values []T
}

func (l *list[T]) String() string { return strings.Join(l.texts, ",") }

// Type is the name of the values in the help text.
func (l *list[T]) Type() string { return l.kind }

// Set adds the values of one use of the flag.
func (l *list[T]) Set(text string) error {
	for _, word := range strings.Split(text, ",") {
		value, err := l.parse(word)
		if err != nil {
			return err
		}
		l.texts = append(l.texts, word)
		l.values = append(l.values, value)
	}
	return nil
}
