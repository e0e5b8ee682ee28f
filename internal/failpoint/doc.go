// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the steps between which a process may die, so that
// tests can let it die at each of them: FAIRLEAD_FAILPOINT="NAME" kills a
// process the first time that it comes to the step of this name, "NAME#N" the
// N-th time; "?" kills nobody, and writes each step to standard error.
// FAIRLEAD_GUARDS_OFF="NAME,NAME" takes away guards, so that a test of what they
// prevent can show that it happens without them.
//
// All of this is there with the build tag failpoints alone. Without it, which
// is how everybody's agent is built, the functions compile to nothing and no
// variable of the environment is read. Package points lists the names that
// sources have.
//
// Nothing may enter that changes what a program does in any other way.
package failpoint
