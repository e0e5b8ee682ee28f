// SPDX-License-Identifier: Apache-2.0

package soak

import "testing"

// The suite is worth what its ledger promises, so the ledger has cases of its
// own.
func TestLedger(t *testing.T) {
	const web = "default/web"
	write := func(usable ...string) func(*ledger) {
		return func(l *ledger) { l.write(web, state{usable: usable}) }
	}
	drain := func(draining string, usable ...string) func(*ledger) {
		return func(l *ledger) { l.write(web, state{usable: usable, draining: []string{draining}}) }
	}
	interrupt := func(l *ledger) { l.interrupt(web) }
	settle := (*ledger).settle

	for _, c := range []struct {
		name           string
		before, during []func(*ledger)
		promised       bool
		may, stayed    string // servers, by one letter each
		mayNot, left   string
	}{
		{
			name:   "a Service that was settled with endpoints is promised, and by these alone",
			before: []func(*ledger){write("a", "b"), settle}, promised: true,
			may: "ab", mayNot: "c", stayed: "ab", left: "c",
		},
		{
			name:   "one that was written since the last quiet point may not be served yet",
			before: []func(*ledger){write("a")}, may: "a", left: "a",
		},
		{
			name:   "a change before the attempt: the agent may be at either state",
			before: []func(*ledger){write("a"), settle, write("b")}, promised: true,
			may: "ab", mayNot: "c", left: "ab",
		},
		{
			name:   "a change during the attempt: it may meet either state",
			before: []func(*ledger){write("a", "b"), settle}, during: []func(*ledger){write("b", "c")}, promised: true,
			may: "abc", mayNot: "d", stayed: "b", left: "ac",
		},
		{
			name:   "an endpoint that drains takes no new connections, and keeps open ones (R9)",
			before: []func(*ledger){drain("a", "b"), settle}, promised: true,
			may: "b", mayNot: "a", stayed: "ab", left: "c",
		},
		{
			name:   "once a Service was empty it may fail, though it is not any more",
			before: []func(*ledger){write("a"), settle, write(), write("a")}, may: "a", left: "a",
		},
		{
			name:   "a quiet point ends what was before",
			before: []func(*ledger){write("a"), write(), write("b"), settle}, promised: true,
			may: "b", mayNot: "a", stayed: "b", left: "a",
		},
		{
			name:   "an attempt over a quiet point may have met what was before it",
			before: []func(*ledger){write("a"), settle, write("b")}, during: []func(*ledger){settle}, promised: true,
			may: "ab", left: "ab",
		},
		{
			name:   "an interrupted Service may fail, and answers from its endpoints only",
			before: []func(*ledger){write("a"), settle, interrupt}, may: "a", mayNot: "b", left: "a",
		},
		{
			name:   "an interruption ends with the next quiet point",
			before: []func(*ledger){write("a"), interrupt, settle}, promised: true, may: "a", stayed: "a",
		},
		{
			name:   "whoever interrupts all means this one, too",
			before: []func(*ledger){write("a"), settle}, during: []func(*ledger){func(l *ledger) { l.interrupt() }}, may: "a", left: "a",
		},
		{
			name:   "an interruption of another Service is none of this one's",
			before: []func(*ledger){write("a"), settle, func(l *ledger) { l.interrupt("default/other") }}, promised: true, may: "a", stayed: "a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			for _, do := range c.before {
				do(l)
			}
			a := l.begin(web)
			for _, do := range c.during {
				do(l)
			}
			if got := a.promised(); got != c.promised {
				t.Errorf("promised: %v, want %v", got, c.promised)
			}
			for _, one := range []struct {
				what    string
				says    func(string) bool
				servers string
				want    bool
			}{
				{"may answer", a.may, c.may, true},
				{"may answer", a.may, c.mayNot, false},
				{"stayed", a.stayed, c.stayed, true},
				{"stayed", a.stayed, c.left, false},
			} {
				for _, server := range one.servers {
					if got := one.says(string(server)); got != one.want {
						t.Errorf("%c %s: %v, want %v", server, one.what, got, one.want)
					}
				}
			}
		})
	}
}
