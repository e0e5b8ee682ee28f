// SPDX-License-Identifier: Apache-2.0

package agentdown

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

var (
	errRefused = errors.New("dial unix /run/fairlead/agent.sock: connect: connection refused")
	errNoPod   = errors.New(`Internal error occurred: unable to upgrade connection: container not found ("fairlead")`)
	errHangs   = errors.New(`Get "http://127.0.0.1:10249/proxyMode": context deadline exceeded`)
)

const (
	kernel  = `{"schemaVersion": 1, "frontends": []}`
	healthy = `{"schemaVersion": 1, "healthy": true, "node": "n1", "started": "2026-01-03T09:00:00Z"}`
	unwell  = `{"schemaVersion": 1, "healthy": false, "node": "n1", "started": "2026-01-03T09:00:00Z", "findings": ["no list of Services yet"]}`
	young   = `{"schemaVersion": 1, "healthy": false, "node": "n1", "started": "2026-01-03T11:59:30Z", "findings": ["no list of Services yet"]}`
	ipvs    = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\nTCP  10.254.0.1:443 rr\n  -> 10.235.192.47:6443           Masq    1      2          0\n"
	proxyOf = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "net", "name": "proxy-7", "labels": {"k8s-app": "kube-proxy"}}, "spec": {"nodeName": "n1", "serviceAccountName": "kp", "containers": [{"name": "kube-proxy", "command": ["kube-proxy"]}]}}`
)

// said is what one command printed, or why it did not.
type said struct {
	kind evidence.Kind
	text string
	err  error
}

func read(samples ...[]said) *facts.Case {
	b := &evidence.Bundle{Made: time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)}
	for n, all := range samples {
		for _, s := range all {
			r := evidence.Record{Path: string(s.kind), Kind: s.kind, Node: "n1", Command: string(s.kind), Sample: n + 1, Time: b.Made, Content: []byte(s.text)}
			if s.err != nil {
				r.Error = s.err.Error()
			}
			b.Records = append(b.Records, r)
		}
	}
	return facts.Read(b)
}

func TestCheck(t *testing.T) {
	maps := said{kind: evidence.FairleadKernel, text: kernel}
	status := func(text string) said { return said{kind: evidence.FairleadStatus, text: text} }
	refused := said{kind: evidence.FairleadStatus, err: errRefused}
	rules := said{kind: evidence.Dump, text: ipvs}
	mode := func(err error) said { return said{kind: evidence.KubeProxyMode, err: err} }
	replaced := said{kind: evidence.FairleadStatus, err: errNoPod}
	pod := said{kind: evidence.Objects, text: proxyOf}
	for name, test := range map[string]struct {
		samples [][]said
		want    []string // subject, certainty and title
		remedy  string
	}{
		"an agent that answers is well": {samples: [][]said{{maps, status(healthy)}, {maps, status(healthy)}}},
		"an agent that never answers, while its maps are there": {
			samples: [][]said{{maps, refused}, {maps, refused}},
			want:    []string{"kube-system/fairlead confirmed: Fairlead's agent does not answer on its node"}, remedy: "systemctl restart fairlead",
		},
		"what one sample shows is suspected": {
			samples: [][]said{{maps, refused}}, want: []string{"kube-system/fairlead suspected: Fairlead's agent does not answer on its node"},
		},
		"an agent that was just replaced answers once":      {samples: [][]said{{maps, refused}, {maps, status(healthy)}}},
		"where maps were not read either, nothing is known": {samples: [][]said{{refused}, {refused}}},
		"an agent that complains each time": {
			samples: [][]said{{maps, status(unwell)}, {maps, status(unwell)}},
			want:    []string{"kube-system/fairlead confirmed: Fairlead's agent says that it is not healthy"},
		},
		"an agent that complains once recovers":                  {samples: [][]said{{maps, status(unwell)}, {maps, status(healthy)}}},
		"an agent that was just started may not be well yet":     {samples: [][]said{{maps, status(young)}, {maps, status(young)}}},
		"a pod that is just replaced asks nobody":                {samples: [][]said{{maps, replaced}, {maps, replaced}}},
		"a sample in which it was not asked tells of no silence": {samples: [][]said{{maps, refused}, {maps}}},
		"a sample without maps neither shows nor denies": {
			samples: [][]said{{maps, refused}, {replaced}}, want: []string{"kube-system/fairlead suspected: Fairlead's agent does not answer on its node"},
		},
		"a kube-proxy that hangs": {
			samples: [][]said{{rules, mode(errHangs), pod}, {rules, mode(errHangs), pod}},
			want:    []string{"net/kp confirmed: kube-proxy does not answer on its node"}, remedy: "kubectl --namespace net delete pod proxy-7",
		},
		"a kube-proxy that refuses may answer elsewhere": {samples: [][]said{{rules, mode(errRefused)}, {rules, mode(errRefused)}}},
	} {
		t.Run(name, func(t *testing.T) {
			report := doctor.Examine(read(test.samples...), []doctor.Check{Check()})
			var have []string
			for _, f := range report.Causes {
				have = append(have, f.Subject+" "+f.Certainty.String()+": "+f.Title)
				if test.remedy != "" && !slices.Contains(f.Remedy[0].Commands, test.remedy) {
					t.Errorf("the remedy is %q, want %q", f.Remedy[0].Commands, test.remedy)
				}
			}
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Error(diff)
			}
		})
	}
}
