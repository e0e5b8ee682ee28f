// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Row is a claim of a Service with the set it points to: one frontend.
type Row struct {
	Service Name
	Claim   Claim
	Set     Set
}

// View is what a node knows when a connection begins.
type View struct {
	Index        Index
	Node         *Node
	ClusterCIDRs []netip.Prefix
	ServiceCIDRs []netip.Prefix // the ranges of ClusterIPs (R38)
	NodePorts    NodePortAddresses
	Sockets      PathServed
	// Packets says whose packets are translated, where no socket does it. An
	// agent serves what its devices see; what the rules ask for is all of them.
	Packets PacketsServed
}

// PacketsServed says whose packets pass the programs of the packet path.
type PacketsServed struct {
	Outside bool // those that arrive from other machines
	Pods    bool // those of the pod in question
	Node    bool // those of the node's own sockets
}

// AllPackets serves everybody.
var AllPackets = PacketsServed{Outside: true, Pods: true, Node: true}

// PathServed says whose connections are translated at their socket, as
// --socket-path does.
type PathServed uint8

// The zero value is all of them; ServedHost leaves pods out.
const (
	ServedAll PathServed = iota
	ServedHost
	ServedOff
)

func (s PathServed) String() string { return [...]string{"all", "host", "off"}[s] }

// Flow is a connection, or a datagram, that may be.
type Flow struct {
	From     netip.Addr
	To       netip.AddrPort
	Protocol Protocol
}

// Outcome is what happens to a flow.
type Outcome uint8

// The verdicts of the output contract. OutcomePass means that nothing
// translates the flow.
const (
	OutcomeForward Outcome = iota
	OutcomeReject
	OutcomeDrop
	OutcomePass
)

func (o Outcome) String() string { return [...]string{"forward", "reject", "drop", "pass"}[o] }

// Path is where a flow is translated.
type Path uint8

// A flow that begins on this node is translated at its socket, if that is
// served, except SCTP, whose sockets do not pass the hooks (R28).
const (
	PathSocket Path = iota
	PathPacket
)

func (p Path) String() string { return [...]string{"socket", "packet"}[p] }

// Step is one fact on the way to a verdict, and the object or flag that it is
// known from.
type Step struct{ Stage, Fact, Source string }

// Verdict is what would happen to a flow, and why.
type Verdict struct {
	Outcome    Outcome
	Row        *Row      // nil if the target is no Service address
	Candidates []Backend // one of these, if the flow is forwarded
	SNAT       bool      // as the packet path would do it
	Path       Path
	Steps      []Step
}

// Trace says what would happen to a flow. Source ranges are asked before
// endpoints, so a client out of range learns nothing of the Service.
func Trace(v View, f Flow) Verdict {
	t := trace{view: v, flow: f}
	t.flow.From = plain(f.From)
	t.flow.To = netip.AddrPortFrom(plain(f.To.Addr()), f.To.Port())
	t.findOrigin()
	t.findPath()
	t.findRow()
	if t.verdict.Row == nil {
		t.refuseUnknown()
		return t.verdict
	}
	t.decide(t.verdict.Row)
	return t.verdict
}

// plain strips what two spellings of one address may differ in.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

type trace struct {
	view    View
	flow    Flow
	origin  origin
	verdict Verdict
}

func (t *trace) step(stage, source, format string, args ...any) {
	t.verdict.Steps = append(t.verdict.Steps, Step{Stage: stage, Fact: fmt.Sprintf(format, args...), Source: source})
}

func (t *trace) nodeSource() string { return "Node " + t.view.Node.Name }

// origin says where a flow comes from.
type origin uint8

const (
	fromOutside origin = iota
	fromPod
	fromNode
)

// findOrigin tells the node's own addresses first: they are exact, and where
// pods share the hosts' network they lie in a cluster CIDR too.
func (t *trace) findOrigin() {
	from := t.flow.From
	if from.IsLoopback() || t.view.Node.has(from) {
		t.origin = fromNode
		t.step("source", t.nodeSource(), "%s is this node", from)
		return
	}
	if cidr, ok := containing(t.view.ClusterCIDRs, from); ok {
		t.origin = fromPod
		t.step("source", "--cluster-cidr "+cidr.String(), "%s is a pod of this node", from)
		return
	}
	t.step("source", "--cluster-cidr", "%s is outside: neither an address of this node nor inside a cluster CIDR", from)
}

