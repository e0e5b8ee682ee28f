// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/impact"
	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

func TestVerdicts(t *testing.T) {
	gc := by("system:serviceaccount:kube-system:generic-garbage-collector")
	for _, tt := range []struct {
		name    string
		enforce bool
		delete  string
		changes []change
		verdict string
		says    []string // parts of warnings
		silent  bool
	}{
		{"what nobody uses goes without a word", true, "ClusterRole/unused", nil, allowed, nil, true},
		{"what breaks something is told", false, "ClusterRole/cilium", nil, warned, []string{"Outage: ", "cilium"}, false},
		{"and denied where the guard enforces", true, "ClusterRole/cilium", nil, denied, nil, false},
		{"an object in a guarded namespace is guarded", true, "Service/shop/web", nil, denied, nil, false},
		{"unless it says otherwise", true, "Service/shop/spared", nil, warned, []string{"Breaks: "}, false},
		{"an object that is not guarded is only warned of", true, "ClusterRole/free", nil, warned, []string{"Breaks: "}, false},
		{"the annotation has it go, and is repeated", true, "ClusterRole/cilium", []change{annotated("moving to Calico")}, overridden, []string{"ClusterRole cilium goes anyway, as its annotation says: moving to Calico", "Outage: "}, false},
		{"an empty annotation says nothing", true, "ClusterRole/cilium", []change{annotated(" ")}, denied, nil, false},
		{"the garbage collector finishes what somebody began", true, "ClusterRole/cilium", []change{gc}, controller, nil, true},
		{"the namespace controller does", true, "Service/shop/web", []change{by("system:serviceaccount:kube-system:namespace-controller")}, controller, nil, true},
		{"an account of that name elsewhere does not", true, "Service/shop/web", []change{by("system:serviceaccount:shop:namespace-controller")}, denied, nil, false},
		{"a kubelet ends its pods", true, "Pod/kube-system/cilium-x", []change{by("system:node:n1", "system:nodes")}, controller, nil, true},
		{"what is going already needs no second judgement", true, "ClusterRole/cilium", []change{object(func(m *metav1.PartialObjectMetadata) { m.DeletionTimestamp = new(metav1.Now()) })}, controller, nil, true},
		{"a dry run is judged too", true, "ClusterRole/cilium", []change{dryRun}, denied, nil, false},
		{"what is no delete is not judged", true, "ClusterRole/cilium", []change{func(_ testing.TB, r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }}, unjudged, []string{"not judged"}, false},
		{"nor is a request without the object", true, "ClusterRole/cilium", []change{func(_ testing.TB, r *admissionv1.AdmissionRequest) { r.OldObject.Raw = nil }}, unjudged, []string{"not judged: the request has no ClusterRole"}, false},
		{"or with something else in its place", true, "ClusterRole/cilium", []change{func(_ testing.TB, r *admissionv1.AdmissionRequest) { r.OldObject.Raw = []byte(`{"rules":7}`) }}, unjudged, []string{"not judged: reading the ClusterRole"}, false},
		{"a kind that no judge reads is judged by its name", true, "ClusterRole/unused", []change{func(_ testing.TB, r *admissionv1.AdmissionRequest) {
			r.Resource = metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
		}}, allowed, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.enforce, clusterYAML)
			have := g.delete(t, tt.delete, tt.changes...)
			if verdict := have.AuditAnnotations["verdict"]; verdict != tt.verdict || have.Allowed == (tt.verdict == denied) {
				t.Errorf("verdict %s, allowed %v: %+v\n%s", verdict, have.Allowed, have, g.log)
			}
			if have.UID == "" || !strings.Contains(g.log.String(), `"verdict":"`+tt.verdict+`"`) {
				t.Errorf("the answer is to %q; log:\n%s", have.UID, g.log)
			}
			for _, part := range tt.says {
				if !told(have.Warnings, part) {
					t.Errorf("no warning has %q: %q", part, have.Warnings)
				}
			}
			if tt.silent && len(have.Warnings) > 0 {
				t.Errorf("it warns: %q", have.Warnings)
			}
		})
	}
}

func TestARefusalSaysWhyAndHowToGoOn(t *testing.T) {
	for name, command := range map[string]string{
		"ClusterRole/cilium": "kubectl annotate clusterrole cilium fairlead.io/delete-anyway=REASON",
		"Service/shop/web":   "kubectl annotate service web -n shop fairlead.io/delete-anyway=REASON",
	} {
		t.Run(name, func(t *testing.T) {
			have := newRig(t, true, clusterYAML).delete(t, name)
			message := have.Result.Message
			if !strings.HasSuffix(message, "; to delete it anyway, say why: "+command) || strings.Contains(message, "\n") || have.Result.Code != 403 {
				t.Errorf("%d %s", have.Result.Code, message)
			}
			worst := have.AuditAnnotations["severity"] + ": " + have.AuditAnnotations["consequence"]
			if len(worst) < 20 || !strings.HasPrefix(message, worst[:20]) {
				t.Errorf("%q does not begin with %q", message, worst)
			}
		})
	}
}

