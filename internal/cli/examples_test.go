// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files with what the program prints now")

const examplesDir = "../../examples"

// view is an example as one node sees it, and the flows to trace there.
type view struct {
	name  string // of the golden files
	files string
	args  []string
	flows string
}

const (
	clusterCIDRs = "10.0.0.0/16,fd00:10::/56"
	pod          = "10.0.1.20"
	outside      = "192.0.2.99"
)

// flow is one element of a --flows file.
func flow(from, to string) string { return `{"from":"` + from + `","to":"` + to + `"}` }

func flowList(flows ...string) string { return "[" + strings.Join(flows, ",") + "]" }

func onNode(name string, more ...string) []string {
	return append([]string{"--node-name", name}, more...)
}

var views = []view{
	{"clusterip", "clusterip.yaml", onNode("n1"), flowList(
		flow(pod, "10.96.0.80:80"), flow("10.0.1.7", "10.96.0.80:80"), flow(outside, "10.96.0.80:80"),
		flow(pod, "10.0.2.7:8080"))},
	{"nodeport", "nodes.yaml,nodeport.yaml", onNode("n1"), flowList(
		flow(outside, "172.20.0.11:30080"), flow(pod, "172.20.0.11:30080"), flow("172.20.0.11", "127.0.0.1:30080"),
		flow(pod, "127.0.0.1:30080"), flow(pod, "172.20.0.12:30080"))},
	{"loadbalancer-source-ranges", "nodes.yaml,loadbalancer-source-ranges.yaml", onNode("n1"), flowList(
		flow("198.51.100.7", "203.0.113.10:443"), flow("203.0.113.200", "203.0.113.10:443"), flow(outside, "203.0.113.10:443"),
		flow(pod, "203.0.113.10:443"), flow("172.20.0.11", "203.0.113.10:443"), flow(outside, "172.20.0.11:30443"),
		flow(pod, "10.96.0.82:443"), flow("198.51.100.7", "203.0.113.11:443"))},
	{"external-ip", "external-ip.yaml", onNode("n1"), flowList(
		flow(outside, "198.51.100.20:4317"), flow(pod, "198.51.100.20:4317"))},
	{"external-ip-disabled", "external-ip.yaml", onNode("n1", "--disable-external-ips"), flowList(
		flow(outside, "198.51.100.20:4317"), flow(pod, "10.96.0.83:4317"))},
	{"dual-stack", "nodes.yaml,dual-stack.yaml", onNode("n1"), flowList(
		flow(pod, "10.96.0.84:80"), flow("fd00:10::1:20", "[fd00:10:96::84]:80"),
		flow(outside, "172.20.0.11:30084"), flow("2001:db8::1", "[fd00:20::11]:30084"))},
	{"session-affinity", "session-affinity.yaml", onNode("n1"), flowList(flow(pod, "10.96.0.85:80"))},
	{"internal-traffic-policy-local-n1", "nodes.yaml,internal-traffic-policy-local.yaml", onNode("n1"), flowList(
		flow(pod, "10.96.0.86:514"), flow(pod, "172.20.0.11:30514"))},
	{"internal-traffic-policy-local-n3", "nodes.yaml,internal-traffic-policy-local.yaml", onNode("n3"), flowList(
		flow(pod, "10.96.0.86:514"), flow(outside, "172.20.0.13:30514"))},
	{"external-traffic-policy-local-n1", "nodes.yaml,external-traffic-policy-local.yaml", onNode("n1"), flowList(
		flow(outside, "203.0.113.20:80"), flow(pod, "203.0.113.20:80"), flow("172.20.0.11", "198.51.100.21:80"),
		flow(outside, "172.20.0.11:30087"), flow(outside, "10.96.0.87:80"))},
	{"external-traffic-policy-local-n2", "nodes.yaml,external-traffic-policy-local.yaml", onNode("n2"), flowList(
		flow(outside, "203.0.113.20:80"), flow(pod, "203.0.113.20:80"), flow(outside, "172.20.0.12:30087"), flow(pod, "10.96.0.87:80"))},
	{"topology-zones-north", "nodes.yaml,topology-zones.yaml", onNode("n1"), flowList(flow(pod, "10.96.0.88:9000"))},
	{"topology-zones-moved", "nodes.yaml,topology-zones.yaml", onNode("n1", "--node-label", "topology.kubernetes.io/zone=south"), flowList(flow(pod, "10.96.0.88:9000"))},
	{"topology-zones-west", "nodes.yaml,topology-zones.yaml", onNode("n9", "--node-label", "topology.kubernetes.io/zone=west"), flowList(flow(pod, "10.96.0.88:9000"))},
	{"terminating", "terminating.yaml", onNode("n1"), flowList(flow(pod, "10.96.0.89:80"), flow(pod, "10.96.0.90:80"))},
	{"udp-dns", "udp-dns.yaml", onNode("n1"), flowList(flow(pod, "10.96.0.10:53/UDP"), flow(pod, "10.96.0.10:53"))},
	{"sctp", "sctp.yaml", onNode("n1"), flowList(flow(pod, "10.96.0.91:2905/SCTP"), flow(pod, "10.96.0.91:2905"))},
	{"shadowed", "shadowed.yaml", onNode("n1"), flowList(
		flow(outside, "198.51.100.25:25"), flow(outside, "198.51.100.25:587"), flow(pod, "10.96.0.92:25"))},
	{"headless-and-externalname", "headless-and-externalname.yaml", onNode("n1"), flowList(
		flow(pod, "10.96.0.94:80"), flow(pod, "10.96.0.95:80"))},
	{"incident-1", "incident-1", onNode("n1", "--node-ip", "172.20.0.11"), flowList(
		flow(pod, "198.51.100.44:443"), flow("172.20.0.11", "198.51.100.44:443"), flow(pod, "10.96.0.1:443"))},
	{"incident-1-endpoint-left", "incident-1/steps/1-endpoint-leaves.yaml,incident-1/kubernetes-intranet.yaml", onNode("n1", "--node-ip", "172.20.0.11"), flowList(
		flow("172.20.0.11", "198.51.100.44:443"))},
}