func containing(cidrs []netip.Prefix, a netip.Addr) (netip.Prefix, bool) {
	for _, cidr := range cidrs {
		if cidr.Contains(a) {
			return cidr, true
		}
	}
	return netip.Prefix{}, false
}

func (t *trace) findPath() {
	why, source := t.offSocket()
	if why == "" {
		t.verdict.Path = PathSocket
		t.step("path", t.nodeSource(), "the connection begins on this node, so its socket translates it")
		return
	}
	t.verdict.Path = PathPacket
	if missing := t.offWire(); missing != "" {
		t.step("path", source, "%s, and %s", why, missing)
		return
	}
	t.step("path", source, "%s, so its packets are translated", why)
}

// offWire says why the flow's packets are not translated; "" if they are.
func (t *trace) offWire() string {
	switch {
	case t.origin == fromOutside && !t.view.Packets.Outside:
		return "no device that faces other machines is served (--packet-path, --devices), so its packets go untranslated"
	case t.origin == fromPod && !t.view.Packets.Pods:
		return "the pod is behind none of --pod-devices, so its packets go untranslated"
	case t.origin == fromNode && !t.view.Packets.Node:
		return "no program sees what the node itself sends, so its packets go untranslated"
	}
	return ""
}

// untranslated says that neither a socket nor the wire translates the flow.
func (t *trace) untranslated() bool { return t.verdict.Path == PathPacket && t.offWire() != "" }

// offSocket says why no socket translates the flow, and from what that is
// known; nothing if one does.
func (t *trace) offSocket() (why, source string) {
	flag := "--socket-path " + t.view.Sockets.String()
	switch {
	case t.origin == fromOutside:
		return "the connection arrives on the wire", t.nodeSource()
	case t.flow.Protocol == SCTP:
		return "SCTP sockets do not pass the socket hooks", t.nodeSource()
	case t.view.Sockets == ServedOff:
		return "no socket is served", flag
	case t.view.Sockets == ServedHost && t.origin == fromPod:
		return "the sockets of pods are not served", flag
	}
	return "", ""
}

// findRow looks for the row that takes the flow: one for the exact address
// before the NodePort of every address (R27).
func (t *trace) findRow() {
	to := t.flow.To.Addr()
	if !to.IsUnspecified() && t.takeRow(to) {
		return
	}
	if !t.servesNodePort(to) {
		return
	}
	if !t.takeRow(FamilyOf(to).Unspecified()) {
		t.step("frontend", t.nodeSource(), "no Service has %s, and no NodePort is %d/%s", t.spot(to), t.flow.To.Port(), t.flow.Protocol)
	}
}

func (t *trace) spot(a netip.Addr) Spot { return Spot{a, t.flow.To.Port(), t.flow.Protocol} }

// takeRow takes the row of the flow's scope at an address, if there is one.
func (t *trace) takeRow(a netip.Addr) bool {
	scope := ScopeInternal
	if t.origin == fromOutside {
		scope = ScopeExternal
	}
	for _, row := range slices.SortedFunc(slices.Values(t.view.Index.On(t.spot(a))), Row.compare) {
		s, source := row.Claim.Key.Scope, "Service "+row.Service.String()
		if s != ScopeAll && s != scope {
			continue
		}
		if row.Claim.Shadowed != "" {
			t.step("frontend", source, "it claims %s as its %s too, but that is held by %s", row.Claim.Key, row.Claim.Type, row.Claim.Shadowed)
			continue
		}
		t.step("frontend", source, "%s is its %s%s, for %s traffic", row.Claim.Key, row.Claim.Type, portText(row.Claim.PortName), scopeText(s))
		t.verdict.Row = &row
	}
	return t.verdict.Row != nil
}

// compare orders rows on one spot, so that a trace does not depend on how they
// are kept.
func (r Row) compare(o Row) int {
	return cmp.Or(r.Service.Compare(o.Service), r.Claim.Key.Compare(o.Claim.Key), r.Claim.precedes(o.Claim))
}

func portText(name string) string {
	if name == "" {
		return ""
	}
	return ", port " + name
}

func scopeText(s Scope) string {
	if s == ScopeAll {
		return "internal and external"
	}
	return s.String()
}

