// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	vip     = "10.15.1.8:443/TCP"
	backend = "169.254.128.7:60002/TCP"
	service = "default/kubernetes-intranet"
)

// at makes a result of an API server's address.
func at(from string, purpose Purpose, target string, fail func(*Result)) Result {
	r := Result{Purpose: purpose, Target: target, Service: service, From: from, Outcome: OK}
	if fail != nil {
		fail(&r)
	}
	return r
}

func says(outcome Outcome, step Step, errno string) func(*Result) {
	return func(r *Result) { r.Outcome, r.Step, r.Errno = outcome, step, errno }
}

func routed(errno string) func(*Result) {
	return func(r *Result) { r.Outcome, r.Step, r.Errno, r.Route = NetUnreachable, StepConnect, errno, errno }
}

func noticed(text, sender string) func(*Result) {
	return func(r *Result) {
		r.Outcome, r.Step, r.Errno, r.ICMP, r.Sender = Refused, StepHandshake, "ECONNREFUSED", text, sender
	}
}

func TestJudge(t *testing.T) {
	notPermitted := says(NotPermitted, StepConnect, "EPERM")
	refusedByCall := says(Refused, StepConnect, "ECONNREFUSED")
	refused := says(Refused, StepHandshake, "ECONNREFUSED")
	silent := says(Timeout, StepHandshake, "")
	reset := says(Reset, StepAnswer, "ECONNRESET")
	pod := "pod default/client"
	cilium := Around{
		Programs:       []Program{{"connect4", "cil_sock4_connect", "/sys/fs/cgroup", 7}, {"connect6", "cil_sock6_connect", "/sys/fs/cgroup", 8}},
		ProgramsKnown:  true,
		NothingOutside: "the programs are at the root",
		Addresses:      []netip.Addr{netip.MustParseAddr("10.0.0.5")},
		Backends:       map[string]int{service: 1},
	}
	with := func(change func(*Around)) Around {
		a := cilium
		change(&a)
		return a
	}
	counted := func(layer Layer, address string) Around {
		return with(func(a *Around) {
			a.Moved = []Counter{{Name: "the counter", Layer: layer, Count: 1, Address: netip.MustParseAddrPort(address)}}
		})
	}
	for _, c := range []struct {
		name    string
		results []Result // the first is judged
		around  Around
		want    Layer
		because []string
	}{
		{"not permitted inside and silent outside is the programs of the cgroup, which are named",
			[]Result{at(FromHost, APIService, vip, notPermitted), at(FromOutside, APIService, vip, silent)},
			cilium, LayerSocket, []string{"EPERM", "outside", `program 7 "cil_sock4_connect" on connect4`}},
		{"not permitted by the call itself, while the backend may be dialled, is the programs",
			[]Result{at(FromHost, APIService, vip, notPermitted), at(FromHost, APIDirect, backend, nil)},
			cilium, LayerSocket, []string{backend, "cil_sock4_connect"}},
		{"not permitted, and nothing to compare it with, cannot be told",
			[]Result{at(FromHost, APIService, vip, notPermitted)},
			cilium, LayerUnknown, []string{"none of its backends was tried", "may say so", "the programs are at the root"}},
		{"not permitted inside and outside alike is not the programs of this cgroup",
			[]Result{at(FromHost, APIService, vip, notPermitted), at(FromOutside, APIService, vip, notPermitted)},
			cilium, LayerUnknown, nil},
		{"not permitted where no program is on the hook cannot be told",
			[]Result{at(FromHost, APIService, vip, notPermitted), at(FromHost, APIDirect, backend, nil)},
			with(func(a *Around) { a.Programs = nil }), LayerUnknown, []string{"security module"}},
		{"refused by the call itself, though an exempt socket is answered, is the programs",
			[]Result{at(FromHost, APIService, vip, refusedByCall), at(FromExempt, APIService, vip, nil)},
			cilium, LayerSocket, []string{"leave alone"}},
		{"a pod that meets what the host meets from the programs meets them",
			[]Result{at(pod, APIService, vip, notPermitted), at(FromHost, APIService, vip, notPermitted), at(FromOutside, APIService, vip, silent)},
			cilium, LayerSocket, []string{"outside"}},
		{"a pod that meets another error than the host is not judged by the host",
			[]Result{at(pod, APIService, vip, refusedByCall), at(FromHost, APIService, vip, notPermitted), at(FromOutside, APIService, vip, silent)},
			cilium, LayerUnknown, nil},
		{"a counter of the programs that moved names them",
			[]Result{at(FromHost, APIService, vip, says(HostUnreachable, StepConnect, "EHOSTUNREACH"))},
			counted(LayerSocket, "10.15.1.8:443"), LayerSocket, []string{"the counter went up by 1"}},
		{"a counter of another address tells nothing",
			[]Result{at(FromHost, APIService, vip, refusedByCall)},
			counted(LayerSocket, "10.15.1.9:443"), LayerUnknown, nil},
		{"a counter of another port tells nothing",
			[]Result{at(FromHost, APIService, vip, refusedByCall)},
			counted(LayerSocket, "10.15.1.8:80"), LayerUnknown, nil},
		{"a rule on packets cannot have made the call itself fail",
			[]Result{at(FromHost, APIService, vip, refusedByCall)},
			counted(LayerPacket, "10.15.1.8:0"), LayerUnknown, nil},
		{"a rule on packets whose counter moved has dropped it",
			[]Result{at(FromHost, APIService, vip, silent)},
			counted(LayerPacket, "10.15.1.8:0"), LayerPacket, []string{"the counter"}},
		{"what the routing table says as well is the network",
			[]Result{at(FromHost, APIDirect, backend, routed("ENETUNREACH"))},
			cilium, LayerNetwork, []string{"routing table"}},
		{"a notice of this node that a port of TCP is unreachable is a rule",
			[]Result{at(FromHost, APIService, vip, noticed(portUnreachable, "10.0.0.5"))},
			cilium, LayerPacket, []string{"an address of this node"}},
		{"a notice of another machine is the network",
			[]Result{at(FromHost, APIService, vip, noticed("administratively prohibited", "192.0.2.1"))},
			cilium, LayerNetwork, []string{"neither the target nor this node"}},
		{"a notice that the target itself sent cannot be told from a closed port",
			[]Result{at(FromHost, APIService, vip, noticed(portUnreachable, "10.15.1.8"))},
			cilium, LayerUnknown, []string{"nobody is there, or a rule"}},
		{"silence at the Service while all its backends answer is the Service layer",
			[]Result{at(FromHost, APIService, vip, silent), at(FromHost, APIDirect, backend, nil)},
			cilium, LayerService, []string{backend}},
		{"that some of its backends answer says nothing of others",
			[]Result{at(FromHost, APIService, vip, silent), at(FromHost, APIDirect, backend, nil)},
			with(func(a *Around) { a.Backends = map[string]int{service: 3} }), LayerUnknown, []string{"1 of its 3 backends"}},
		{"backends that answer from another place say nothing",
			[]Result{at(pod, APIService, vip, silent), at(FromHost, APIDirect, backend, nil)},
			cilium, LayerUnknown, []string{"none of its backends was tried"}},
		{"a Service that fails as its backends do is not to blame",
			[]Result{at(FromHost, APIService, vip, silent), at(FromHost, APIDirect, backend, silent)},
			cilium, LayerUnknown, []string{"not the Service alone", "a capture"}},
		{"a backend that is silent to a pod and answers the host is the network",
			[]Result{at(pod, APIDirect, backend, silent), at(FromHost, APIDirect, backend, nil)},
			cilium, LayerNetwork, []string{"from the host it answers"}},
		{"a Service that is silent to a pod with all its backends, and answers the host, is the network",
			[]Result{at(pod, APIService, vip, silent), at(pod, APIDirect, backend, silent), at(FromHost, APIService, vip, nil)},
			cilium, LayerNetwork, []string{"pod network, or a policy"}},
		{"a Service that is silent to a pod alone cannot be told without its backends",
			[]Result{at(pod, APIService, vip, silent), at(FromHost, APIService, vip, nil)},
			cilium, LayerUnknown, nil},
		{"a backend that resets what it accepted is the backend",
			[]Result{at(FromHost, APIDirect, backend, reset)},
			cilium, LayerBackend, []string{"accepted"}},
		{"a Service that resets while its backend answers leads elsewhere",
			[]Result{at(FromHost, APIService, vip, reset), at(FromHost, APIDirect, backend, nil)},
			cilium, LayerService, nil},
		{"a reset in place of a handshake may be a closed port or a rule",
			[]Result{at(FromHost, APIDirect, backend, refused)},
			cilium, LayerUnknown, []string{"a reset came back"}},
		{"what could not be tried elsewhere is no difference",
			[]Result{at(FromHost, APIService, vip, notPermitted), at(FromOutside, APIService, vip, says(Failed, "", ""))},
			cilium, LayerUnknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(c.results, c.around)[0]
			if got.Layer != c.want {
				t.Fatalf("layer %q, want %q: %q", got.Layer, c.want, got.Because)
			}
			said := strings.Join(got.Because, "\n")
			for _, words := range c.because {
				if !strings.Contains(said, words) {
					t.Errorf("%q is not said in %q", words, said)
				}
			}
		})
	}
}

