// SPDX-License-Identifier: Apache-2.0

package bugs

import (
	"cmp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseVersion(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a release", "1.18.5", "1.18.5"},
		{"a release with a v", "v1.35.4", "1.35.4"},
		{"spaces around it", " v1.35.4\n", "1.35.4"},
		{"no patch is patch 0", "1.28", "1.28.0"},
		{"a candidate comes before the release", "v1.18.5-rc.1", "1.18.5-rc.1"},
		{"a candidate without a dot", "1.19.0-rc1", "1.19.0-rc.1"},
		{"a candidate without a number", "1.20.0-dev", "1.20.0-dev.0"},
		{"a vendor's build is of the release", "v1.35.4+k3s1", "1.35.4+k3s1"},
		{"a vendor's build behind a dash", "1.18.5-cee.1", "1.18.5+cee.1"},
		{"a vendor's build with a commit", "v1.26.13-eks-508b6b3", "1.26.13+eks-508b6b3"},
		{"a vendor's build of a candidate", "1.18.0-rc.1-cee.2", "1.18.0-rc.1+cee.2"},
		{"a commit says nothing of a vendor", "v1.18.6-7d4d8932", "1.18.6"},
		{"no number", "latest", "error"},
		{"nothing", "", "error"},
		{"a digest", "sha256:abcdef", "error"},
		{"more digits than a version has", "1.18.99999999999", "error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := ParseVersion(c.text)
			got := v.String()
			if err != nil {
				got = "error"
			}
			if got != c.want {
				t.Errorf("ParseVersion(%q) = %s (%v), want %s", c.text, got, err, c.want)
			}
		})
	}
}

func TestVersionsAreInOrder(t *testing.T) {
	rising := strings.Fields("1.9.0 1.18.0-dev 1.18.0-snapshot.1 1.18.0-alpha.1 1.18.0-beta.2 1.18.0-pre.3 1.18.0-rc.0 1.18.0-rc.1 1.18.0-rc.10 1.18.0 1.18.1 1.19.0-rc.1 1.19.0 2.0.0")
	for i, a := range rising {
		for j, b := range rising {
			if got, want := parsed(t, a).Compare(parsed(t, b)), cmp.Compare(i, j); got != want {
				t.Errorf("%s compared with %s is %d, want %d", a, b, got, want)
			}
		}
	}
	if parsed(t, "1.18.5-cee.1").Compare(parsed(t, "v1.18.5")) != 0 {
		t.Error("a vendor's build is not of the same release")
	}
}

func TestAPrintedVersionIsReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`v?\d{1,4}\.\d{1,4}(\.\d{1,4})?([-+][a-z0-9.-]{0,12})?`).Draw(t, "text")
		v, err := ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseVersion(v.String())
		if err != nil || again.Compare(v) != 0 {
			t.Fatalf("%q is %+v, printed %q, read again %+v, %v", text, v, v, again, err)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	for _, seed := range []string{"v1.18.5-rc.1", "1.35.4+k3s1", "1..", "v", "1.2.3-rc.-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ParseVersion(text)
		if err == nil && v.Compare(v) != 0 {
			t.Errorf("%q is not equal to itself", text)
		}
	})
}

func TestTheListIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, b := range All() {
		t.Run(b.ID, func(t *testing.T) {
			if seen[b.ID] || b.ID == "" {
				t.Error("the id is missing or repeats")
			}
			seen[b.ID] = true
			if b.Title == "" || len(b.Affected) == 0 || len(b.Sources) == 0 {
				t.Error("title, versions or sources are missing")
			}
			if (b.Check == "") == (b.Needs == "") {
				t.Error("it has to have either a check of its own or what it needs")
			}
			for _, r := range b.Affected {
				if !r.Contains(r.From) {
					t.Errorf("the range %s does not contain its first version", r)
				}
			}
		})
	}
}

func TestIn(t *testing.T) {
	for _, c := range []struct {
		name, bug, version string
		want               bool
	}{
		{"the first version", "cilium-43619", "1.18.0", true},
		{"the last version", "cilium-43619", "1.18.6", true},
		{"a vendor's build of it", "cilium-43619", "1.18.6-cee.1", true},
		{"the fix", "cilium-43619", "1.18.7", false},
		{"a minor version before", "cilium-43619", "1.17.9", false},
		{"a minor version after", "cilium-43619", "1.19.0", false},
		{"the second range", "kubernetes-139629", "v1.35.4", true},
		{"between ranges nobody knows", "kubernetes-139629", "v1.34.8", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, found := Find(c.bug)
			if !found {
				t.Fatalf("%s is not on the list", c.bug)
			}
			if _, got := b.In(parsed(t, c.version)); got != c.want {
				t.Errorf("%s affected by %s: %t, want %t", c.version, c.bug, got, c.want)
			}
		})
	}
}

func TestADamagedListIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"no list":                  "a: b",
		"a version that is none":   "- {id: a, affected: [{from: x, before: 1.0.0}]}",
		"a range without an end":   "- {id: a, affected: [{from: 1.0.0}]}",
		"a range with two of them": "- {id: a, affected: [{from: 1.0.0, before: 1.1.0, through: 1.0.3}]}",
	} {
		t.Run(name, func(t *testing.T) {
			if all, err := parse([]byte(text)); err == nil {
				t.Errorf("parse() = %+v without an error", all)
			}
		})
	}
}

func TestTag(t *testing.T) {
	for image, want := range map[string]string{
		"quay.io/cilium/cilium:v1.18.5@sha256:99b0": "v1.18.5",
		"registry:5000/cilium/cilium":               "",
		"registry:5000/cilium/cilium:v1":            "v1",
		"cilium":                                    "",
	} {
		if got := tag(image); got != want {
			t.Errorf("tag(%q) = %q, want %q", image, got, want)
		}
	}
}

func parsed(t *testing.T, text string) Version {
	t.Helper()
	v, err := ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
