// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

var ciliumUser = rbac.ServiceAccount("kube-system", "cilium")

// bound is a policy that gives Cilium rules everywhere, and others in one
// namespace, besides what everyone has.
func bound(everywhere, local []rbacv1.PolicyRule) *rbac.Policy {
	ref := func(name string) rbacv1.RoleRef { return rbacv1.RoleRef{Kind: "ClusterRole", Name: name} }
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "cilium"}}
	return rbac.New(nil,
		[]*rbacv1.RoleBinding{{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "local"}, RoleRef: ref("local"), Subjects: account}},
		[]*rbacv1.ClusterRole{
			{ObjectMeta: metav1.ObjectMeta{Name: "cilium"}, Rules: everywhere},
			{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Rules: local},
			{ObjectMeta: metav1.ObjectMeta{Name: "system:discovery"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/api", "/api/*"}}}},
		},
		[]*rbacv1.ClusterRoleBinding{
			{ObjectMeta: metav1.ObjectMeta{Name: "cilium"}, RoleRef: ref("cilium"), Subjects: account},
			{ObjectMeta: metav1.ObjectMeta{Name: "system:discovery"}, RoleRef: ref("system:discovery"), Subjects: []rbacv1.Subject{{Kind: "Group", Name: "system:authenticated"}}},
		})
}

func rule(groups, resources, verbs string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: strings.Split(groups, ","), Resources: strings.Split(resources, ","), Verbs: strings.Split(verbs, ","), ResourceNames: names}
}

func rules(all ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return all }

// lines are a comparison in few words.
func lines(c Comparison) (little, much []string) {
	text := func(r Rule) string {
		s := strings.Join(r.Verbs, ",") + " " + r.Target()
		if r.Namespace != "" {
			s += " in " + r.Namespace
		}
		if len(r.Names) > 0 {
			s += " " + strings.Join(r.Names, ",")
		}
		return s
	}
	for _, l := range c.TooLittle {
		little = append(little, text(l.Rule)+": "+strings.Join(l.Why, "; "))
	}
	for _, x := range c.TooMuch {
		s := text(x.Rule)
		if x.UsedFor != "" {
			s += ": only " + x.UsedFor
		}
		if x.Essential != "" {
			s += ": essential " + x.Essential
		}
		if x.Hidden != "" {
			s += ": " + x.Hidden
		}
		much = append(much, s)
	}
	return little, much
}

func TestCompare(t *testing.T) {
	refused := func(r *audit.Record) { r.Decision = "forbid" }
	inA := func(r *audit.Record) { r.Namespace = "a" }
	withName := func(name string) func(*audit.Record) { return func(r *audit.Record) { r.Name = name } }
	path := func(p string) func(*audit.Record) { return func(r *audit.Record) { r.RequestURI = p } }
	everything := func(u *Usage) { // so that no verb is one that the log does not have
		for _, verb := range verbOrder[1:] {
			u.Add(record(verb, "events", func(r *audit.Record) { r.User = "somebody" }))
		}
	}
	policy, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- {level: None, verbs: [get]}\n- {level: Metadata, resources: [{group: \"\"}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name              string
		everywhere, local []rbacv1.PolicyRule
		used              []audit.Record
		partial           bool // the log has no more verbs than those
		policy            *audit.Policy
		needs             func(*Needs)
		little, much      []string
	}{
		{name: "what is used and granted fits", everywhere: rules(rule("", "pods", "list,watch")), used: []audit.Record{record("list", "pods"), record("watch", "pods")}},
		{name: "what is not used is too much, its verbs together", everywhere: rules(rule(",apps", "pods", "list,watch")), used: []audit.Record{record("list", "pods")},
			much: []string{"watch pods", "list,watch pods.apps"}},
		{name: "used, and no longer granted", used: []audit.Record{record("list", "pods"), record("watch", "pods")},
			little: []string{"list,watch pods: used, and no longer granted"}},
		{name: "asked for and refused, and still not granted", used: []audit.Record{record("list", "pods", refused)}, little: []string{"list pods: asked for and refused"}},
		{name: "it was taken away meanwhile", used: []audit.Record{record("list", "pods"), record("list", "pods", refused)},
			little: []string{"list pods: used, and no longer granted; asked for and refused"}},
		{name: "what was refused and is granted now is neither", everywhere: rules(rule("", "pods", "list")), used: []audit.Record{record("list", "pods", refused), record("list", "pods")}},
		{name: "what is granted now and was only refused is not used yet", everywhere: rules(rule("", "pods", "list")), used: []audit.Record{record("list", "pods", refused)}, much: []string{"list pods"}},
		{name: "a right in a namespace is none to all of them", local: rules(rule("", "pods", "list")), used: []audit.Record{record("list", "pods", inA), record("list", "pods")},
			little: []string{"list pods: used, and no longer granted"}},
		{name: "two bindings for one use are each used", everywhere: rules(rule("", "pods", "list")), local: rules(rule("", "pods", "list,get")),
			used: []audit.Record{record("list", "pods", inA)}, much: []string{"get pods in a"}},
		{name: "names", everywhere: rules(rule("", "configmaps", "get", "x", "y", "z")), used: []audit.Record{record("get", "configmaps", withName("y")), record("get", "configmaps", withName("w"))},
			little: []string{"get configmaps w: used, and no longer granted"}, much: []string{"get configmaps x,z"}},
		{name: "a wildcard that is used says for what", everywhere: rules(rule("cilium.io", "*", "*")),
			used: []audit.Record{record("list", "ciliumnodes", func(r *audit.Record) { r.Resource.Group = "cilium.io" })}, much: []string{"* *.cilium.io: only list ciliumnodes.cilium.io"}},
		{name: "a wildcard that is not", everywhere: rules(rule("*", "*", "*")), much: []string{"* *.*"}},
		{name: "paths", everywhere: rules(rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/logs/*", "/version"}}),
			used:   []audit.Record{record("get", "", path("/logs/a")), record("get", "", path("/metrics")), record("get", "", path("/debug"))},
			little: []string{"get /debug: used, and no longer granted"}, much: []string{"get /logs/*: only get /logs/a", "get /version"}},
		{name: "what everybody may do is never too much, nor too little", used: []audit.Record{record("get", "", path("/api")), record("get", "", path("/api/v1"))}},
		{name: "a verb that the log has of nobody is not known to be unused", everywhere: rules(rule("", "pods", "list,watch")), used: []audit.Record{record("list", "pods")}, partial: true,
			much: []string{"watch pods: the log has no watch of anybody: its policy may leave it out"}},
		{name: "nor what the policy leaves out", everywhere: rules(rule("", "pods", "get,list"), rule("apps", "deployments", "list")), policy: &policy,
			much: []string{"get pods: rule 1 of the audit policy leaves it out", "list pods", "list deployments.apps: no rule of the audit policy is about it"}},
		{name: "what others know to be needed is too little if it is not granted", everywhere: rules(rule("", "pods", "list")), used: []audit.Record{record("list", "pods")},
			needs: func(n *Needs) {
				n.Add("Helm release kube-system/cilium", right("list", "", "pods"))
				n.Add("Helm release kube-system/cilium", right("watch", "", "pods"))
				n.Add(Essential, right("watch", "", "pods"))
			},
			little: []string{"watch pods: needed by Helm release kube-system/cilium, built-in data (essential)"}},
		{name: "a list is not too much where the same is watched: it shows nothing more, and clients fall back on it", everywhere: rules(rule("", "pods", "get,list,watch")),
			used: []audit.Record{record("watch", "pods")}, much: []string{"get pods"}},
		{name: "but a list of something else is", everywhere: rules(rule("", "pods,nodes", "list,watch")), used: []audit.Record{record("watch", "pods")}, much: []string{"list,watch nodes"}},
		{name: "what no version of the component works without is never too much", everywhere: rules(rule("", "pods,secrets", "list")),
			needs: func(n *Needs) { n.Add(Essential, right("list", "", "pods")) }, much: []string{"list secrets"}},
		{name: "but what only a release grants is", everywhere: rules(rule("", "pods", "list")),
			needs: func(n *Needs) { n.Add("Helm release kube-system/cilium", right("list", "", "pods")) }, much: []string{"list pods"}},
		{name: "of a wildcard it is said", everywhere: rules(rule("", "*", "list,get")),
			needs: func(n *Needs) { n.Add(Essential, right("list", "", "pods")) }, much: []string{"get *", "list *: essential list pods"}},
		{name: "more names than are told apart are not judged where only names are granted", everywhere: rules(rule("", "secrets", "get", manyNames()...)),
			used: func() (all []audit.Record) {
				for _, name := range manyNames() {
					all = append(all, record("get", "secrets", withName(name)))
				}
				return all
			}(), much: []string{"get secrets " + strings.Join(manyNames()[maxNames:], ",")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			usage := NewUsage(cilium)
			for _, r := range c.used {
				usage.Add(r)
			}
			if !c.partial {
				everything(usage)
			}
			needs := &Needs{}
			if c.needs != nil {
				c.needs(needs)
			}
			got := Compare(Case{
				Access: NewAccess(bound(c.everywhere, c.local), ciliumUser), Uses: usage.Uses(), Needs: needs, Hidden: usage.Hidden(ciliumUser, c.policy),
			})
			little, much := lines(got)
			if !slices.Equal(little, c.little) || !slices.Equal(much, c.much) {
				t.Errorf("too little %q, want %q\ntoo much %q, want %q", little, c.little, much, c.much)
			}
		})
	}
}

// manyNames are more than are told apart.
func manyNames() (names []string) {
	for i := range maxNames + 4 {
		names = append(names, "s"+string(rune('a'+i)))
	}
	return names
}

// someRules are rules of few verbs, groups, resources, names and paths, so that
// they often meet.
func someRules() *rapid.Generator[[]rbacv1.PolicyRule] {
	some := func(words ...string) *rapid.Generator[[]string] {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(words), 1, 2, rapid.ID[string])
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{Verbs: some("get", "list", "watch", "*").Draw(t, "verbs")}
		if rapid.IntRange(0, 4).Draw(t, "path") == 0 {
			r.NonResourceURLs = some("/a", "/a/*", "*", "/b").Draw(t, "paths")
			return r
		}
		r.APIGroups = some("", "apps", "*").Draw(t, "groups")
		r.Resources = some("pods", "pods/log", "*/log", "*").Draw(t, "resources")
		if rapid.IntRange(0, 3).Draw(t, "named") == 0 {
			r.ResourceNames = some("x", "y").Draw(t, "names")
		}
		return r
	}), 0, 4)
}

