// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ParseConfig reads `cilium-dbg config`, with or without --all, as text or with
// -o json, and lists of KEY: VALUE like the data of the ConfigMap cilium-config.
// The keys are as they stand; Setting finds one in any spelling.
func ParseConfig(text []byte) (map[string]string, error) {
	out := map[string]string{}
	if object, _ := jsonIn(text); object != nil {
		var tree map[string]any
		if err := json.Unmarshal(object, &tree); err != nil {
			return nil, fmt.Errorf("read the configuration of a Cilium agent: %w", err)
		}
		flatten(out, "", tree)
		return out, nil
	}
	var bad faults
	parent, known := "", false
	for n, line := range lines(text) {
		key, value, found := strings.Cut(line, ":")
		known = known || strings.HasPrefix(line, "####") || configOption.MatchString(key)
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case !found && configName.MatchString(line):
			parent = line
		case !found || !configName.MatchString(strings.TrimSpace(key)):
			bad.add(n, "%q is no KEY: VALUE", line)
		default:
			if line[0] != '\t' {
				parent = ""
			}
			out[child(parent, strings.TrimSpace(key))] = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	if !known || len(out) == 0 {
		return nil, errors.New("it is no configuration of a Cilium agent")
	}
	return out, bad.err()
}

// configName is the name of an option. Those of a map are indented below its
// own.
var configName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)

// configOption is an option of the ConfigMap. A list of others than these, and
// without a title, may be anything.
var configOption = regexp.MustCompile(`^\s*(bpf|cluster|enable|identity|ipam|kube-proxy|routing|tunnel)-`)

func child(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

func flatten(out map[string]string, parent string, tree map[string]any) {
	for key, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			flatten(out, child(parent, key), v)
		case nil:
			out[child(parent, key)] = ""
		default:
			out[child(parent, key)] = fmt.Sprint(v)
		}
	}
}

// Setting returns an option by the name that it has in the ConfigMap, like
// kube-proxy-replacement: the agent prints it as KubeProxyReplacement.
func Setting(config map[string]string, name string) (string, bool) {
	if value, found := config[name]; found {
		return value, true
	}
	for key, value := range config {
		if plain(key) == plain(name) {
			return value, true
		}
	}
	return "", false
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "")) }