// servesNodePort says that the flow's target may be a NodePort (R24). Loopback,
// for which the kernel takes the unspecified address too, is one to the node's
// own processes only.
func (t *trace) servesNodePort(to netip.Addr) bool {
	if to.IsLoopback() || to.IsUnspecified() {
		if t.origin == fromNode {
			return true
		}
		t.step("frontend", t.nodeSource(), "%s is the client's own loopback, where NodePorts are served to this node's processes only", to)
		return false
	}
	if t.view.NodePorts.Serve(t.view.Node, to) {
		return true
	}
	if t.view.Node.has(to) {
		t.step("frontend", "--nodeport-addresses "+t.view.NodePorts.String(), "no Service has %s, and NodePorts are not served on that address", t.spot(to))
		return false
	}
	t.step("frontend", t.nodeSource(), "no Service has %s, and it is no address of this node", t.spot(to))
	return false
}

// refuseUnknown says what becomes of a flow that no row takes: it passes,
// unless it is for a ClusterIP (R38).
func (t *trace) refuseUnknown() {
	t.verdict.Outcome = OutcomePass
	unknown := t.view.Index.Unknown(t.flow.To.Addr(), t.view.Node, t.view.ServiceCIDRs)
	if unknown == (UnknownAddress{}) {
		return
	}
	if t.flow.Protocol == SCTP || t.untranslated() {
		t.step("verdict", t.nodeSource(), "nothing refuses it: its packets pass no program")
		return
	}
	if row := unknown.ClusterIP; row != nil {
		t.verdict.Outcome = OutcomeReject
		t.step("verdict", "Service "+row.Service.String(), "%s is its ClusterIP, which has no port %d/%s", row.Claim.Key.Address, t.flow.To.Port(), t.flow.Protocol)
		return
	}
	t.verdict.Outcome = OutcomeDrop
	t.step("verdict", "--service-cidr "+unknown.CIDR.String(), "no Service has the ClusterIP %s", t.flow.To.Addr())
}

// decide says what the row makes of the flow.
func (t *trace) decide(row *Row) {
	source := "Service " + row.Service.String()
	set := &row.Set
	if set.Action == ActionUnsupported {
		t.verdict.Outcome = OutcomePass
		t.step("verdict", source, "nothing translates it: %s", set.Reason)
		return
	}
	if t.untranslated() {
		t.verdict.Outcome = OutcomePass
		t.step("verdict", t.nodeSource(), "nothing translates it: %s", t.offWire())
		return
	}
	if !t.inSourceRanges(row) {
		t.verdict.Outcome = OutcomeDrop
		return
	}
	switch set.Action {
	case ActionDrop:
		t.verdict.Outcome = OutcomeDrop
		t.step("verdict", source, "%s", set.Reason)
	case ActionReject:
		t.verdict.Outcome = OutcomeReject
		t.step("verdict", source, "%s", set.Reason)
	default:
		t.forward(row)
	}
}

// inSourceRanges asks the row's source ranges, which hold for pods and for this
// node too (R22). What the node itself sends counts as coming from its primary
// address, unless the socket is bound to another one.
func (t *trace) inSourceRanges(row *Row) bool {
	if len(row.Set.SourceRanges) == 0 {
		return true
	}
	primary := t.view.Node.Primary(row.Set.Key.Family)
	if t.origin == fromNode && t.flow.From.IsLoopback() {
		t.step("source ranges", t.nodeSource(), "the source is the node's primary address %s, as of all sockets of the node that are not bound to another one", primary)
		return t.sourceInRange(row, primary)
	}
	in := t.sourceInRange(row, t.flow.From)
	if t.origin != fromNode || t.flow.From == primary {
		return in
	}
	if _, primaryIn := containing(row.Set.SourceRanges, primary); primaryIn != in {
		t.step("source ranges", t.nodeSource(), "this is so for a socket that is bound to %s; for all others the node's primary address %s counts, and the answer is the opposite", t.flow.From, primary)
	}
	return in
}

// sourceInRange asks for one source. A node that has the VIP as an address of
// its own reaches it from there: as with kube-proxy, that is a source in range
// where the node is.
func (t *trace) sourceInRange(row *Row, from netip.Addr) bool {
	source := "Service " + row.Service.String()
	if cidr, ok := containing(row.Set.SourceRanges, from); ok {
		t.step("source ranges", source, "%s is in loadBalancerSourceRanges %s", from, cidr)
		return true
	}
	if cidr, ok := containing(row.Set.SourceRanges, t.view.Node.Primary(row.Set.Key.Family)); ok && from == t.flow.To.Addr() {
		t.step("source ranges", source, "%s is the VIP itself, and this node is in loadBalancerSourceRanges %s", from, cidr)
		return true
	}
	t.step("source ranges", source, "%s is not in loadBalancerSourceRanges", from)
	return false
}