// A request to delete a whole collection is asked about object by object, and
// names none of them.
func TestOfACollectionTheObjectIsNamed(t *testing.T) {
	r := newRig(t, true, clusterYAML)
	have := r.delete(t, "Service/shop/web", func(_ testing.TB, r *admissionv1.AdmissionRequest) { r.Name = "" })
	if have.Allowed || !strings.Contains(have.Result.Message, "kubectl annotate service web -n shop ") || !strings.Contains(r.log.String(), `"object":"Service shop/web"`) {
		t.Errorf("%+v\n%s", have.Result, r.log)
	}
}

// Admission sees one delete at a time.
func TestTheSecondOfTwoBindingsIsTheLast(t *testing.T) {
	t.Run("the first goes with a word on the other", func(t *testing.T) {
		have := newRig(t, true, clusterYAML).delete(t, "ClusterRoleBinding/cilium")
		if !have.Allowed || !told(have.Warnings, "ClusterRoleBinding cilium-too is then the last that gives ClusterRole cilium to ServiceAccount kube-system/cilium") {
			t.Errorf("%+v", have)
		}
	})
	t.Run("the second is refused although no watch has told that the first is gone", func(t *testing.T) {
		g := newRig(t, true, clusterYAML)
		g.delete(t, "ClusterRoleBinding/cilium")
		if have := g.delete(t, "ClusterRoleBinding/cilium-too"); have.Allowed {
			t.Errorf("%+v", have)
		}
		t.Run("and what the first one breaks is not put down to a third", func(t *testing.T) {
			if have := g.delete(t, "ClusterRole/unused"); have.AuditAnnotations["verdict"] != allowed {
				t.Errorf("%+v", have)
			}
		})
		t.Run("and a refused one counts as there", func(t *testing.T) {
			g := newRig(t, true, clusterYAML)
			g.delete(t, "ClusterRole/cilium") // refused
			if have := g.delete(t, "ClusterRoleBinding/cilium"); !have.Allowed {
				t.Errorf("%+v", have)
			}
		})
	})
	t.Run("a dry run takes nothing away", func(t *testing.T) {
		g := newRig(t, true, clusterYAML)
		g.delete(t, "ClusterRoleBinding/cilium", dryRun)
		if have := g.delete(t, "ClusterRoleBinding/cilium-too"); !have.Allowed {
			t.Errorf("%+v", have)
		}
	})
	t.Run("of two at the same time at most one is let go", func(t *testing.T) {
		for range 20 {
			g := newRig(t, true, clusterYAML)
			var answers [2]*admissionv1.AdmissionResponse
			var both sync.WaitGroup
			for i, name := range []string{"ClusterRoleBinding/cilium", "ClusterRoleBinding/cilium-too"} {
				asked := request(t, g.state, name)
				both.Go(func() { answers[i] = g.Review(asked) })
			}
			both.Wait()
			if answers[0].Allowed && answers[1].Allowed {
				t.Fatalf("%+v\n%+v", answers[0], answers[1])
			}
		}
	})
}

func TestDepartures(t *testing.T) {
	s := impacttest.State(t, clusterYAML)
	uid := func(name string) types.UID { return impacttest.Roots(t, s, name)[0].UID }
	start := time.Now()
	for _, tt := range []struct {
		name string
		do   func(d *departures)
		want string
	}{
		{"what was allowed counts as gone", func(d *departures) { d.add(uid("ClusterRole/cilium"), start) }, "[ClusterRole cilium]"},
		{"for a while", func(d *departures) { d.add(uid("ClusterRole/cilium"), start.Add(-remembered-time.Second)) }, "[]"},
		{"but for the one that is judged", func(d *departures) { d.add(uid("ClusterRole/free"), start) }, "[]"},
		{"once, however often it is asked for", func(d *departures) { d.add(uid("ClusterRole/cilium"), start); d.add(uid("ClusterRole/cilium"), start) }, "[ClusterRole cilium]"},
		{"until it is withdrawn", func(d *departures) { d.add(uid("ClusterRole/cilium"), start); d.withdraw(uid("ClusterRole/cilium")) }, "[]"},
		{"or the watches say that it is gone", func(d *departures) { d.add("another one of that name", start) }, "[]"},
		{"the oldest are forgotten when there are too many", func(d *departures) {
			d.add(uid("ClusterRole/cilium"), start)
			for i := range mostRemembered {
				d.add(types.UID(fmt.Sprint("uid ", i)), start)
			}
		}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &departures{}
			tt.do(d)
			if have := fmt.Sprint(d.among(s, uid("ClusterRole/free"), start)); have != tt.want {
				t.Errorf("%s, want %s", have, tt.want)
			}
		})
	}
}

