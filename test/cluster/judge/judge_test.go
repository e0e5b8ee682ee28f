// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	stopped = "kube-apiserver"
	other   = "kube-apiserver-2"
)

var pod = Client{Name: "n1", Target: "https://kubernetes.default.svc"}

var start = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// harmless are the facts of a round in which nobody noticed anything: the
// server is asked to stop after 20 s, the address is missing from 20.1 to 26 s.
func harmless() Facts {
	f := Facts{
		Rounds: []Round{{
			Stopped: stopped, Asked: at(20), Emptied: at(20.1), Killed: at(20.5), Serving: at(22),
			Returned: at(26), Ended: at(80), Ready: at(86),
		}},
		Clients:  []Client{pod},
		Renewals: map[string][]time.Time{},
		End:      at(100),
	}
	for second := range 100 {
		f.Lines = append(f.Lines, Line{Attempt: &Attempt{Client: pod, Time: at(float64(second)), Took: 5 * time.Millisecond, Server: other, Status: 200}})
	}
	for second := 0; second < 100; second += 10 {
		f.Renewals["n1"] = append(f.Renewals["n1"], at(float64(second)))
	}
	f.Lines = append(f.Lines, watch(95, func(*Watch) {}))
	f.Looks = []Look{{"n1", at(20), SawForwarding}, {"n1", at(20.2), SawRetained}, {"n1", at(20.6), SawNobody}, {"n1", at(21), SawNothing}, {"n1", at(22), SawRetained}}
	return f
}

func attempt(seconds float64, change func(*Attempt)) Line {
	a := Attempt{Client: pod, Time: at(seconds), Took: time.Millisecond, Server: other, Status: 200}
	change(&a)
	return Line{Attempt: &a}
}

func watch(ended float64, change func(*Watch)) Line {
	w := Watch{Client: pod, Opened: at(0), Ended: at(ended), Server: other, Events: 7, Silent: 4 * time.Second}
	change(&w)
	return Line{Watch: &w}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Facts)
		want   []string // how the findings begin or go on
	}{
		"nobody noticed anything": {func(*Facts) {}, nil},
		"a refused connection": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(21, func(a *Attempt) { *a = Attempt{Client: pod, Time: a.Time, Stage: StageConnect, Error: "refused"} }))
		}, []string{"n1: the connection to https://kubernetes.default.svc at 10:00:21.000 failed (connect): refused"}},
		"a connection that the stopping server closes before it answers": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(20, func(a *Attempt) { a.Server, a.Status, a.Stage, a.Error = stopped, 0, StageRequest, "EOF" }))
		}, nil},
		"a connection that another server closes": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(20, func(a *Attempt) { a.Status, a.Stage, a.Error = 0, StageRequest, "EOF" }))
		}, []string{"at 10:00:20.000 failed (request): EOF"}},
		"a connection that the server closes before it is asked to stop": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(19, func(a *Attempt) { a.Server, a.Status, a.Stage, a.Error = stopped, 0, StageRequest, "EOF" }))
		}, []string{"at 10:00:19.000 failed (request): EOF"}},
		"a server that starts and knows no roles yet": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(84, func(a *Attempt) { a.Server, a.Status = stopped, 403 }))
		}, nil},
		"a server that forbids": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(84, func(a *Attempt) { a.Status = 403 }), attempt(87, func(a *Attempt) { a.Server, a.Status = stopped, 403 }))
		}, []string{other + " said 403", stopped + " said 403"}},
		"a connection that had to be tried again": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(22, func(a *Attempt) { a.Took = 3 * time.Second }))
		}, []string{"took 3s while default/kubernetes was empty"}},
		"a connection to a server that is starting": {func(f *Facts) {
			f.Lines = append(f.Lines, attempt(81, func(a *Attempt) { a.Server, a.Took = stopped, 4*time.Second }))
		}, nil},
		"a watch that ended in time": {func(f *Facts) { f.Lines = append(f.Lines, watch(50, func(*Watch) {})) }, nil},
		"a watch that ended with its server": {func(f *Facts) {
			f.Lines = append(f.Lines, watch(80.5, func(w *Watch) { w.Server, w.Error = stopped, "unexpected EOF" }))
		}, nil},
		"a watch that was reset": {func(f *Facts) {
			f.Lines = append(f.Lines, watch(50, func(w *Watch) { w.Error = "reset" }))
		}, []string{"n1: the watch at https://kubernetes.default.svc broke at 10:00:50.000: reset"}},
		"a watch that saw nothing": {func(f *Facts) {
			f.Lines = append(f.Lines, watch(50, func(w *Watch) { w.Silent = time.Minute }))
		}, []string{"saw nothing for 1m0s before 10:00:50.000"}},
		"a client that gave up":       {func(f *Facts) { f.Lines = append(f.Lines[:50:50], f.Lines[100]) }, []string{"n1 asked https://kubernetes.default.svc last at 10:00:49.000"}},
		"nobody who watches":          {func(f *Facts) { f.Lines = f.Lines[:100] }, []string{"no client held a watch"}},
		"a client that never was":     {func(f *Facts) { f.Clients = append(f.Clients, Client{"n2", "x"}) }, []string{"n2 never asked x"}},
		"a lease that is late":        {func(f *Facts) { f.Renewals["n1"][3] = at(35.5) }, []string{"n1: its kubelet did not renew its lease for 15.5s"}},
		"a lease that ends":           {func(f *Facts) { f.Renewals["n1"] = f.Renewals["n1"][:5] }, []string{"n1: its kubelet did not renew its lease for 1m0s"}},
		"no lease at all":             {func(f *Facts) { f.Renewals = nil }, []string{"no kubelet renewed its lease"}},
		"a node that is lost":         {func(f *Facts) { f.Unready = []Unready{{"n1", at(60), "gone"}} }, []string{"n1 was not Ready at 10:01:00.000: gone"}},
		"a proxy that refuses":        {func(f *Facts) { f.Looks[0].Saw = SawRefusing }, []string{"n1: the row of default/kubernetes had nowhere to go at 10:00:20.000"}},
		"rows that were not retained": {func(f *Facts) { f.Looks = f.Looks[:1] }, []string{"n1: no row was seen to be retained in round 1"}},
		"a gap too short to be seen":  {func(f *Facts) { f.Looks, f.Rounds[0].Serving, f.Rounds[0].Returned = f.Looks[:1], at(20.3), at(20.4) }, nil},
		"rows that nobody looked at":  {func(f *Facts) { f.Looks = nil }, []string{"nobody looked at the rows"}},
		"a proxy that is not healthy": {func(f *Facts) { f.Ill = map[string]string{"n1": "drift"} }, []string{"n1: drift"}},
		"proxies that met no gap":     {func(f *Facts) { f.Rounds[0].Serving = at(27) }, []string{"in no round did a proxy start while default/kubernetes was empty"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := harmless()
			c.change(&facts)
			got := Judge(facts)
			if len(got.Findings) != len(c.want) || got.Good() != (len(c.want) == 0) {
				t.Fatalf("found %q, want %q", got.Findings, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got.Findings[i], want) {
					t.Errorf("found %q, want %q", got.Findings[i], want)
				}
			}
		})
	}
}