func someRequest() *rapid.Generator[audit.Record] {
	return rapid.Custom(func(t *rapid.T) audit.Record {
		r := record(rapid.SampledFrom([]string{"get", "list", "watch"}).Draw(t, "verb"), "")
		if rapid.IntRange(0, 4).Draw(t, "path") == 0 {
			r.RequestURI = rapid.SampledFrom([]string{"/a", "/a/c", "/b", "/api", "/d"}).Draw(t, "uri")
			return r
		}
		r.Resource = audit.Resource{Resource: "pods", Group: rapid.SampledFrom([]string{"", "apps", "batch"}).Draw(t, "group"), Subresource: rapid.SampledFrom([]string{"", "log"}).Draw(t, "sub")}
		r.Namespace = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "namespace")
		r.Name = rapid.SampledFrom([]string{"", "x", "z"}).Draw(t, "name")
		return r
	})
}

func TestCompareProperties(t *testing.T) {
	t.Run("nothing is too little exactly if all that was used is allowed", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			policy := bound(someRules().Draw(t, "everywhere"), someRules().Draw(t, "local"))
			usage, fits := NewUsage(cilium), true
			for _, r := range rapid.SliceOfN(someRequest(), 0, 6).Draw(t, "used") {
				usage.Add(r)
				if r.Resource.Resource == "" {
					fits = fits && NewAccess(policy, ciliumUser).Allows(Right{Request: rbac.Request{Verb: r.Verb}, Path: r.RequestURI})
					continue
				}
				resource := r.Resource.Resource
				if r.Resource.Subresource != "" {
					resource += "/" + r.Resource.Subresource
				}
				_, may := policy.May(ciliumUser, rbac.Request{Verb: r.Verb, Group: r.Resource.Group, Resource: resource, Namespace: r.Namespace, Name: r.Name})
				fits = fits && may
			}
			got := Compare(Case{Access: NewAccess(policy, ciliumUser), Uses: usage.Uses()})
			if (len(got.TooLittle) == 0) != fits {
				t.Errorf("all is allowed: %v; too little: %+v", fits, got.TooLittle)
			}
		})
	})
	t.Run("without what is too much and no wildcard, all that was used is still allowed", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			policy := bound(someRules().Draw(t, "everywhere"), someRules().Draw(t, "local"))
			access := NewAccess(policy, ciliumUser)
			usage := NewUsage(cilium)
			for _, r := range rapid.SliceOfN(someRequest(), 0, 6).Draw(t, "used") {
				usage.Add(r)
			}
			excess := map[Right]bool{}
			for _, x := range Compare(Case{Access: access, Uses: usage.Uses()}).TooMuch {
				for _, r := range x.rights() {
					if x.UsedFor == "" {
						excess[r] = true
					}
				}
			}
			left := &Needs{}
			for _, g := range access.own() {
				if !excess[g.Right] {
					left.Add("left", g.Right)
				}
			}
			trimmed := NewAccess(applied(t, left.Rules()), ciliumUser)
			for _, u := range usage.Uses() {
				if access.Allows(u.Right) && !trimmed.Allows(u.Right) && !access.Everyones(u.Right) {
					t.Errorf("%s was allowed, and is no more without what was not used", u.Right)
				}
			}
		})
	})
	t.Run("roles made of needs give exactly them", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			access := NewAccess(bound(someRules().Draw(t, "everywhere"), someRules().Draw(t, "local")), ciliumUser)
			needs := &Needs{}
			needs.AddAccess("bindings", access)
			made := NewAccess(applied(t, needs.Rules()), ciliumUser)
			for _, r := range rapid.SliceOfN(someRequest(), 1, 20).Draw(t, "requests") {
				right, _ := judged(r)
				if want := access.Allows(right) && (!access.Everyones(right) || made.Allows(right)); made.Allows(right) != want {
					t.Errorf("%s: %v, want %v", right, made.Allows(right), want)
				}
			}
		})
	})
}

