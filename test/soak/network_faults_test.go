// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// faultTable is the nftables table of the node in which faults of the network
// stand.
const faultTable = "fault"

// dropped and reset are what becomes of packets between the node and the API
// servers.
var (
	dropped = &expr.Verdict{Kind: expr.VerdictDrop}
	reset   = &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
)

// networkFaults are what can happen between the agent and the API servers.
func networkFaults() []action {
	return []action{
		{name: "connections to the API servers reset", weight: 4, do: func(w *world) func() {
			w.breakConnections()
			return nil
		}},
		{name: "node cut off, packets are lost", weight: 3, can: (*world).connected, do: func(w *world) func() {
			w.cutOff = true
			w.filter(dropped)
			return w.reconnect
		}},
		{name: "node cut off, connections are refused", weight: 2, can: (*world).connected, do: func(w *world) func() {
			w.cutOff = true
			w.filter(reset)
			return w.reconnect
		}},
		{name: "link to the API servers down", weight: 2, can: (*world).connected, do: func(w *world) func() {
			w.cutOff = true
			w.ledger.interrupt(apiKey) // pods are cut off as well
			w.control.SetLink(w.t, "eth0", false)
			return func() {
				w.control.SetLink(w.t, "eth0", true)
				w.leadFromControl()
				w.cutOff = false
			}
		}},
	}
}

func (w *world) connected() bool { return !w.cutOff }

func (w *world) reconnect() {
	w.unfilter()
	w.cutOff = false
}

// breakConnections resets what the agent has open to the API servers. If the
// node is cut off nothing is open.
func (w *world) breakConnections() {
	if w.cutOff {
		return
	}
	w.filter(reset)
	time.Sleep(time.Duration(50+w.rand.IntN(500)) * time.Millisecond)
	w.unfilter()
}

// filter meets every TCP packet between the node itself and the API servers
// with an end; in both directions, so that idle connections feel it too.
func (w *world) filter(end expr.Any) {
	w.nftables(func(n *nftables.Conn) {
		table := n.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: faultTable})
		for _, side := range []struct {
			name    string
			hook    *nftables.ChainHook
			address uint32 // where in the header the API servers' address stands
		}{{"input", nftables.ChainHookInput, 12}, {"output", nftables.ChainHookOutput, 16}} {
			chain := n.AddChain(&nftables.Chain{Table: table, Name: side.name, Type: nftables.ChainTypeFilter, Hooknum: side.hook, Priority: nftables.ChainPriorityFilter})
			n.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: side.address, Len: 4},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: controlAddr.AsSlice()},
				end,
			}})
		}
	})
}

func (w *world) unfilter() {
	w.nftables(func(n *nftables.Conn) {
		n.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: faultTable})
	})
}

// nftables changes the tables of the node.
func (w *world) nftables(change func(*nftables.Conn)) {
	w.t.Helper()
	var err error
	w.agent.NS.Do(func() {
		var n *nftables.Conn
		if n, err = nftables.New(); err == nil {
			change(n)
			err = n.Flush()
		}
	})
	if err != nil {
		w.t.Fatalf("change the node's nftables: %v", err)
	}
}
