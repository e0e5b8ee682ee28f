// SPDX-License-Identifier: Apache-2.0

// Package recorder lists and watches kinds of the Kubernetes API, and writes
// what happens to their objects into a journal: every event with who wrote it
// and what it changed, and every time that nobody watched.
//
// # What is a gap
//
// A watch that breaks is opened again at the last resourceVersion that was
// seen, and the API server tells all that happened meanwhile: nothing is
// missing, and no gap is noted, however long it took. Only where a new list was
// needed may something have come and gone unseen: then the gap reaches from the
// last moment at which the kind was followed to the new list.
//
// # What is a list
//
// Each list is noted, with what it brought, how many objects there were, and
// why it was asked for. It counts when it is complete. One that broke off is
// asked for again and is still the same list, for what is known by then is not
// told twice.
//
// # What is left out
//
// Secrets are replaced before anything is compared or stored: see package redact.
// managedFields are read for who wrote, and dropped; the resourceVersion stands
// beside the content, not in it, or every diff would begin with it.
//
// # What is kept in memory
//
// Of each object its name, UID and version, and its last content as text up to
// a bound for all objects; what is beyond is read back from the journal. Events
// wait in a queue of bounded length. When it is full, as on a full disk, nothing
// more is read from the API server until there is room.
//
// What an object means may not enter, nor what else happens in the process: an
// agent goes on whatever becomes of its recorder.
package recorder
