// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/test/cluster/report"
)

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string // proxy and sets, or what the error says
		fail bool
	}{
		"everything has a default":                 {nil, "fairlead: services, more", false},
		"sets are run in the order of their names": {[]string{"-sets", "more,services", "-proxy", "nftables"}, "nftables: more, services", false},
		"spaces separate sets as well":             {[]string{"-sets", "more services"}, "fairlead: more, services", false},
		"no set keeps the cluster":                 {[]string{"-sets", ""}, "fairlead: ", false},
		"a set that is not there":                  {[]string{"-sets", "services,less"}, `the set "less" is not known; there are services, more`, true},
		"a proxy that is not there":                {[]string{"-proxy", "ipvs"}, `the proxy "ipvs" is not known; there are fairlead, nftables`, true},
		"words that belong nowhere":                {[]string{"services"}, "no flags", true},
		"a flag that is not there":                 {[]string{"-set", "more"}, "not defined: -set; see -help", true},
		"a focus that is no regular expression":    {[]string{"-focus", "("}, "read -focus", true},
		"the replay runs no set":                   {[]string{"-replay", "-rounds", "2", "-retain-limit", "0"}, "fairlead: ", false},
		"the replay of another proxy":              {[]string{"-replay", "-proxy", "nftables"}, "does without -proxy nftables", true},
		"a replay without rounds":                  {[]string{"-replay", "-rounds", "0"}, "-rounds 0: there must be one at least", true},
		"a limit that is no time":                  {[]string{"-replay", "-retain-limit", "soon"}, `-retain-limit: time: invalid duration "soon"`, true},
		"rounds of nothing":                        {[]string{"-rounds", "3"}, "for -replay, which is not given", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			err := withOptions(c.args, func(o options) error {
				got = o.proxy.name + ": " + setNames(o.sets)
				return nil
			})
			if c.fail {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestASecondClusterWaitsForTheEndOfTheFirst(t *testing.T) {
	folder := t.TempDir()
	first, err := takeLock(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if second, err := takeLock(impatient, folder); err == nil {
		second.Close()
		t.Fatal("two have the lock")
	}
	time.AfterFunc(50*time.Millisecond, func() { first.Close() })
	second, err := takeLock(t.Context(), folder)
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	second.Close()
}

func TestProgress(t *testing.T) {
	for name, c := range map[string]struct{ output, want string }{
		"nothing is said yet": {"", "the specs are about to start"},
		"marks on one line":   {"Will run 47 of 7355 specs\n•••••", "5 of 47 specs done, 0 failed"},
		"the end is no mark":  {"Will run 5 of 7355 specs\n•••••\n\nRan 5 of 7355 Specs\nSUCCESS! -- 5 Passed", "5 of 5 specs done, 0 failed"},
		"failures and skipped specs have lines of their own": {
			"Will run 47 of 7355 specs\n••S••\n------\n• [FAILED] [125.1 seconds]\n  • is not a mark\n------\n•\n------\n• [TIMEDOUT] [9 seconds]\nS [SKIPPED] [0.1 seconds]\n",
			"9 of 47 specs done, 2 failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(c.output), 0o644); err != nil {
				t.Fatal(err)
			}
			if got := progress(path); got != c.want {
				t.Errorf("progress %q, want %q", got, c.want)
			}
		})
	}
}

func TestCheckEnd(t *testing.T) {
	folder := t.TempDir()
	report, output := filepath.Join(folder, "report"), filepath.Join(folder, "output")
	if err := os.WriteFile(output, []byte("starting\nno such flag\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	failed := exec.Command("false").Run()
	if err := checkEnd(failed, report, output); err == nil || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("without a report: %v, want the last line of the output", err)
	}
	if err := os.WriteFile(report, []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := checkEnd(failed, report, output); err != nil {
		t.Errorf("with a report, failed specs are no error here: %v", err)
	}
	if err := checkEnd(errors.New("not started"), report, output); err == nil {
		t.Error("a runner that did not run is no error")
	}
}

func TestEnableControllers(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "cpuset cpu memory pids\n", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := enableControllers(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "cgroup.subtree_control"))
	if want := "+cpuset +cpu +memory +pids "; err != nil || string(got) != want {
		t.Errorf("the kernel is told %q, %v; want %q", got, err, want)
	}
}

func TestRemoveTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a")
	if err := os.MkdirAll(filepath.Join(root, "b", "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"a tree", "nothing"} {
		if err := removeTree(root); err != nil {
			t.Errorf("remove %s: %v", what, err)
		}
		if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %s was removed: %v", what, err)
		}
	}
}

// Templates fail when a value is missing; what comes out must be of the
// language that the programs read.
func TestConfigurationFiles(t *testing.T) {
	spec := nodeSpec{
		Self: machines()[0], Neighbours: machines()[1:], Cgroup: nodeCgroup("n1"), DNS: dnsServiceIP, PodCIDR: podCIDR,
		Proxy: "fairlead", Kubeconfig: "/k", ProxyKubeconfig: "/p", Cache: "/cache", Checkout: "/checkout",
	}
	for name, data := range map[string]any{
		"kubelet.yaml":    spec,
		"kube-proxy.yaml": spec,
		"cni.conflist":    spec,
		"containerd.toml": spec,
		"kubeconfig":      map[string]string{"Server": controlAddress, "Certificate": "/c", "Token": "t"},
		"Corefile":        map[string]any{"Server": controlIP, "Kubeconfig": "/k"},
		"objects.yaml":    map[string]any{"Machines": machines(), "DNS": dnsServiceIP, "Server": controlIP},
		"intranet.yaml":   map[string]any{"Server": controlIP},
		"clients.yaml":    map[string]any{"Program": "/program", "Notes": "/notes", "Targets": clientTargets()},
		"patients.yaml":   map[string]any{"Image": patientsImage, "Web": web, "Proxy": "fairlead", "Label": "app.kubernetes.io/name", "Program": "/program"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(name, data)
			if err != nil {
				t.Fatal(err)
			}
			if name == "containerd.toml" || name == "Corefile" {
				return // languages of their own
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				var object map[string]any
				if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil || len(object) == 0 {
					t.Errorf("%v in\n%s", err, document)
				}
			}
		})
	}
}

func TestThePageTellsTheResults(t *testing.T) {
	results, err := report.Load("results")
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("there are no results")
	}
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != report.Page(results) {
		t.Error("docs/conformance.md is not what the results say: `make e2e` writes it")
	}
}
