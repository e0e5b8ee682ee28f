// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

const whole = `{"name":"shop","namespace":"eu","version":3,"manifest":"---\nkind: Secret\n",
"info":{"status":"deployed","last_deployed":"2026-01-02T15:04:05.5Z"},
"chart":{"metadata":{"name":"web","version":"1.2.3","appVersion":"7"},
"files":[{"name":"crds/a.yaml","data":"a2luZDogQ3VzdG9tUmVzb3VyY2VEZWZpbml0aW9uCg=="},{"name":"README.md","data":"IyBTaG9w"}]},
"config":{"password":"hunter2"},
"hooks":[{"kind":"Job","name":"migrate"}]}`

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text)) // a buffer takes all
	_ = w.Close()
	return b.Bytes()
}

func encoded(data []byte) []byte {
	return []byte(base64.StdEncoding.EncodeToString(data))
}

func TestDecode(t *testing.T) {
	for name, data := range map[string][]byte{
		"as Helm stores it":          encoded(zipped(whole)),
		"as Helm stored it at first": encoded([]byte(whole)),
		"as kubectl prints a Secret": encoded(encoded(zipped(whole))),
		"with line breaks":           bytes.ReplaceAll(encoded(zipped(whole)), []byte("A"), []byte("A\n")),
		"without base64":             zipped(whole),
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if r.Namespace != "eu" || r.Name != "shop" || r.Revision != 3 || r.Status != StatusDeployed ||
				r.Chart != "web" || r.ChartVersion != "1.2.3" || r.AppVersion != "7" || r.Modified.Unix() != 1767366245 {
				t.Errorf("release = %+v", r)
			}
			if r.Manifest != "---\nkind: Secret\n" || r.Definitions != "---\nkind: CustomResourceDefinition\n" {
				t.Errorf("manifest %q, definitions %q", r.Manifest, r.Definitions)
			}
			if len(r.Hooks) != 1 || r.Hooks[0] != "Job migrate" {
				t.Errorf("hooks = %q", r.Hooks)
			}
		})
	}
}

func TestWhatIsNoReleaseIsNamed(t *testing.T) {
	packed := zipped(whole)
	flipped := bytes.Clone(packed)
	flipped[len(flipped)-6] ^= 0xff // in the checksum
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":                    {nil, ErrTruncated},
		"half of the base64":         {encoded(packed)[:len(packed)/2], ErrTruncated},
		"base64 cut within a group":  {encoded(packed)[:41], ErrTruncated},
		"half of the gzip stream":    {encoded(packed[:len(packed)/2]), ErrTruncated},
		"gzip without its end":       {encoded(packed[:len(packed)-8]), ErrTruncated},
		"half of the JSON":           {encoded(zipped(whole[:len(whole)/2])), ErrTruncated},
		"another sum":                {encoded(flipped), ErrCorrupt},
		"no base64":                  {[]byte("hunter2, the password!"), ErrCorrupt},
		"base64 of something":        {encoded([]byte("!!!")), ErrCorrupt},
		"gzip of something":          {encoded(zipped("hunter2")), ErrCorrupt},
		"a number for the manifest":  {encoded([]byte(`{"name":"hunter2","version":1,"manifest":7}`)), ErrCorrupt},
		"JSON of something":          {encoded([]byte(`{"password":"hunter2"}`)), ErrForeign},
		"a release without revision": {encoded([]byte(`{"name":"hunter2"}`)), ErrForeign},
		"a bomb":                     {encoded(zipped(`{"name":"` + strings.Repeat("a", maxUnpacked) + `"}`)), ErrTooLarge},
		"more than one can store":    {bytes.Repeat([]byte("A"), 2*maxUnpacked), ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Decode(c.data)
			if !errors.Is(err, c.want) || r != nil {
				t.Fatalf("%v, error %v, want %v", r, err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes what it could not read: %v", err)
			}
		})
	}
}

func TestNamesOfPartsSayWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		parts   map[int]string
		follows string
		want    string // the names, or a part of the error
	}{
		"one":                      {map[int]string{0: "v1"}, "", "v1"},
		"numbered from two":        {map[int]string{0: "v1", 3: "v1.3", 2: "v1.2"}, "", "v1 v1.2 v1.3"},
		"numbered from one":        {map[int]string{0: "v1", 1: "v1-1", 2: "v1-2"}, "", "v1 v1-1 v1-2"},
		"without the first":        {map[int]string{2: "v1.2"}, "", "missing: the first; there is secrets/v1.2"},
		"without one in between":   {map[int]string{0: "v1", 1: "v1-1", 3: "v1-3"}, "", "missing: the one before secrets/v1-3"},
		"without the second":       {map[int]string{0: "v1", 3: "v1.3"}, "", "missing: the one before secrets/v1.3"},
		"without one that follows": {map[int]string{0: "v1"}, "v1-1", "missing: secrets/v1-1, which another part names"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Revision{kind: "secrets", parts: c.parts, follows: c.follows}
			names, err := r.names()
			have := strings.Join(names, " ")
			if err != nil {
				if !errors.Is(err, ErrIncomplete) {
					t.Errorf("error %v", err)
				}
				have = err.Error()
			}
			if have != c.want && (err == nil || !strings.HasSuffix(have, c.want)) {
				t.Errorf("have %s, want %s", have, c.want)
			}
		})
	}
}

// FuzzDecode has Decode read anything: it never panics, and what it returns is
// whole.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(zipped(whole)))
	f.Add(encoded([]byte(whole)))
	f.Add(encoded(encoded(zipped(whole)))[:100])
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		switch {
		case err == nil && (r.Name == "" || r.Revision < 1):
			t.Errorf("a release without a name or revision: %+v", r)
		case err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrTooLarge):
			t.Errorf("an error that says nothing: %v", err)
		}
	})
}

// A release whose manifest has 10 MB, of which a Secret holds about one packed,
// decodes within a second: it is read once in a command.
func BenchmarkDecode(b *testing.B) {
	manifest := strings.Repeat(`kind: ConfigMap\nmetadata: {name: a}\n`, 1<<18)
	data := encoded(zipped(strings.Replace(whole, "kind: Secret", manifest, 1)))
	b.SetBytes(int64(len(manifest)))
	for b.Loop() {
		if _, err := Decode(data); err != nil {
			b.Fatal(err)
		}
	}
}