func TestTheNumbers(t *testing.T) {
	f := harmless()
	f.Lines = append(f.Lines,
		attempt(21, func(a *Attempt) { a.Took = time.Second }),
		attempt(22, func(a *Attempt) { a.Status, a.Stage, a.Error = 0, StageConnect, "refused" }),
		attempt(81, func(a *Attempt) { a.Server, a.Took = stopped, 4*time.Second }),
		attempt(84, func(a *Attempt) { a.Server, a.Status = stopped, 403 }),
		watch(50, func(*Watch) {}),
		watch(80, func(w *Watch) { w.Server, w.Error = stopped, "EOF" }))
	got := Judge(f)
	want := Result{
		Rounds:      []RoundResult{{Stopped: stopped, Window: 5.9, Serving: 1.5, Connections: 7, Failed: 1, Retained: 2}},
		Connections: 104, Failed: 1, Closed: 1, Unserved: 1, Slowest: 4, SlowestInWindow: 1,
		Watches: 3, Events: 21, LeaseGaps: map[string]float64{"n1": 10},
		Findings: got.Findings,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	path := filepath.Join(t.TempDir(), "result.json")
	if err := got.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := Load(path)
	if diff := cmp.Diff(got, read); err != nil || diff != "" {
		t.Errorf("what is read is not what was saved: %v %s", err, diff)
	}
}

func TestMoreOfAKindAreCounted(t *testing.T) {
	f := harmless()
	for range 9 {
		f.Unready = append(f.Unready, Unready{"n1", at(60), "gone"})
	}
	got := Judge(f).Findings
	if len(got) != maxFindings+1 || got[maxFindings] != "and 4 more like these" {
		t.Errorf("found %q", got)
	}
}

func TestSummary(t *testing.T) {
	good := Judge(harmless())
	if got := good.Summary(); !strings.HasSuffix(got, "nobody noticed\n") || !strings.Contains(got, "n1 10.0 s") {
		t.Errorf("summary of a good result:\n%s", got)
	}
	bad := good
	bad.Findings = []string{"n1: drift"}
	if got := bad.Summary(); !strings.HasSuffix(got, "found:\n  n1: drift\n") {
		t.Errorf("summary of a bad result:\n%s", got)
	}
}

func TestReadLines(t *testing.T) {
	written := []Line{attempt(1, func(*Attempt) {}), watch(2, func(*Watch) {})}
	var text bytes.Buffer
	for _, line := range written {
		if err := json.NewEncoder(&text).Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadLines(strings.NewReader(text.String() + `{"attempt":{"nam`))
	if diff := cmp.Diff(written, got); err != nil || diff != "" {
		t.Errorf("with a line that is being written: %v %s", err, diff)
	}
	for _, bad := range []string{"no line\n", "{}\n", `{"attempt":{},"watch":{}}` + "\n"} {
		if got, err := ReadLines(strings.NewReader(bad)); err == nil {
			t.Errorf("ReadLines(%q) = %v, want an error", bad, got)
		}
	}
}

func FuzzReadLines(f *testing.F) {
	f.Add(`{"attempt":{"time":"2026-11-20T10:00:00Z","status":200}}` + "\n" + `{"watch":{"error":"EOF"}}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := ReadLines(strings.NewReader(text))
		if err != nil {
			return
		}
		if len(lines) != strings.Count(text, "\n") {
			t.Errorf("%d lines of %q", len(lines), text)
		}
		Judge(Facts{Lines: lines})
	})
}
