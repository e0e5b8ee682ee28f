// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

const objects = `apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: DaemonSet
  metadata: {name: cilium, namespace: kube-system}
  spec:
    selector: {matchLabels: {k8s-app: cilium}}
    template:
      metadata: {labels: {k8s-app: cilium}}
      spec: {serviceAccountName: cilium, containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v1.17.3"}]}
  status: {desiredNumberScheduled: 2}
- apiVersion: v1
  kind: Pod
  metadata: {name: cilium-a, namespace: kube-system, labels: {k8s-app: cilium}}
  spec: {nodeName: n2, serviceAccountName: cilium, containers: [{name: cilium-agent}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: cilium-b, namespace: kube-system, labels: {k8s-app: cilium}}
  spec: {nodeName: n1, serviceAccountName: cilium, containers: [{name: cilium-agent}]}
  status:
    initContainerStatuses: [{name: config, ready: false, restartCount: 3, image: x, imageID: sha, state: {waiting: {reason: CrashLoopBackOff}}}]
- apiVersion: v1
  kind: Pod
  metadata: {name: cilium-of-another, namespace: elsewhere, labels: {k8s-app: cilium}}
  spec: {nodeName: n1, serviceAccountName: second, containers: [{name: cilium-agent}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: kube-proxy-n1, namespace: kube-system, annotations: {kubernetes.io/config.mirror: x}}
  spec: {nodeName: n1, serviceAccountName: other, containers: [{name: kube-proxy}]}
- apiVersion: v1
  kind: Pod
  metadata: {name: web, namespace: shop}
  spec: {nodeName: n1, containers: [{name: web}]}
`

var noon = time.Date(2026, time.January, 3, 12, 0, 0, 0, time.UTC)

func caseOf(made time.Time, logs ...evidence.Record) *facts.Case {
	records := []evidence.Record{{Path: "1/objects/_all.yaml", Kind: evidence.Objects, Sample: 1, Time: noon, Content: []byte(objects)}}
	return facts.Read(&evidence.Bundle{Made: made, Records: append(records, logs...)})
}

func log(pod, container string, lines ...string) evidence.Record {
	return evidence.Record{
		Path: "logs/" + pod + container, Kind: evidence.Log, Pod: pod, Container: container, Time: noon, Content: []byte(strings.Join(lines, "\n") + "\n"),
	}
}

func TestOf(t *testing.T) {
	var got []string
	for _, p := range Of(caseOf(noon).Last().Objects) {
		got = append(got, fmt.Sprintf("%s %s %q %v own=%v wanted=%d", p.ID, p.Name(), p.Workload, p.Nodes(), p.OwnAccount, p.Wanted()))
	}
	want := []string{
		`cilium-agent kube-system/cilium "daemonset/cilium" [n1 n2] own=true wanted=2`,
		`cilium-agent elsewhere/second "" [n1] own=true wanted=1`,
		`kube-proxy kube-system/other "" [n1] own=false wanted=1`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("have\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSpeaker(t *testing.T) {
	known := Of(caseOf(noon).Last().Objects)
	for name, tt := range map[string]struct {
		pod, container string
		all            []Part
		want           string // "" is nobody
	}{
		"a pod that is among the objects, in any of its containers": {"kube-system/cilium-a", "config", known, "kube-system/cilium"},
		"a pod that is gone, by its container":                      {"kube-system/cilium-old", "cilium-agent", known, "kube-system/cilium"},
		"a pod of another account":                                  {"elsewhere/cilium-of-another", "cilium-agent", known, "elsewhere/second"},
		"without objects the installer's names count":               {"kube-system/kube-proxy-x", "kube-proxy", nil, "kube-system/kube-proxy"},
		"CoreDNS is known by its labels, or by its pod's name":      {"kube-system/coredns-6f8-a", "coredns", nil, "kube-system/coredns"},
		"a CoreDNS of somebody's own":                               {"shop/resolver-a", "coredns", nil, ""},
		"a log of which only the container is known":                {"", "cilium-agent", nil, "kube-system/cilium"},
		"a log of which nothing is known":                           {"", "", known, ""},
		"a pod of a user's":                                         {"shop/web", "web", known, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, is := Speaker(tt.all, &facts.Log{Pod: tt.pod, Container: tt.container})
			if is != (tt.want != "") || is && p.Name() != tt.want {
				t.Errorf("%v %s, want %q", is, p.Name(), tt.want)
			}
		})
	}
}

func TestRecent(t *testing.T) {
	at := func(before time.Duration) string { return noon.Add(-before).Format(time.RFC3339) }
	const running, crashing = "kube-system/cilium-a", "kube-system/cilium-b"
	for name, tt := range map[string]struct {
		made  time.Time
		logs  []evidence.Record
		want  string
		dated bool
	}{
		"what a running pod said three minutes ago is over": {
			noon, []evidence.Record{log(running, "cilium-agent", at(3*time.Minute)+" old", at(time.Minute)+" new")}, "2", true,
		},
		"what a pod said that waits for its next start is not over for six": {
			noon, []evidence.Record{log(crashing, "config", at(7*time.Minute)+" old", at(5*time.Minute)+" new")}, "2", true,
		},
		"a line without a time is as old as the one before": {
			noon, []evidence.Record{log(running, "cilium-agent", "first", at(time.Hour)+" old", "also old", at(time.Minute)+" new", "also new")}, "4 5", true,
		},
		"without any time all lines are taken, and that is said": {
			noon, []evidence.Record{log(running, "cilium-agent", "first", "second")}, "1 2", false,
		},
		"where only files say when it was, the newest line of all logs is now": {
			time.Time{}, []evidence.Record{log(running, "cilium-agent", at(61*time.Minute)+" new"), log("shop/web", "web", at(time.Hour)+" newest")}, "1", true,
		},
		"where only files say when it was, a log that ended long before others is over": {
			time.Time{}, []evidence.Record{log(running, "cilium-agent", at(90*time.Minute)+" old"), log("shop/web", "web", at(time.Hour)+" newest")}, "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := caseOf(tt.made, tt.logs...)
			lines, dated := Recent(c, c.Logs[0])
			var got []string
			for _, l := range lines {
				got = append(got, fmt.Sprint(l.Number))
			}
			if strings.Join(got, " ") != tt.want || dated != tt.dated {
				t.Errorf("lines %v, dated %v; want %s, %v", got, dated, tt.want, tt.dated)
			}
		})
	}
}

