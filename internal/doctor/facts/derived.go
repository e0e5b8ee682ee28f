// SPDX-License-Identifier: Apache-2.0

package facts

import "reflect"

// Derived returns what is made of a sample, and makes it the first time: several
// checks look at the same. A type stands for one thing that can be made.
func Derived[T any](s *Sample, make func(*Sample) T) T {
	key := reflect.TypeFor[T]()
	if made, ok := s.derived[key]; ok {
		return made.(T)
	}
	made := make(s)
	if s.derived == nil {
		s.derived = map[reflect.Type]any{}
	}
	s.derived[key] = made
	return made
}
