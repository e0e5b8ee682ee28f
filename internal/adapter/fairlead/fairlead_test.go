// SPDX-License-Identifier: Apache-2.0

package fairlead

import (
	"flag"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/adapter/adaptertest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTables(t *testing.T) {
	t.Run("frontends", func(t *testing.T) { adaptertest.Golden(t, "frontends-json.txt", ParseFrontends, *update) })
	t.Run("kernel", func(t *testing.T) { adaptertest.Golden(t, "kernel-json.txt", ParseKernel, *update) })
	t.Run("states", func(t *testing.T) { adaptertest.Golden(t, "frontends-states.txt", ParseFrontends, *update) })
}

func TestFormats(t *testing.T) {
	kernel, frontends := `{"schemaVersion": 1, "pinPath": "/sys/fs/bpf/fairlead", "entries": []}`, `[{"address": "10.96.0.1", "port": 443, "protocol": "TCP", "scope": "all"}]`
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"the agent's table":                   {frontends, FrontendsSource},
		"the maps":                            {kernel, KernelSource},
		"an empty list is nobody's":           {"[]", ""},
		"another proxy's list of services":    {`[{"spec": {"frontend-address": {}}}]`, ""},
		"the agent's backends have no scope":  {`{"schemaVersion": 1, "backends": []}`, ""},
		"the agent's Services are not a dump": {`{"schemaVersion": 1, "services": []}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			have := ""
			for _, f := range Formats() {
				if f.Holds([]byte(test.text)) {
					have += f.Source
				}
			}
			if have != test.want {
				t.Errorf("have %q, want %q", have, test.want)
			}
		})
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	const good = `{"address": "10.96.0.1", "port": 443, "protocol": "TCP", "scope": "all", "action": "forward"}`
	for name, test := range map[string]struct {
		parse      adaptertest.Parser
		text, want string
	}{
		"a list that was cut tells nothing of what is missing": {ParseFrontends, "[" + good + ",\n{\"addr", "silent: it is cut off or damaged"},
		"a list without an end":                                {ParseFrontends, "[" + good, "silent: it is cut off or damaged"},
		"a row with an address that is none":                   {ParseFrontends, "[" + good + ",\n" + strings.Replace(good, "10.96.0.1", "web", 1) + "]", `problem in line 2: "web" is no address`},
		"a row with an action of a later version":              {ParseFrontends, "[" + strings.Replace(good, "forward", "mirror", 1) + "]", `problem in line 1: its action is "mirror"`},
		"a backend's state of a later version":                 {ParseFrontends, `[{"address": "10.96.0.1", "protocol": "TCP", "scope": "all", "action": "forward", "backends": [{"address": "10.0.0.1", "port": 1, "state": "odd"}]}]`, `problem in line 1: a backend's state is "odd"`},
		"maps that were cut":                                   {ParseKernel, `{"schemaVersion": 1, "entries": [` + good, "silent: it is cut off or damaged"},
		"maps without entries":                                 {ParseKernel, `{"schemaVersion": 1}`, "silent: it is cut off or damaged"},
		"no JSON at all":                                       {ParseKernel, "fairlead: no agent answers\n", "silent: it is cut off or damaged"},
		"an entry that programs refuse leads nowhere":          {ParseKernel, `{"entries": [` + strings.Replace(good, "}", `, "backends": [{"address": "10.0.0.1", "port": 1}], "problem": "owner 3, where the set has 4"}`, 1) + "]}", `["broken: owner 3, where the set has 4"] ->` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if have := adaptertest.Text(test.parse(strings.NewReader(test.text))); !strings.Contains(have, test.want) {
				t.Errorf("have\n%s\nwant in it\n%s", have, test.want)
			}
		})
	}
}

func FuzzFrontends(f *testing.F) { adaptertest.Fuzz(f, ParseFrontends) }
func FuzzKernel(f *testing.F)    { adaptertest.Fuzz(f, ParseKernel) }
