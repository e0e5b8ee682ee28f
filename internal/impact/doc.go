// SPDX-License-Identifier: Apache-2.0

// Package impact says what a delete would break: which objects go, what they
// take with them, and what people would see of it.
//
// It is pure: State is what is known of a cluster, Delete finds what goes, and
// Examine lets every judge look at the two. Clients, clocks, printing and
// guesses about what could not be read may not enter: what is unknown stands
// in the State as such, and makes a judgement incomplete and never milder.
package impact
