// SPDX-License-Identifier: Apache-2.0

// Package failpoint lets a test end the process at a named step of it, as a
// kill or a power cut would, and switch a guard off to show what it is for.
//
// Without the build tag "failpoints" there is nothing of it in a binary. With
// it, FAIRLEAD_FAILPOINT="name" kills the process when it gets to the step of
// that name, "name#3" when it gets there for the third time, and
// FAIRLEAD_GUARDS_OFF="exempt,retention" switches these guards off. No release
// is built with the tag. Nothing may enter that a test does not need.
package failpoint