func TestJudgeNeverGuesses(t *testing.T) {
	errnos := []string{"", "EPERM", "EACCES", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"}
	draw := func(t *rapid.T, from string) Result {
		return at(from, APIService, vip, says(
			rapid.SampledFrom([]Outcome{OK, NotPermitted, Refused, HostUnreachable, NetUnreachable, Reset, Timeout, BadAnswer, Failed}).Draw(t, "outcome"),
			rapid.SampledFrom([]Step{StepConnect, StepHandshake, StepSend, StepAnswer}).Draw(t, "step"),
			rapid.SampledFrom(errnos).Draw(t, "errno")))
	}
	rapid.Check(t, func(t *rapid.T) {
		alone := draw(t, rapid.SampledFrom([]string{FromHost, FromOutside, FromExempt, "pod a/b"}).Draw(t, "from"))
		got := Judge([]Result{alone}, Around{})[0]
		if !alone.Fails() && got.Layer != "" {
			t.Fatalf("%+v did not fail, and %s is said to have answered", alone, got.Layer)
		}
		if alone.Fails() && (got.Layer != LayerUnknown || len(got.Because) == 0) {
			t.Fatalf("of a Service's address alone, with nothing known around it, %s is said, because %q", got.Layer, got.Because)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		host := draw(t, FromHost)
		same := host
		same.From = FromOutside
		if got := Judge([]Result{host, same}, Around{})[0]; got.Layer == LayerSocket {
			t.Fatalf("the same comes of it outside of the programs' cgroup, and they are said to have answered: %q", got.Because)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		results := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Result {
			return draw(t, rapid.SampledFrom([]string{FromHost, FromOutside, FromExempt, "pod a/b"}).Draw(t, "from"))
		}), 0, 5).Draw(t, "results")
		before := slices.Clone(results)
		Judge(results, Around{})
		if !slices.EqualFunc(before, results, func(a, b Result) bool { return a.Layer == b.Layer && len(a.Because) == len(b.Because) }) {
			t.Fatal("what was judged was changed")
		}
	})
}
