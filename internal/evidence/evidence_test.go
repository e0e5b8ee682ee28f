// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var when = time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)

const lbList = "SERVICE ADDRESS     BACKEND ADDRESS (REVNAT_ID) (SLOT)\n10.0.0.10:80/TCP (0)   0.0.0.0:0 (1) (0) [ClusterIP, non-routable]\n"

const services = "apiVersion: v1\nkind: List\nitems: []\n"

// folder is one whose files are of one time.
func folder(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text), ModTime: when, Mode: 0o600}
	}
	return out
}

// summary is what matters of records, a line each.
func summary(b *Bundle) string {
	var lines []string
	for _, r := range b.Records {
		line := fmt.Sprintf("%d %s %s", r.Sample, r.Kind, r.Path)
		for _, more := range []string{r.Node, r.Pod, r.Container, strings.Join(r.Resources, ","), r.Command, r.Error} {
			line += "|" + more
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestLayout(t *testing.T) {
	b, err := Load(folder(map[string]string{
		"1/objects/services.json":                        services,
		"1/objects/endpointslices.discovery.k8s.io.yaml": services,
		"1/objects/_some.yaml":                           services,
		"1/nodes/node.a/cilium-endpoints.txt":            "ENDPOINT   POLICY (ingress)\n",
		"1/nodes/node.a/dump-cilium-maps.txt":            lbList,
		"2/nodes/node.a/dump.txt":                        lbList,
		"2/nodes/node.a/notes.txt":                       "hello",
		"1/version.json":                                 `{"gitVersion":"v1.35.4"}`,
		"logs/node.a/kube-system_cilium-x2_agent.log":    "one\n",
		"logs/-/kube-system_coredns-5d_coredns.log":      "",
		"events.json":                                    "{}",
		"README":                                         "what this is",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := `0 events events.json||||||fairlead events -o json|
0 log logs/-/kube-system_coredns-5d_coredns.log||kube-system/coredns-5d|coredns||kubectl logs -n kube-system coredns-5d -c coredns|
0 log logs/node.a/kube-system_cilium-x2_agent.log|node.a|kube-system/cilium-x2|agent||kubectl logs -n kube-system cilium-x2 -c agent|
1 cilium-endpoints 1/nodes/node.a/cilium-endpoints.txt|node.a||||cilium-dbg endpoint list|
1 dump 1/nodes/node.a/dump-cilium-maps.txt|node.a||||cilium-dbg bpf lb list|
1 objects 1/objects/_some.yaml|||||cat _some.yaml|
1 objects 1/objects/endpointslices.discovery.k8s.io.yaml||||endpointslices.discovery.k8s.io|kubectl get endpointslices.discovery.k8s.io --all-namespaces -o json|
1 objects 1/objects/services.json||||services|kubectl get services --all-namespaces -o json|
1 version 1/version.json|||||kubectl version|
2 dump 2/nodes/node.a/dump.txt|node.a||||cilium-dbg bpf lb list|`
	want = strings.ReplaceAll(want, "events.json||||||", "events.json|||||")
	if diff := cmp.Diff(want, summary(b)); diff != "" {
		t.Error(diff)
	}
	if len(b.Warnings) != 2 || !b.Records[3].Time.Equal(when) {
		t.Errorf("warnings %q, time %s", b.Warnings, b.Records[3].Time)
	}
}

func TestFoldersWithoutLayout(t *testing.T) {
	b, err := Load(folder(map[string]string{
		"mine/a.txt":         "$ cilium bpf lb list\n" + lbList,
		"mine/endpoints":     "ENDPOINT   POLICY (ingress)   POLICY (egress)   IDENTITY\n1   Enabled   Enabled   5\n",
		"mine/agent.log":     "time=\"2026-01-03T12:00:00Z\" level=info\n",
		"mine/objects.yaml":  "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
		"mine/kproxy":        "Kubernetes v1.35.4\n",
		"mine/photo.jpg":     "\xff\xd8\xff\xe0\x00\x10JFIF",
		"mine/shopping.txt":  "milk\n",
		"mine/services.json": `{"apiVersion": "v1", "kind": "List", "items": []}`,
		"mine/conntrack.txt": "nf_conntrack_count=1\nnf_conntrack_max=2\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Kind{}
	for _, r := range b.Records {
		got[r.Path] = r.Kind
	}
	want := map[string]Kind{"a.txt": Dump, "endpoints": CiliumEndpoints, "agent.log": Log, "objects.yaml": Objects, "kproxy": KubeProxyVersion, "services.json": Objects, "conntrack.txt": Conntrack}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(b.Warnings) != 2 {
		t.Errorf("warnings: %q", b.Warnings)
	}
}

func TestLogsThatSomebodySaved(t *testing.T) {
	b, err := Load(folder(map[string]string{
		"kube-system_cilium-qsj2r_config.log": "time=2026-01-03T23:17:16Z level=info\nError: Build config failed: failed to start\n",
		"cilium-agent.log":                    "level=info\n",
		"of monday (1).log":                   "level=info\n",
		"a_b_$(reboot).log":                   "level=info\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"0 log a_b_$(reboot).log|||||cat 'a_b_$(reboot).log'|",
		"0 log cilium-agent.log|||cilium-agent||cat cilium-agent.log|",
		"0 log kube-system_cilium-qsj2r_config.log||kube-system/cilium-qsj2r|config||kubectl logs -n kube-system cilium-qsj2r -c config|",
		"0 log of monday (1).log|||||cat 'of monday (1).log'|",
	}, "\n")
	if diff := cmp.Diff(want, summary(b)); diff != "" {
		t.Errorf("a log says by its name who wrote it, and may end with an error:\n%s", diff)
	}
	if len(b.Warnings) > 0 {
		t.Errorf("a log is left out: %q", b.Warnings)
	}
}

func TestTablesOfKubectlSayWhatToSaveInTheirPlace(t *testing.T) {
	b, err := Load(folder(map[string]string{
		"svc.txt":   "$ kubectl -n default get svc\nNAME         TYPE        CLUSTER-IP    EXTERNAL-IP   PORT(S)   AGE\nkubernetes   ClusterIP   192.168.0.1   <none>        443/TCP   11d\n",
		"lb.txt":    lbList,
		"notes.txt": "the NAME and its AGE are not known\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"notes.txt is left out: nothing says what it is", "svc.txt is left out: it is a table of kubectl, which leaves most out: save it with -o yaml"}
	if diff := cmp.Diff(want, b.Warnings); diff != "" {
		t.Error(diff)
	}
}

func TestTimesOfATextAreItsOwn(t *testing.T) {
	const text = "# time 1: 2026-01-03T23:18:00Z\n# time 2: 2026-01-03T23:18:10Z\n# time 3: 2026-01-03T23:18:20Z\n" +
		"-- 1/nodes/n1/cilium-status.txt --\nKubernetes: Ok\n" +
		"-- 2/nodes/n1/cilium-status.txt --\nKubernetes: Ok\n" +
		"-- logs/n1/kube-system_cilium-kddvm_cilium-agent.log --\nlevel=info\n"
	b, err := ParseText([]byte(text), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range b.Records {
		got[r.Path] = r.Time.UTC().Format(time.RFC3339)
	}
	want := map[string]string{
		"1/nodes/n1/cilium-status.txt":                      "2026-01-03T23:18:00Z",
		"2/nodes/n1/cilium-status.txt":                      "2026-01-03T23:18:10Z",
		"logs/n1/kube-system_cilium-kddvm_cilium-agent.log": "2026-01-03T23:18:10Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a log is as old as the last sample, not as the file that holds it:\n%s", diff)
	}
}

func TestNamesThatAreNone(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"a node in a path":        {"1/nodes/$(id)/dump.txt": lbList},
		"a pod in a path":         {"logs/a/x_;id;_y.log": "one\n"},
		"a node in an index":      {index: `{"format":1,"records":[{"path":"1/x","kind":"dump","node":"a b"}]}`, "1/x": lbList},
		"a resource in an index":  {index: `{"format":1,"records":[{"path":"1/x","kind":"objects","resources":["a;b"]}]}`, "1/x": services},
		"a sample that is none":   {index: `{"format":1,"records":[{"path":"1/x","kind":"dump","sample":-1}]}`, "1/x": lbList},
		"a sample that is beyond": {index: `{"format":1,"records":[{"path":"1/x","kind":"dump","sample":1000000000}]}`, "1/x": lbList},
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := Load(folder(files)); err == nil {
				t.Errorf("%s", summary(b))
			}
		})
	}
}

func TestIndex(t *testing.T) {
	b, err := Load(folder(map[string]string{
		index: `{"format":1,"made":"2026-01-03T12:00:00Z","by":"1.0","records":[
{"path":"1/a","kind":"dump","node":"n1","sample":1,"command":"iptables-save","time":"2026-01-03T12:00:01Z"},
{"path":"1/b","kind":"dump","node":"n2","sample":1,"command":"iptables-save","error":"it ran out of time"},
{"path":"1/c","kind":"dump","node":"n3","sample":1,"command":"iptables-save"}]}`,
		"1/a": lbList, "1/nodes/n9/dump.txt": lbList,
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := "1 dump 1/a|n1||||iptables-save|\n1 dump 1/b|n2||||iptables-save|it ran out of time\n1 dump 1/c|n3||||iptables-save|it is not in the archive"
	if diff := cmp.Diff(want, summary(b)); diff != "" {
		t.Error(diff)
	}
	if len(b.Warnings) != 1 || !b.Made.Equal(when) || b.By != "1.0" {
		t.Errorf("warnings %q, made %s by %s", b.Warnings, b.Made, b.By)
	}
}

func TestSniff(t *testing.T) {
	for text, want := range map[string]Kind{
		"ID   LABELS\n1    reserved:host\n":                                            CiliumIdentities,
		`[{"id": 1, "labels": ["reserved:host"], "labelsSHA256": "x"}]`:                CiliumIdentities,
		`[{"id": 3098, "status": {"external-identifiers": {"pod-name": "a/b"}}}]`:      CiliumEndpoints,
		"KVStore:                 Disabled   \nKubernetes:              Ok\n":          CiliumStatus,
		`{"kube-proxy-replacement": {"mode": "True"}}`:                                 CiliumStatus,
		"Client: 1.18.5 0a1b2c3d 2025-12-01 go version go1.24 linux/amd64\n":           CiliumVersion,
		"cilium_bpf_map_pressure{map_name=\"lb4_services_v2\"} 0.1\n":                  CiliumMetrics,
		"Metric   Labels   Value\ncilium_x\n":                                          CiliumMetrics,
		"#### Read-only configurations ####\nARPPingKernelManaged : true\n":            CiliumConfig,
		"net.netfilter.nf_conntrack_count = 12\n":                                      Conntrack,
		"Kubernetes v1.35.4\n":                                                         KubeProxyVersion,
		`{"major": "1", "gitVersion": "v1.35.4"}`:                                      Version,
		"Client Version: v1.30.0\nServer Version: v1.32.5\n":                           Version,
		`{"kind":"List","items":[{"kind":"SubjectAccessReview"}]}`:                     Access,
		"# mine\nkind: Service\napiVersion: v1\n":                                      Objects,
		`{"apiVersion":"v1","kind":"List","items":[]}`:                                 Objects,
		`{"schemaVersion":1,"nodePortAddresses":[]}`:                                   FairleadStatus,
		`{"schemaVersion":1,"pinPath":"/sys/fs/bpf/fairlead","layout":1,"entries":[]}`: FairleadKernel,
		`[{"address":"10.0.0.1","port":80,"service":"a/b","portName":"http"}]`:         FairleadFrontends,
		`[{"purpose":"peer","outcome":"ok","because":[]}]`:                             Probes,
		"E0103 11:59:58.500000       1 reflector.go:1] Failed\n":                       Log,
		"level=error time=\"2026-01-03T12:00:00Z\" msg=x\n":                            Log,
		`time="2026-01-03T12:00:00Z" level=error`:                                      Log,
		"2026-01-03T12:00:00.1Z panic: x\n":                                            Log,
		lbList:                                                                         Dump,
		"milk, bread and honey\n":                                                      Unknown,
	} {
		r := Record{Path: "x.txt", Content: []byte(text)}
		if r.sniff(); r.Kind != want {
			t.Errorf("%q is taken for %s, not for %s", text, r.Kind, want)
		}
	}
}

func TestAVersionIsWhoseItSays(t *testing.T) {
	for text, want := range map[string]Kind{
		"Client: 1.18.5 0a1b2c3d 2025-12-01 go version go1.24 linux/amd64\n": CiliumVersion,
		"Kubernetes v1.35.4\n":                    KubeProxyVersion,
		`{"major": "1", "gitVersion": "v1.35.4"}`: Version,
		"1.35": Version,
	} {
		r := Record{Path: "version.txt", Content: []byte(text)}
		if r.sniff(); r.Kind != want {
			t.Errorf("%q in version.txt is taken for %s, not for %s", text, r.Kind, want)
		}
	}
}

func TestOutputsThatAreNone(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a shell that has no such command", "sh: 1: cilium-dbg: not found\n", "sh: 1: cilium-dbg: not found"},
		{"bash", "bash: line 1: cilium: command not found", "bash: line 1: cilium: command not found"},
		{"a server's refusal", "Error from server (Forbidden): services is forbidden\n", "Error from server (Forbidden): services is forbidden"},
		{"no server", "Unable to connect to the server: dial tcp 10.15.1.8:443: connect: operation not permitted", "Unable to connect to the server: dial tcp 10.15.1.8:443: connect: operation not permitted"},
		{"a container without the program", `OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`, `OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`},
		{"a command that ended too early", lbList + "command terminated with exit code 137\n", "command terminated with exit code 137"},
		{"nothing", " \n", "it is empty"},
		{"no text", "\x00\x01", "it is no text"},
		{"a table", lbList, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := Load(folder(map[string]string{"1/nodes/a/dump.txt": tt.text}))
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Records[0].Error; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestEncodings(t *testing.T) {
	utf16 := func(order string, text string) string {
		out := order
		for _, r := range text {
			if order == "\xff\xfe" {
				out += string([]byte{byte(r), byte(r >> 8)})
			} else {
				out += string([]byte{byte(r >> 8), byte(r)})
			}
		}
		return out
	}
	for name, text := range map[string]string{
		"UTF-8": "näm\n", "UTF-8 with a mark": "\xef\xbb\xbfnäm\n", "UTF-16, as PowerShell writes it": utf16("\xff\xfe", "näm\r\n"),
		"UTF-16, the other way round": utf16("\xfe\xff", "näm\n"), "Latin-1": "n\xe4m\n", "lines of Windows": "näm\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := plainText([]byte(text))
			if string(got) != "näm\n" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	t.Run("a log with zeros, as a crash leaves them", func(t *testing.T) {
		b, err := Load(folder(map[string]string{"logs/a/x_y_z.log": "one\n\x00\x00\x00two\n"}))
		if err != nil || string(b.Records[0].Content) != "one\ntwo\n" || b.Records[0].Error != "" {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("UTF-8 that was cut within a letter", func(t *testing.T) {
		got, err := plainText([]byte("näm\xc3"))
		if string(got) != "näm\uFFFD" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}