func TestLasts(t *testing.T) {
	line := func(seconds int) facts.Line { return facts.Line{Time: noon.Add(time.Duration(seconds) * time.Second)} }
	for name, tt := range map[string]struct {
		lines []facts.Line
		want  bool
	}{
		"no line":                           {nil, false},
		"one line":                          {[]facts.Line{line(0)}, false},
		"several lines of one moment":       {[]facts.Line{line(0), line(1), {}, line(4)}, false},
		"lines of more than a moment":       {[]facts.Line{{}, line(0), line(4), line(12)}, true},
		"lines that do not say when it was": {[]facts.Line{{}, {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if Lasts(tt.lines) != tt.want {
				t.Errorf("%v", !tt.want)
			}
		})
	}
}

func TestPermissions(t *testing.T) {
	user := rbac.ServiceAccount("kube-system", "cilium")
	review := func(sample int, allowed bool) evidence.Record {
		return evidence.Record{Path: fmt.Sprint(sample), Kind: evidence.Access, Sample: sample, Time: noon, Content: fmt.Appendf(nil,
			`{"kind":"List","items":[{"spec":{"user":%q,"resourceAttributes":{"verb":"list","resource":"pods"}},"status":{"allowed":%v}}]}`, user.Name, allowed)}
	}
	roles := func(resource string) evidence.Record {
		return evidence.Record{Path: resource, Kind: evidence.Objects, Sample: 1, Time: noon, Resources: []string{resource + ".rbac.authorization.k8s.io"}, Content: []byte(`{"kind":"List","apiVersion":"v1","items":[]}`)}
	}
	list := rbac.Request{Verb: "list", Resource: "pods"}
	for name, tt := range map[string]struct {
		records    []evidence.Record
		may, known bool
	}{
		"nothing is known without roles and reviews":        {nil, false, false},
		"some of the roles say nothing":                     {[]evidence.Record{roles("clusterroles")}, false, false},
		"all of the roles say what they do not allow":       {[]evidence.Record{roles("clusterroles"), roles("clusterrolebindings")}, false, true},
		"another authorizer may allow what no role does":    {[]evidence.Record{roles("clusterroles"), roles("clusterrolebindings"), review(1, true)}, true, true},
		"without roles a review alone says it":              {[]evidence.Record{review(1, false)}, false, true},
		"of two answers the one of the newer sample counts": {[]evidence.Record{review(1, false), review(2, true)}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			may, known := PermissionsOf(caseOf(noon, tt.records...)).May(user, list)
			if may != tt.may || known != tt.known {
				t.Errorf("may %v, known %v; want %v, %v", may, known, tt.may, tt.known)
			}
		})
	}
}
