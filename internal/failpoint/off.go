// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package failpoint

// Hit is a step at which the process may be told to die.
func Hit(string) {}

// Off says that a guard is taken away.
func Off(string) bool { return false }
