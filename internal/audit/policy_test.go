// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestParsePolicyRefusesWhatNoServerStartsWith(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	cases := []struct{ name, text, want string }{
		{"a version that servers dropped", "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]", "audit.k8s.io/v1beta1"},
		{"no rules", head, "no rules"},
		{"no level", head + "rules: [{users: [a]}]", `rule 1: level: "" is no level`},
		{"a level in another case", head + "rules: [{level: none}]", `"none" is no level`},
		{"an unknown stage", head + "omitStages: [Done]\nrules: [{level: None}]", `"Done" is no stage`},
		{"an unknown stage of a rule", head + "rules: [{level: None}, {level: None, omitStages: [Done]}]", "rule 2: omitStages"},
		{"a path and a resource", head + "rules: [{level: None, nonResourceURLs: [/x], namespaces: [a]}]", "not both"},
		{"a relative path", head + "rules: [{level: None, nonResourceURLs: [x]}]", "does not begin with /"},
		{"a star within a path", head + "rules: [{level: None, nonResourceURLs: ['/*/x']}]", "before its end"},
		{"a group with its version", head + "rules: [{level: None, resources: [{group: apps/v1}]}]", "no API group"},
		{"names without resources", head + "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]", "need resources"},
		{"no YAML", "a: b: c", "read YAML"},
		{"a list where a text belongs", head + "rules: [{level: [None]}]", "read the policy's fields"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParsePolicy([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ParsePolicy = %v, want %q in it", err, c.want)
			}
		})
	}
	t.Run("a field that servers do not know is passed over, and one in another case is not known", func(t *testing.T) {
		p, err := ParsePolicy([]byte(head + "rules: [{level: Metadata, Users: [ann], news: 1}]"))
		if err != nil {
			t.Fatal(err)
		}
		if level, rule := p.Level(Record{User: "bob"}); level != Metadata || rule != 1 {
			t.Errorf("Level = %s by rule %d, want Metadata by rule 1", level, rule)
		}
	})
}

