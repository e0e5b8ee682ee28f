// SPDX-License-Identifier: Apache-2.0

package bugs

import (
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// Only is the version of a component; "" if none is known, or more than one.
func Only(s *facts.Sample, c Component) string {
	version := ""
	for _, i := range In(s) {
		switch {
		case i.Component != c || i.Version.String() == version:
		case version != "":
			return ""
		default:
			version = i.Version.String()
		}
	}
	return version
}

// SetCilium is the command that gives Cilium's Helm release other values. It
// names the version that runs, or asks Helm for it: without one Helm would take
// the newest chart, and upgrade Cilium besides.
func SetCilium(namespace, version string, values ...string) string {
	words := []string{"--reuse-values"}
	for _, v := range values {
		words = append(words, "--set", v)
	}
	upgrade := printable.Command("helm", "upgrade", "cilium", "cilium/cilium", "--namespace", namespace)
	if version != "" {
		return upgrade + " " + printable.Command(append([]string{"--version", version}, words...)...)
	}
	installed := printable.Command("helm", "list", "--namespace", namespace, "--filter", "^cilium$", "--output", "json") +
		" | " + printable.Command("sed", `s/.*"chart":"cilium-\([^"]*\)".*/\1/`)
	return upgrade + ` --version "$(` + installed + `)" ` + printable.Command(words...)
}