// applied is the policy of the roles that are printed for needs, bound to
// Cilium.
func applied(t *rapid.T, needs []Need) *rbac.Policy {
	text, err := Manifest("made", needs)
	if err != nil {
		t.Fatal(err)
	}
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "cilium"}}
	var clusterRoles []*rbacv1.ClusterRole
	var clusterBindings []*rbacv1.ClusterRoleBinding
	var roles []*rbacv1.Role
	var bindings []*rbacv1.RoleBinding
	for document := range strings.SplitSeq(text, "---\n") {
		var made rbacv1.Role
		if err := yaml.Unmarshal([]byte(document), &made); err != nil {
			t.Fatal(err)
		}
		ref := rbacv1.RoleRef{Kind: made.Kind, Name: made.Name}
		switch made.Kind {
		case "ClusterRole":
			clusterRoles = append(clusterRoles, &rbacv1.ClusterRole{ObjectMeta: made.ObjectMeta, Rules: made.Rules})
			clusterBindings = append(clusterBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: made.ObjectMeta, RoleRef: ref, Subjects: account})
		case "Role":
			roles = append(roles, &made)
			bindings = append(bindings, &rbacv1.RoleBinding{ObjectMeta: made.ObjectMeta, RoleRef: ref, Subjects: account})
		}
	}
	return rbac.New(roles, bindings, clusterRoles, clusterBindings)
}