func TestBursts(t *testing.T) {
	t.Run("from the fifth delete in a row on, a user is asked whether they mean it", func(t *testing.T) {
		g := newRig(t, false, clusterYAML)
		for n := 1; n <= burstSize+1; n++ {
			have := g.delete(t, "ClusterRole/unused")
			if burst := told(have.Warnings, fmt.Sprintf("%d deletes by ann within 10s", n)); burst != (n >= burstSize) {
				t.Errorf("delete %d: %q", n, have.Warnings)
			}
		}
		if n := strings.Count(g.log.String(), "a burst of deletes"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if have := g.delete(t, "ClusterRole/unused", by("bob")); len(have.Warnings) > 0 {
			t.Errorf("another user: %q", have.Warnings)
		}
	})
	t.Run("deletes long ago do not count, and users who are quiet are forgotten", func(t *testing.T) {
		var b bursts
		start := time.Now()
		for i := range tidyUsers {
			b.note(fmt.Sprint("user ", i), start)
		}
		if n := b.note("user 7", start.Add(burstLength+time.Second)); n != 1 || len(b.byUser) != 1 {
			t.Errorf("%d deletes, %d users", n, len(b.byUser))
		}
	})
}

// broken is a View in which a defect shows.
type broken struct{ known }

func (broken) With(*impact.Object) *impact.State { panic("index out of range") }

// Nobody is kept from their cluster by a guard that does not know, or broke.
func TestAGuardThatCannotJudgeAllows(t *testing.T) {
	s := impacttest.State(t, clusterYAML)
	t.Run("before it has read all objects", func(t *testing.T) {
		g := rigOf(known{s, errNotSynced}, s, true)
		if have := g.delete(t, "ClusterRole/cilium"); !have.Allowed || !told(have.Warnings, "this delete is not judged: it has not yet read all objects") {
			t.Errorf("%+v", have)
		}
	})
	t.Run("when it has not heard of a kind for long", func(t *testing.T) {
		g := rigOf(known{s, errors.New("it has not heard of pods since 12:00")}, s, true)
		if have := g.delete(t, "ClusterRole/cilium"); !have.Allowed || have.AuditAnnotations["why"] == "" {
			t.Errorf("%+v", have)
		}
	})
	t.Run("when a judge has a defect, which the log shows", func(t *testing.T) {
		g := rigOf(broken{known{state: s}}, s, true)
		have := g.delete(t, "ClusterRole/cilium", object(func(m *metav1.PartialObjectMetadata) { m.UID = "a new one" }))
		if !have.Allowed || have.AuditAnnotations["verdict"] != unjudged || !strings.Contains(g.log.String(), "index out of range") {
			t.Errorf("%+v\n%s", have, g.log)
		}
	})
}

// What was created or changed a moment ago is judged as the request has it.
func TestTheRequestKnowsBetterThanTheWatches(t *testing.T) {
	full := impacttest.State(t, clusterYAML)
	behind := impact.NewState(full.Now)
	for o := range full.All() {
		if o.Name != "cilium" || o.Resource.GroupResource() != impact.ClusterRoles {
			behind.Add(o)
		}
	}
	g := rigOf(known{state: behind}, full, true)
	if have := g.delete(t, "ClusterRole/cilium"); have.Allowed {
		t.Errorf("%+v", have)
	}
}

func TestCascade(t *testing.T) {
	for options, want := range map[string]impact.Cascade{
		``:                                    impact.Background,
		`{}`:                                  impact.Background,
		`{"propagationPolicy":"Orphan"}`:      impact.Orphan,
		`{"orphanDependents":true}`:           impact.Orphan,
		`{"propagationPolicy":"Foreground"}`:  impact.Foreground,
		`{"propagationPolicy":"Background"}`:  impact.Background,
		`{"propagationPolicy":["Background"]`: impact.Background,
	} {
		r := &review{AdmissionRequest: &admissionv1.AdmissionRequest{Options: runtime.RawExtension{Raw: []byte(options)}}}
		if have := r.cascade(); have != want {
			t.Errorf("%s: %s, want %s", options, have, want)
		}
	}
}

func TestStrangersTextIsPrintable(t *testing.T) {
	g := newRig(t, false, clusterYAML)
	have := g.delete(t, "ClusterRole/cilium", annotated("gone\x1b[2J\nWarning: all is well "+strings.Repeat("é", 500)))
	for _, text := range append(have.Warnings, have.AuditAnnotations["reason"]) {
		if strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%q", text)
		}
	}
	for _, w := range have.Warnings {
		if n := len([]rune(w)); n > longestWarning {
			t.Errorf("%d letters: %s", n, w)
		}
	}
}
