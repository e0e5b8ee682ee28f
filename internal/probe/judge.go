// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Judge says of every result that failed who answered, as far as differences to
// others tell; else that it cannot be told, and what would tell.
func Judge(results []Result, around Around) []Result {
	out := slices.Clone(results)
	for i := range out {
		if !out[i].Fails() {
			continue
		}
		v := look(results, i, around)
		out[i].Layer, out[i].Because = v.judge()
	}
	return out
}

// view is a result, and what it is to be compared with.
type view struct {
	*Result
	around Around
	// direct are those behind the same Service, from the same place.
	direct []*Result
	// host, outside and exempt are the same target from there; nil: not tried.
	host, outside, exempt *Result
}

func look(results []Result, i int, around Around) view {
	r := &results[i]
	v := view{Result: r, around: around}
	for j := range results {
		other := &results[j]
		if other.Outcome == Failed || j == i {
			continue
		}
		if other.Purpose == r.Purpose.Direct() && other.Service == r.Service && other.From == r.From {
			v.direct = append(v.direct, other)
		}
		if other.Purpose != r.Purpose || other.Target != r.Target || other.Service != r.Service {
			continue
		}
		switch other.From {
		case FromHost:
			v.host = other
		case FromOutside:
			v.outside = other
		case FromExempt:
			v.exempt = other
		}
	}
	if r.From == FromHost || r.From == FromExempt {
		v.host = r
	}
	return v
}

// judge asks one kind of difference after the other, the surest first.
func (v view) judge() (Layer, []string) {
	for _, tells := range []func(view) (Layer, string){
		view.byCounter, view.byRoute, view.byNotice, view.byCall, view.byBackends, view.byHost, view.byHandshake,
	} {
		if layer, because := tells(v); layer != "" {
			return layer, append([]string{because}, v.named(layer)...)
		}
	}
	return LayerUnknown, v.wouldTell()
}

// named are the programs that may have answered, where programs did.
func (v view) named(layer Layer) []string {
	if layer != LayerSocket {
		return nil
	}
	var names []string
	for _, p := range v.onHook() {
		names = append(names, p.String())
	}
	return names
}

// onHook are the programs that see this kind of call.
func (v view) onHook() []Program {
	hook := "connect4"
	if a, err := netip.ParseAddrPort(v.address()); err == nil && a.Addr().Unmap().Is6() {
		hook = "connect6"
	}
	if v.From == FromOutside {
		return nil
	}
	var on []Program
	for _, p := range v.around.Programs {
		if p.Hook == hook {
			on = append(on, p)
		}
	}
	return on
}

func (v view) address() string {
	address, _, _ := strings.Cut(v.Target, "/")
	return address
}

// byCounter: a counter of refusals of just this address went up.
func (v view) byCounter() (Layer, string) {
	to, err := netip.ParseAddrPort(v.address())
	if err != nil || v.From == FromOutside || v.From == FromExempt {
		return "", ""
	}
	for _, c := range v.around.Moved {
		if c.Address.Addr() != to.Addr().Unmap() || (c.Address.Port() != 0 && c.Address.Port() != to.Port()) {
			continue
		}
		because := fmt.Sprintf("%s went up by %d meanwhile", c.Name, c.Count)
		switch {
		case c.Layer == LayerSocket && (v.Step == StepConnect || v.Step == StepSend):
			return LayerSocket, because
		case v.Step != StepConnect && v.Step != StepAnswer:
			return LayerPacket, because
		}
	}
	return "", ""
}

// byRoute: the routing table gives the very same error.
func (v view) byRoute() (Layer, string) {
	if v.Step != StepConnect || v.Errno == "" || v.Route != v.Errno {
		return "", ""
	}
	return LayerNetwork, fmt.Sprintf("the routing table says the same of the address (%s)", v.Route)
}

// byNotice: an ICMP error came back, and its sender is known. A closed port of
// TCP answers with a reset, so only a rule says that it is unreachable.
func (v view) byNotice() (Layer, string) {
	if v.ICMP == "" || v.Sender == "" {
		return "", ""
	}
	sender, err := netip.ParseAddr(v.Sender)
	if err != nil {
		return "", ""
	}
	notice := fmt.Sprintf("ICMP %q came back from %s", v.ICMP, v.Sender)
	to, _ := netip.ParseAddrPort(v.address())
	switch {
	case !slices.Contains(v.around.Addresses, sender) && sender != to.Addr():
		return LayerNetwork, notice + ", which is neither the target nor this node"
	case v.ICMP == hostUnreachable || sender == to.Addr():
		return "", "" // no neighbour, a closed port, or a rule
	}
	return LayerPacket, notice + ", an address of this node: a rule on packets refuses it here"
}

