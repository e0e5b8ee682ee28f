// SPDX-License-Identifier: Apache-2.0

package bugs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is that of a release.
type Version struct {
	Major, Minor, Patch int
	// Pre is the word and number of a release that came before: "rc.1"; "" is the
	// release itself.
	Pre string
	// Build is what a vendor wrote behind it: "k3s1", "cee.1". Such a build may
	// have fixes that the release of that number has not.
	Build string
}

var (
	versionPattern = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:[-+](.*))?$`)
	prePattern     = regexp.MustCompile(`^(dev|snapshot|alpha|beta|pre|rc)[.-]?(\d{0,6})(?:[-+.](.*))?$`)
	// commitPattern is what a build without a tag has behind its version.
	commitPattern = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// preOrder are the words of releases that come before one, in the order in which
// projects use them.
var preOrder = []string{"dev", "snapshot", "alpha", "beta", "pre", "rc"}

// ParseVersion reads a version as programs print it and images are tagged:
// 1.18.5, v1.18.5-rc.1, v1.35.4+k3s1, 1.18.5-cee.1, 1.26.13-eks-508b6b3.
func ParseVersion(text string) (Version, error) {
	m := versionPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Version{}, fmt.Errorf("read version %.40q: it is not MAJOR.MINOR.PATCH", text)
	}
	v := Version{Major: number(m[1]), Minor: number(m[2]), Patch: number(m[3]), Build: m[4]}
	if pre := prePattern.FindStringSubmatch(v.Build); pre != nil {
		v.Pre, v.Build = fmt.Sprintf("%s.%d", pre[1], number(pre[2])), pre[3]
	}
	if commitPattern.MatchString(v.Build) {
		v.Build = ""
	}
	return v, nil
}

// number reads digits that a pattern has bounded; none are 0.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// Compare orders by release; what a vendor wrote behind it does not count.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor), cmp.Compare(v.Patch, o.Patch), comparePre(v.Pre, o.Pre))
}

// comparePre puts the release itself behind all that came before it.
func comparePre(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == "":
		return 1
	case b == "":
		return -1
	}
	aWord, aNumber, _ := strings.Cut(a, ".")
	bWord, bNumber, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(slices.Index(preOrder, aWord), slices.Index(preOrder, bWord)), cmp.Compare(number(aNumber), number(bNumber)))
}

func (v Version) String() string {
	text := fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
	if v.Pre != "" {
		text += "-" + v.Pre
	}
	if v.Build != "" {
		text += "+" + v.Build
	}
	return text
}

// UnmarshalText reads a version in the list of bugs.
func (v *Version) UnmarshalText(text []byte) error {
	parsed, err := ParseVersion(string(text))
	*v = parsed
	return err
}