// TestExamples holds what the examples compile to, and what flows meet there:
// the golden files are the contract, checked by hand against the rules.
func TestExamples(t *testing.T) {
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) {
			args := append(v.fileArgs(), v.args...)
			checkGolden(t, v.name+".frontends.json", append([]string{"compile", "-o", "json"}, args...), "")
			checkGolden(t, v.name+".traces.json", append([]string{"trace", "--flows", "-", "--cluster-cidr", clusterCIDRs}, args...), v.flows)
		})
	}
}

func (v view) fileArgs() []string {
	var args []string
	for _, file := range strings.Split(v.files, ",") {
		args = append(args, "-f", filepath.Join(examplesDir, file))
	}
	return args
}

func checkGolden(t *testing.T, name string, args []string, stdin string) {
	t.Helper()
	status, out, errOut := fairlead(t, stdin, args...)
	if status != exitFine || errOut != "" {
		t.Fatalf("exit status %d, stderr %q", status, errOut)
	}
	path := filepath.Join("testdata", "examples", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: write it with -update, and check it by hand", err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("%s (-golden +now):\n%s", name, diff)
	}
}

// TestEveryExampleHasAView keeps an example from going untested.
func TestEveryExampleHasAView(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range views {
		for _, file := range strings.Split(v.files, ",") {
			seen[strings.Split(file, "/")[0]] = true
		}
	}
	entries, err := os.ReadDir(examplesDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		// Bundles have tests of their own, in test/doctor.
		if entry.Name() == "incidents" {
			continue
		}
		manifests := entry.IsDir() || filepath.Ext(entry.Name()) == ".yaml"
		if manifests && !seen[entry.Name()] {
			t.Errorf("examples/%s is in no golden test", entry.Name())
		}
	}
}

// TestCommandsInExamplesRun runs what the comment of each example says to run.
func TestCommandsInExamplesRun(t *testing.T) {
	t.Chdir(examplesDir)
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no examples match %s: %v", pattern, err)
		}
		for _, file := range files {
			for _, command := range commandsIn(t, file) {
				status, out, errOut := fairlead(t, "", command...)
				if status != exitFine || out == "" || errOut != "" {
					t.Errorf("%s: fairlead %s: exit status %d: %s", file, strings.Join(command, " "), status, errOut)
				}
			}
		}
	}
}

// commandsIn returns the arguments of the commands in a file's comment, which
// a backslash continues on the next line.
func commandsIn(t *testing.T, file string) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for _, line := range strings.Split(strings.ReplaceAll(string(text), "\\\n#", ""), "\n") {
		if command, ok := strings.CutPrefix(line, "#   fairlead "); ok {
			commands = append(commands, strings.Fields(strings.ReplaceAll(command, "'", "")))
		}
	}
	return commands
}
