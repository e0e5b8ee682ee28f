// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// policyVersion is the only version of policies that servers still read.
const policyVersion = "audit.k8s.io/v1"

// Policy decides what a server notes: the first rule that matches a request.
type Policy struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Rules      []Rule  `json:"rules"`
	OmitStages []Stage `json:"omitStages"`
}

// Rule matches a request that every list in it matches; an empty list matches
// everything.
type Rule struct {
	Level           Level            `json:"level"`
	Users           []string         `json:"users"`
	UserGroups      []string         `json:"userGroups"`
	Verbs           []string         `json:"verbs"`
	Resources       []GroupResources `json:"resources"`
	Namespaces      []string         `json:"namespaces"`
	NonResourceURLs []string         `json:"nonResourceURLs"`
	OmitStages      []Stage          `json:"omitStages"`
}

// GroupResources names resources of one API group.
type GroupResources struct {
	Group         string   `json:"group"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames"`
}

// ReadPolicy reads the policy in a file.
func ReadPolicy(path string) (Policy, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return Policy{}, fmt.Errorf("read the audit policy: %w", err)
	}
	p, err := ParsePolicy(body)
	if err != nil {
		return Policy{}, fmt.Errorf("audit policy %s: %w", path, err)
	}
	return p, nil
}

// ParsePolicy reads a policy in YAML or JSON, and refuses what a server would
// refuse to start with. Fields that a server does not know it passes over.
func ParsePolicy(body []byte) (Policy, error) {
	var p Policy
	text, err := yaml.YAMLToJSON(body)
	if err != nil {
		return p, fmt.Errorf("read YAML: %w", err)
	}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(text, &p); err != nil {
		return p, fmt.Errorf("read the policy's fields: %w", err)
	}
	if p.APIVersion != policyVersion || p.Kind != "Policy" {
		return p, fmt.Errorf("it is a %q of %q: servers read a Policy of %s", p.Kind, p.APIVersion, policyVersion)
	}
	if len(p.Rules) == 0 {
		return p, errors.New("it has no rules, with which no server starts")
	}
	if err := checkStages(p.OmitStages); err != nil {
		return p, err
	}
	for i, rule := range p.Rules {
		if err := rule.check(); err != nil {
			return p, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return p, nil
}

func checkStages(stages []Stage) error {
	for _, stage := range stages {
		switch stage {
		case RequestReceived, ResponseStarted, ResponseComplete, Panic:
		default:
			return fmt.Errorf("omitStages: %q is no stage", stage)
		}
	}
	return nil
}

func (r Rule) check() error {
	switch r.Level {
	case None, Metadata, Request, RequestResponse:
	default:
		return fmt.Errorf("level: %q is no level: use %s, %s, %s or %s", r.Level, None, Metadata, Request, RequestResponse)
	}
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		return errors.New("a rule is about resources or about nonResourceURLs, not both")
	}
	for _, url := range r.NonResourceURLs {
		if url == "*" {
			continue
		}
		if !strings.HasPrefix(url, "/") || strings.Contains(url[:len(url)-1], "*") {
			return fmt.Errorf("nonResourceURLs: %q does not begin with /, or has a * before its end", url)
		}
	}
	for _, g := range r.Resources {
		if reasons := validation.IsDNS1123Subdomain(g.Group); g.Group != "" && len(reasons) > 0 {
			return fmt.Errorf("resources: %q is no API group: %s", g.Group, reasons[0])
		}
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			return errors.New("resources: resourceNames need resources")
		}
	}
	return checkStages(r.OmitStages)
}

// Level returns the level at which a server notes the record's request, and the
// number of the rule that says so, from 1. No rule is number 0: the server does
// not note the request.
func (p Policy) Level(r Record) (Level, int) {
	for i, rule := range p.Rules {
		if rule.matches(r) {
			return rule.Level, i + 1
		}
	}
	return None, 0
}

// Possible returns the numbers of the rules of which one decides about a request
// of which all is known but who asks: those for some users, in their order, and
// the first for everybody. Number 0, at the end, is that no rule matches.
func (p Policy) Possible(r Record) []int {
	var numbers []int
	for i, rule := range p.Rules {
		some := len(rule.Users)+len(rule.UserGroups) > 0
		rule.Users, rule.UserGroups = nil, nil
		if !rule.matches(r) {
			continue
		}
		numbers = append(numbers, i+1)
		if !some {
			return numbers
		}
	}
	return append(numbers, 0)
}

// Omits says whether a server leaves out the records of a stage of the requests
// that fall under the rule of that number.
func (p Policy) Omits(rule int, stage Stage) bool {
	if slices.Contains(p.OmitStages, stage) {
		return true
	}
	return rule > 0 && slices.Contains(p.Rules[rule-1].OmitStages, stage)
}

// matches looks at the user who asked, not at the one who was impersonated: a
// server chooses the rule before it looks at that.
func (r Rule) matches(record Record) bool {
	if !anyOrHas(r.Users, record.User) || !anyOrHas(r.Verbs, record.Verb) {
		return false
	}
	inGroups := func(group string) bool { return slices.Contains(record.Groups, group) }
	if len(r.UserGroups) > 0 && !slices.ContainsFunc(r.UserGroups, inGroups) {
		return false
	}
	if len(r.Namespaces)+len(r.Resources) > 0 {
		return record.Resource.Resource != "" && r.matchesResource(record)
	}
	if len(r.NonResourceURLs) > 0 {
		return record.Resource.Resource == "" && r.matchesPath(record)
	}
	return true
}

func anyOrHas(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

func (r Rule) matchesResource(record Record) bool {
	if !anyOrHas(r.Namespaces, record.Namespace) {
		return false
	}
	matches := func(g GroupResources) bool { return g.matches(record) }
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, matches)
}

func (r Rule) matchesPath(record Record) bool {
	path, _, _ := strings.Cut(record.RequestURI, "?")
	return slices.ContainsFunc(r.NonResourceURLs, func(spec string) bool {
		prefix, wild := strings.CutSuffix(spec, "*")
		return spec == path || wild && strings.HasPrefix(path, prefix)
	})
}

func (g GroupResources) matches(record Record) bool {
	if g.Group != record.Resource.Group {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if !anyOrHas(g.ResourceNames, record.RequestedName()) {
		return false
	}
	resource, subresource := record.Resource.Resource, record.Resource.Subresource
	return slices.ContainsFunc(g.Resources, func(spec string) bool {
		switch {
		case spec == "*", subresource == "" && spec == resource:
			return true
		case subresource != "" && (spec == resource+"/"+subresource || spec == "*/"+subresource):
			return true
		}
		return spec == resource+"/*"
	})
}
