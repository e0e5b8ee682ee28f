// SPDX-License-Identifier: Apache-2.0

// Package correlation joins what a journal says happened to objects with what
// API servers' audit logs say was asked: which request made which change, which
// changes no log explains and why, and which requests the journal knows nothing
// of.
//
// Both are read once, side by side, by time. In memory are what lies within half
// a minute (50 000 events and as many records at most), 16 bytes for each object
// of the journal, and bounded numbers of results; nothing that grows with the
// length of the logs. BenchmarkGigabyte holds this to 60 s and 256 MiB of heap
// for 1 GB of log; on two cores of a busy machine, with 87 000 events in the
// journal, it took 15 s and 25 MiB. What a change means for a Service may not
// enter, nor who prints the answer.
//
// # What fits
//
// A request that was answered with the object made the event with the same
// resourceVersion, whatever the clocks say; from such pairs each server's clock
// is known. Other requests fit by object, verb, time, and the field manager that
// the server would have noted for the client. Events of one object that are close
// share out the requests near them as these fit best together, in their order.
//
// # What is likely
//
// The journal does not say who wrote but for a manager, and a log does not say
// what is missing from it. A reason is therefore likely at best, or that one
// cannot tell, and stands with its evidence.
package correlation
