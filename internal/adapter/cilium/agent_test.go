// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgent reads what `cilium-dbg` of 1.14 to 1.20 prints of its agent: README.md
// says where the files come from.
func TestAgent(t *testing.T) {
	files, err := filepath.Glob("testdata/agent/*")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".golden") {
			continue
		}
		read++
		t.Run(filepath.Base(file), func(t *testing.T) { goldenAgent(t, file) })
	}
	if read < 18 {
		t.Errorf("there are %d recordings of agents, want 18 at least", read)
	}
}

func goldenAgent(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kind, _, _ := strings.Cut(filepath.Base(file), "-")
	kind, _, _ = strings.Cut(kind, ".")
	value, err := parseAgent(kind, text)
	have, encodeErr := json.MarshalIndent(value, "", "  ")
	if encodeErr != nil {
		t.Fatal(encodeErr)
	}
	have = append(have, '\n')
	if err != nil {
		have = append(have, "error: "+err.Error()+"\n"...)
	}
	golden := file + ".golden"
	if *update {
		if err := os.WriteFile(golden, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v (run the test with -update, and read what it wrote)", err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s reads as\n%swant\n%s", file, have, want)
	}
}

func parseAgent(kind string, text []byte) (any, error) {
	switch kind {
	case "endpoints":
		return ParseEndpoints(text)
	case "status":
		s, err := ParseStatus(text)
		if s != nil {
			s.Lines = nil
		}
		return s, err
	case "config":
		return ParseConfig(text)
	case "identities":
		return ParseIdentities(text)
	case "version":
		return ParseVersion(text)
	case "metrics":
		return ParseMapPressure(text)
	}
	panic("no parser is named " + kind)
}

var agentKinds = []string{"endpoints", "status", "config", "identities", "version", "metrics"}

// TestAgentWithoutAnswer reads what stands in place of an output.
func TestAgentWithoutAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                       "",
		"a shell without the program":   "sh: 1: cilium-dbg: not found\n",
		"a container that is not there": "error: unable to upgrade connection: container not found (\"cilium-agent\")\n",
		"an agent that does not answer": "Error: Cannot get endpoint list: Get \"http:///var/run/cilium/cilium.sock/v1/endpoint\": dial unix /var/run/cilium/cilium.sock: connect: connection refused\nIs the agent running?\n",
		"a document that is another":    "[1, 2]",
		"a document that breaks off":    "[{\"id\": 1",
		"bytes that are no text":        "\xff\xfe\x00\x00\n\x00",
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range agentKinds {
				if value, err := parseAgent(kind, []byte(text)); err == nil {
					t.Errorf("as %s it reads as %+v, want an error", kind, value)
				}
			}
		})
	}
}

// TestCutOutputs ends real outputs early: what is read of them must say that
// there is more, wherever a row may be missing.
func TestCutOutputs(t *testing.T) {
	for _, file := range []string{"endpoints-1.17-init.txt", "endpoints-1.20.json", "identities.json", "status-1.20.json"} {
		text, err := os.ReadFile(filepath.Join("testdata/agent", file))
		if err != nil {
			t.Fatal(err)
		}
		kind, _, _ := strings.Cut(file, "-")
		kind, _, _ = strings.Cut(kind, ".")
		body := bytes.TrimRight(text, " \n")
		cut := 0
		for end := range body {
			if _, err := parseAgent(kind, body[:end]); err != nil {
				cut++
			}
		}
		if strings.HasSuffix(file, ".json") && cut != len(body) {
			t.Errorf("%s: %d of %d beginnings of it are an error, want all", file, cut, len(body))
		}
		if cut < len(body)/4 {
			t.Errorf("%s: %d of %d beginnings of it are an error, want most", file, cut, len(body))
		}
	}
}

func TestReplacesKubeProxy(t *testing.T) {
	for word, want := range map[string]bool{
		"True": true, "true": true, "Strict": true, "strict": true, "Enabled": true,
		"False": false, "false": false, "Disabled": false, "Partial": false, "Probe": false, "": false,
	} {
		if have := ReplacesKubeProxy(word); have != want {
			t.Errorf("%q replaces kube-proxy: have %t, want %t", word, have, want)
		}
	}
}

func TestSettingIsFoundInAnySpelling(t *testing.T) {
	for key, want := range map[string]string{"kube-proxy-replacement": "strict", "KubeProxyReplacement": "true"} {
		if have, found := Setting(map[string]string{key: want, "Debug": "Disabled"}, "kube-proxy-replacement"); !found || have != want {
			t.Errorf("%s is %q (found: %t), want %q", key, have, found, want)
		}
	}
	if have, found := Setting(map[string]string{"Debug": "Disabled"}, "kube-proxy-replacement"); found {
		t.Errorf("a missing option is %q", have)
	}
}

func FuzzAgent(f *testing.F) {
	files, err := filepath.Glob("testdata/agent/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, kind := range agentKinds {
			value, err := parseAgent(kind, text)
			if list, ok := value.([]Endpoint); ok && err == nil && list == nil {
				t.Error("endpoints were read, and are nil")
			}
		}
	})
}