// byCall: the call itself said no, which neither a peer nor a rule on packets
// can bring about.
func (v view) byCall() (Layer, string) {
	if v.Step != StepConnect || v.From == FromOutside || v.noPrograms() {
		return "", ""
	}
	if v.exempt != nil && v.From != FromExempt && v.exempt.Works() && v.host == v.Result {
		return LayerSocket, "a socket that the programs are told to leave alone is answered"
	}
	if v.mayBeRouting() {
		return "", ""
	}
	if v.outside != nil && v.outside.Errno != v.Errno && v.sameOnHost() {
		return LayerSocket, fmt.Sprintf("connect() itself says %s, and outside of the programs' cgroup it says %s", v.Errno, v.outside.words())
	}
	if len(v.direct) > 0 && len(v.failing()) == 0 {
		return LayerSocket, fmt.Sprintf("connect() itself says %s before a packet is sent, and the same process may dial %s", v.Errno, targets(v.direct))
	}
	return "", ""
}

// mayBeRouting says that routing to an address makes errors of this kind, be it
// to one that a program has put in the target's place.
func (v view) mayBeRouting() bool { return v.Errno != "EPERM" && v.Errno != "ECONNREFUSED" }

// noPrograms says that there is surely no program that sees the call.
func (v view) noPrograms() bool { return v.around.ProgramsKnown && len(v.onHook()) == 0 }

// sameOnHost says that the host meets the same, so that what is known of it
// holds for a pod, too.
func (v view) sameOnHost() bool {
	return v.host != nil && v.host.Step == v.Step && v.host.Errno == v.Errno
}

func (v view) failing() []*Result {
	var failing []*Result
	for _, d := range v.direct {
		if !d.Works() {
			failing = append(failing, d)
		}
	}
	return failing
}

// byBackends: those behind the Service are well, dialled from the same place.
// That some are well says nothing of others.
func (v view) byBackends() (Layer, string) {
	if len(v.direct) == 0 || len(v.failing()) > 0 || len(v.direct) < v.around.Backends[v.Service] {
		return "", ""
	}
	if v.Step == StepConnect && !v.mayBeRouting() && v.noPrograms() {
		return "", ""
	}
	return LayerService, fmt.Sprintf("from the same place all its backends answer: %s", targets(v.direct))
}

// byHost: the host reaches what a pod does not. Of a Service that holds only if
// the pod does not reach those behind it either.
func (v view) byHost() (Layer, string) {
	isPod := strings.HasPrefix(v.From, FromPod) || strings.HasPrefix(v.From, "namespace ")
	if !isPod || v.host == nil || !v.host.Works() || v.Step == StepAnswer {
		return "", ""
	}
	if v.Purpose.Direct() == "" {
		return LayerNetwork, "from the host it answers, so what lies between the pod and the host's network does not let it pass: the pod network, or a policy"
	}
	if len(v.direct) == 0 || len(v.failing()) < len(v.direct) {
		return "", ""
	}
	return LayerNetwork, fmt.Sprintf("from the host it answers, and from here %s do not answer either: the pod network, or a policy", targets(v.direct))
}

// byHandshake: somebody at the address accepted the connection, and it is no
// Service's.
func (v view) byHandshake() (Layer, string) {
	if v.Step != StepAnswer || v.Purpose.Direct() != "" || v.Outcome == Timeout {
		return "", ""
	}
	return LayerBackend, "somebody there accepted the connection, or answered"
}

// wouldTell says what is known, and what would tell more.
func (v view) wouldTell() []string {
	because := []string{}
	say := func(format string, args ...any) { because = append(because, fmt.Sprintf(format, args...)) }
	if v.ICMP != "" {
		say("ICMP %q came back from %s: nobody is there, or a rule says so", v.ICMP, v.Sender)
	}
	if v.Outcome == Refused && v.Step == StepHandshake && v.ICMP == "" {
		say("a reset came back: nobody listens at the port, or a rule answers in its name; the counters of such rules on the way would tell")
	}
	if v.Purpose.Direct() != "" {
		v.sayOfBackends(say)
	}
	if v.Step == StepConnect && v.From != FromOutside {
		for _, p := range v.onHook() {
			say("%s may say so", p)
		}
		if v.noPrograms() && !v.mayBeRouting() {
			say("no program is on this hook: the log of a security module would tell (dmesg, journalctl -k)")
		}
		if v.outside == nil && v.around.NothingOutside != "" {
			say("the same dial from outside of the programs' cgroup would tell: %s", v.around.NothingOutside)
		}
	}
	if v.Outcome == Timeout {
		say("nobody said anything: a capture on the target's node would tell whether packets arrive there")
	}
	return because
}

func (v view) sayOfBackends(say func(string, ...any)) {
	failing := v.failing()
	switch {
	case len(v.direct) == 0:
		say("none of its backends was tried; a dial of one from the same place would tell")
	case len(failing) == len(v.direct):
		say("from the same place its backends do not answer either, so it is not the Service alone: %s", targets(failing))
	case len(failing) > 0:
		say("from the same place some of its backends do not answer, and it may lead to these: %s", targets(failing))
	default:
		say("from the same place %d of its %d backends answer; the others were not tried", len(v.direct), v.around.Backends[v.Service])
	}
}

// words are an outcome in few words.
func (r *Result) words() string {
	if r.Errno != "" {
		return r.Errno
	}
	return string(r.Outcome)
}

// targets lists the first few.
func targets(results []*Result) string {
	const few = 3
	var names []string
	for _, r := range results[:min(len(results), few)] {
		names = append(names, r.Target)
	}
	if more := len(results) - few; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
