// SPDX-License-Identifier: Apache-2.0

package datapath

// flowKey is struct flow_key of bpf/maps.h: a packet of a flow as it arrives
// at a program; 40 bytes.
type flowKey struct {
	Source     address
	Target     address
	SourcePort port
	TargetPort port
	Protocol   uint8
	At         uint8 // atIngress or atEgress
	_          uint16
}

// flow is struct flow: what the packet becomes; 72 bytes.
type flow struct {
	Source     address
	Target     address
	SourcePort port
	TargetPort port
	Owner      uint32
	Set        uint32
	Seal       uint32
	Word       uint64
	Used       uint64 // nanoseconds of CLOCK_MONOTONIC, to about a second
	Sequence   uint32
	State      uint8
	Flags      uint8
	At         uint8
	_          uint8
}

// The flags and states of flows, and the programs that a direction passes.
const (
	flowReply    = 1 << 0
	flowRedirect = 1 << 1
	flowSNAT     = 1 << 2
	flowInside   = 1 << 3

	flowAnswered  = 1 << 0
	flowFinClient = 1 << 1
	flowFinServer = 1 << 2
	flowReset     = 1 << 3

	atIngress = 0
	atEgress  = 1
)

// device is struct device: 40 bytes.
type device struct {
	Source4 address
	Source6 address
	Index   uint32
	_       uint32
}