func TestPolicyLevel(t *testing.T) {
	pod := Record{User: "ann", Groups: []string{"dev", "all"}, Verb: "get", Namespace: "shop", Name: "web", Resource: Resource{Version: "v1", Resource: "pods"}}
	with := func(change func(*Record)) Record {
		r := pod
		change(&r)
		return r
	}
	log := with(func(r *Record) { r.Resource.Subresource = "log" })
	create := with(func(r *Record) { r.Verb = "create" })
	node := with(func(r *Record) { r.Resource.Resource, r.Namespace = "nodes", "" })
	path := Record{User: "ann", Verb: "get", RequestURI: "/healthz/etcd?verbose"}
	cases := []struct {
		name, rule string
		record     Record
		matches    bool
	}{
		{"an empty rule matches a resource", "{}", pod, true},
		{"an empty rule matches a path", "{}", path, true},
		{"a user", "{users: [bob, ann]}", pod, true},
		{"another user", "{users: [bob]}", pod, false},
		{"the user who asks counts, not whom he impersonates", "{users: [bob]}", with(func(r *Record) { r.Impersonated = "bob" }), false},
		{"one of the groups", "{userGroups: [all]}", pod, true},
		{"none of the groups", "{userGroups: [ops]}", pod, false},
		{"a verb and a user must both match", "{users: [ann], verbs: [list]}", pod, false},
		{"a namespace", "{namespaces: [shop]}", pod, true},
		{"the empty namespace is that of the cluster's objects", "{namespaces: ['']}", node, true},
		{"the empty namespace is not every namespace", "{namespaces: ['']}", pod, false},
		{"a namespace matches no path", "{namespaces: ['']}", path, false},
		{"a group alone is all of it", "{resources: [{group: ''}]}", log, true},
		{"another group", "{resources: [{group: apps}]}", pod, false},
		{"a resource", "{resources: [{resources: [pods]}]}", pod, true},
		{"a resource is not its subresources", "{resources: [{resources: [pods]}]}", log, false},
		{"a subresource", "{resources: [{resources: [pods/log]}]}", log, true},
		{"a resource with all subresources", "{resources: [{resources: [pods/*]}]}", log, true},
		{"a resource with all subresources is also itself", "{resources: [{resources: [pods/*]}]}", pod, true},
		{"a subresource of all resources", "{resources: [{resources: ['*/log']}]}", log, true},
		{"a star is subresources too", "{resources: [{resources: ['*']}]}", log, true},
		{"a name", "{resources: [{resources: [pods], resourceNames: [web]}]}", pod, true},
		{"another name", "{resources: [{resources: [pods], resourceNames: [db]}]}", pod, false},
		{"the name of what is created is not known yet", "{resources: [{resources: [pods], resourceNames: [web]}]}", create, false},
		{"a path before its query", "{nonResourceURLs: [/healthz/etcd]}", path, true},
		{"a path with a star", "{nonResourceURLs: [/healthz*]}", path, true},
		{"every path", "{nonResourceURLs: ['*']}", path, true},
		{"a path is not what is below it", "{nonResourceURLs: [/healthz]}", path, false},
		{"every path is no resource", "{nonResourceURLs: ['*']}", pod, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var rule map[string]any
			if err := yaml.Unmarshal([]byte(c.rule), &rule); err != nil {
				t.Fatal(err)
			}
			rule["level"] = "Request"
			body, err := yaml.Marshal(map[string]any{"apiVersion": policyVersion, "kind": "Policy", "rules": []any{rule}})
			if err != nil {
				t.Fatal(err)
			}
			p, err := ParsePolicy(body)
			if err != nil {
				t.Fatal(err)
			}
			level, number := p.Level(c.record)
			if c.matches && (level != Request || number != 1) || !c.matches && (level != None || number != 0) {
				t.Errorf("Level = %s by rule %d, want a match: %t", level, number, c.matches)
			}
		})
	}
	t.Run("stages are left out by the policy, and by the rule", func(t *testing.T) {
		p := Policy{OmitStages: []Stage{RequestReceived}, Rules: []Rule{{OmitStages: []Stage{Panic}}, {}}}
		if !p.Omits(0, RequestReceived) || !p.Omits(1, Panic) || p.Omits(2, Panic) || p.Omits(1, ResponseComplete) {
			t.Error("Omits does not tell the stages of rules apart")
		}
	})
}

func TestARequestOfAnUnknownUserMayFallUnderSeveralRules(t *testing.T) {
	service := Record{Verb: "update", Namespace: "shop", Name: "web", Resource: Resource{Resource: "services"}}
	cases := []struct {
		name  string
		rules []Rule
		want  []int
	}{
		{"a rule for everybody decides", []Rule{{}, {}}, []int{1}},
		{"rules for some users come before it", []Rule{{Users: []string{"ann"}}, {Verbs: []string{"get"}}, {UserGroups: []string{"ops"}}, {}, {}}, []int{1, 3, 4}},
		{"no rule for everybody", []Rule{{Users: []string{"ann"}}}, []int{1, 0}},
		{"a rule about something else", []Rule{{Resources: []GroupResources{{Group: "apps"}}}}, []int{0}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := (Policy{Rules: c.rules}).Possible(service); !slices.Equal(got, c.want) {
				t.Errorf("Possible = %v, want %v", got, c.want)
			}
		})
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, nonResourceURLs: ['/a*', '']}]", "/a")
	f.Add("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, resources: [{resources: [pods, '*/x', 'a/*']}]}]", "pods")
	f.Fuzz(func(t *testing.T, text, word string) {
		p, err := ParsePolicy([]byte(text))
		if err != nil {
			return
		}
		for _, r := range []Record{{RequestURI: word}, {Verb: word, Resource: Resource{Resource: word, Subresource: word}}} {
			level, rule := p.Level(r)
			if rule == 0 && level != None || rule > 0 && p.Rules[rule-1].Level != level {
				t.Errorf("Level = %s by rule %d of %q", level, rule, text)
			}
		}
	})
}
