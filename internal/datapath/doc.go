// SPDX-License-Identifier: Apache-2.0

// Package datapath owns the eBPF programs and maps: it creates, pins, adopts,
// writes and reads them, and attaches the programs to a cgroup and to devices.
//
// The kernel side is made of backend sets. A frontend in the hash points to a
// set for life; its element is replaced only when its address changes hands
// between Services. A set's extent of backends is written aside and becomes
// visible by one 64-bit store to the set's word, so a program sees the whole
// old set or the whole new one. An extent that no word names any more is reused
// only after a barrier that waits for running programs.
//
// Everything is pinned and stays in force when the agent ends. The package
// decides nothing about Services: it stores sets as the model made them. It
// never reads an API, and nothing in it depends on an agent: a Reader serves
// the diagnosis tools without one.
package datapath
