// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"regexp"
	"strings"
)

// Denial is a request that the API server refused, as its answer tells.
type Denial struct {
	User string
	Request
	// Missing are roles that do not exist although a binding of the user's names
	// them.
	Missing []Ref
}

var (
	denied = regexp.MustCompile(`(?:([^\s"=]+)(?: "[^"]*")? is forbidden: )?User "([^"]+)" cannot ([a-z]+) resource "([^"]+)"(?: in API group "([^"]*)")?(?: in the namespace "([^"]*)")?`)
	gone   = regexp.MustCompile(`(clusterrole|role)\.rbac\.authorization\.k8s\.io "([^"]+)" not found`)
)

// ParseDenial finds the API server's refusal in a line that a client logged:
// as plain text, or quoted in JSON or logfmt.
func ParseDenial(line string) (Denial, bool) {
	if !strings.Contains(line, " cannot ") {
		return Denial{}, false
	}
	line = strings.ReplaceAll(line, `\`, "")
	m := denied.FindStringSubmatch(line)
	if m == nil {
		return Denial{}, false
	}
	d := Denial{User: m[2], Request: Request{Verb: m[3], Resource: m[4], Group: m[5], Namespace: m[6]}}
	// A line that was cut short may still name the group with the resource.
	if group, has := strings.CutPrefix(m[1], m[4]+"."); has && d.Group == "" {
		d.Group = group
	}
	for _, g := range gone.FindAllStringSubmatch(line, -1) {
		role := Ref{Kind: "ClusterRole", Name: g[2]}
		if g[1] == "role" {
			role = Ref{Kind: "Role", Namespace: d.Namespace, Name: g[2]}
		}
		d.Missing = append(d.Missing, role)
	}
	return d, true
}
