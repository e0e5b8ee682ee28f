// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"flag"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/adapter/adaptertest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTables(t *testing.T) {
	t.Run("save", func(t *testing.T) { adaptertest.Golden(t, "save.txt", ParseSave, *update) })
	t.Run("list", func(t *testing.T) { adaptertest.Golden(t, "list.txt", ParseList, *update) })
}

func TestWhatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		parse      adaptertest.Parser
		text, want string
	}{
		"a server before its service":       {ParseSave, "-a -t 10.96.0.1:443 -r 192.0.2.11:6443 -m -w 1\n", "problem in line 1: the server 192.0.2.11:6443 belongs to no service"},
		"a command of another kind":         {ParseSave, "-D -t 10.96.0.1:443\n", `problem in line 1: "-D -t 10.96.0.1:443" is no command of ipvsadm`},
		"a weight that is none":             {ParseSave, "-A -t 10.96.0.1:443 -s rr\n-a -t 10.96.0.1:443 -r 192.0.2.11:6443 -w x\n", `problem in line 2: "x" is no weight`},
		"a table that was cut":              {ParseList, "IP Virtual Server version 1.2.1 (size=4096)\nTCP  10.96.0.1:443 rr\n  -> 192.0.2.11:6443\n", "problem in line 3: the server 192.0.2.11:6443 has no weight"},
		"names that ipvsadm printed for -n": {ParseList, "IP Virtual Server version 1.2.1 (size=4096)\nTCP  kubernetes.default:https rr\n", `"kubernetes.default:https" is no ADDRESS:PORT`},
	} {
		t.Run(name, func(t *testing.T) {
			if have := adaptertest.Text(test.parse(strings.NewReader(test.text))); !strings.Contains(have, test.want) {
				t.Errorf("have\n%s\nwant in it\n%s", have, test.want)
			}
		})
	}
}

func FuzzSave(f *testing.F) { adaptertest.Fuzz(f, ParseSave) }
func FuzzList(f *testing.F) { adaptertest.Fuzz(f, ParseList) }
