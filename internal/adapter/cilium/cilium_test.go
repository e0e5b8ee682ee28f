// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"flag"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/adapter/adaptertest"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRecorded reads what Cilium printed. The 1.18.5 and 1.20.2 files are of
// its shell in the first incident; the others follow the formats of
// cilium-dbg 1.14 and 1.20.
func TestRecorded(t *testing.T) {
	for file, parse := range map[string]adaptertest.Parser{
		"1.18.5-moment-1-frontends.txt": ParseFrontends,
		"1.18.5-moment-1-backends.txt":  ParseBackends,
		"1.18.5-moment-1-maps.txt":      ParseMaps,
		"1.18.5-moment-3-frontends.txt": ParseFrontends,
		"1.18.5-moment-3-backends.txt":  ParseBackends,
		"1.18.5-moment-3-maps.txt":      ParseMaps,
		"1.20.2-moment-2-frontends.txt": ParseFrontends,
		"1.20.2-moment-2-backends.txt":  ParseBackends,
		"1.20.2-moment-2-maps.txt":      ParseMaps,
		"service-list.txt":              ParseServiceList,
		"service-list-1.14.txt":         ParseServiceList,
		"service-list-json.txt":         ParseServiceListJSON,
		"lb-list.txt":                   ParseLBList,
		"lb-list-1.14.txt":              ParseLBList,
		"lb-list-json.txt":              ParseLBListJSON,
		"frontends-many.txt":            ParseFrontends,
		"backends-states.txt":           ParseBackends,
		"maps-states.txt":               ParseMaps,
	} {
		t.Run(file, func(t *testing.T) { adaptertest.Golden(t, file, parse, *update) })
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		parse adaptertest.Parser
		text  string
		want  string
	}{
		"a cut line of a table":            {ParseFrontends, "Address   Type   ServiceName   PortName   Backends\n10.0.0.1:80/TCP\n10.0.0\n", `problem in line 3: "10.0.0" is no ADDRESS:PORT`},
		"a table that lost its shape":      {ParseServiceList, "ID   Frontend   Service Type   Backend\n1 10.0.0.1:80/TCP ClusterIP\n", "is not aligned with the header"},
		"JSON that ends too early":         {ParseServiceListJSON, `[{"spec": {`, "unexpected EOF"},
		"JSON of something else":           {ParseServiceListJSON, `{}`, "it is no list of services"},
		"a slot without its backend":       {ParseMaps, "SVC: ID=1 ADDR=10.0.0.1:80/TCP SLOT=1 BEID=7 COUNT=0 QCOUNT=0 FLAGS=ClusterIP\n", "names backend 7, which is not in the map"},
		"a line that is longer than 1 MiB": {ParseMaps, "REV: ID=1 ADDR=" + strings.Repeat("1", 1<<20) + "\n", "the line is longer than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if have := adaptertest.Text(test.parse(strings.NewReader(test.text))); !strings.Contains(have, test.want) {
				t.Errorf("have\n%swant a line with\n%s", have, test.want)
			}
		})
	}
}

func FuzzServiceList(f *testing.F)     { adaptertest.Fuzz(f, ParseServiceList) }
func FuzzServiceListJSON(f *testing.F) { adaptertest.Fuzz(f, ParseServiceListJSON) }
func FuzzLBList(f *testing.F)          { adaptertest.Fuzz(f, ParseLBList) }
func FuzzLBListJSON(f *testing.F)      { adaptertest.Fuzz(f, ParseLBListJSON) }
func FuzzFrontends(f *testing.F)       { adaptertest.Fuzz(f, ParseFrontends) }
func FuzzBackends(f *testing.F)        { adaptertest.Fuzz(f, ParseBackends) }
func FuzzMaps(f *testing.F)            { adaptertest.Fuzz(f, ParseMaps) }

// The columns of a large table are found without a pattern, and as a pattern
// would find them.
func TestTwoColumns(t *testing.T) {
	gap := regexp.MustCompile(`^\s+|\s{2,}`)
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringOf(rapid.SampledFrom([]rune("ab \tü\r"))).Draw(t, "line")
		cells := gap.Split(line, 2)
		first, second, found := twoColumns(line)
		if found != (len(cells) == 2) || first != cells[0] || found && second != cells[1] {
			t.Fatalf("%q has the columns %q, not %q and %q", line, cells, first, second)
		}
	})
}
