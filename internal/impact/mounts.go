// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// judgeMounts says who lacks Secrets, ConfigMaps and ServiceAccounts that go.
func judgeMounts(c *Case) []Consequence {
	var out []Consequence
	for _, gr := range []schema.GroupResource{Secrets, ConfigMaps, ServiceAccounts} {
		gone := c.Deleted(gr)
		if len(gone) == 0 {
			continue
		}
		c.needUsers("who uses them")
		if gr == Secrets {
			c.needUsers("who uses them", Ingresses, ServiceAccounts, Volumes)
		}
		var unused []*Object
		for _, o := range gone {
			if !isOwn(o) && c.GoneKey(c.State, Key{Namespaces, "", o.Namespace}) {
				continue // nothing makes it again, and who used it goes too
			}
			found := c.configGone(o)
			if len(found) == 0 {
				unused = append(unused, o)
			}
			out = append(out, found...)
		}
		if n := len(unused); n > 0 {
			out = append(out, Consequence{
				Severity: Note, ID: "unused", Objects: unused,
				Title: fmt.Sprintf("nothing that runs uses %s", some(unused)),
			})
		}
	}
	return out
}

// configGone is of one of them; nothing if nobody uses it.
func (c *Case) configGone(o *Object) []Consequence {
	if q := known(o); q != nil {
		return []Consequence{*q}
	}
	var out []Consequence
	if q := c.readByName(o); q != nil {
		out = append(out, *q)
	}
	if q := c.token(o); q != nil {
		out = append(out, *q)
	}
	users := c.users(o.Key())
	for _, e := range effects {
		hit := slices.DeleteFunc(slices.Clone(users), func(u user) bool { return !slices.Contains(e.how, u.how) })
		if hit = c.inService(hit); len(hit) > 0 {
			out = append(out, c.lacking(o, hit, e))
		}
	}
	return out
}

// effect is what people see of users that lack what they name.
type effect struct {
	how   []string
	id    string
	title string // with the users, and what goes
	soft  string // the same for users that do without
}

var effects = []effect{
	{[]string{mounts, reads}, "needed-to-start", "%s cannot start again without %s", "%s starts without %s from now on"},
	{[]string{runsAs}, "account-gone", "%s loses its token for the API server and starts no new pod: it runs as %s", ""},
	{[]string{pullsWith, handedDown}, "pull-secret-gone", "%s may not pull images any more: %s opens the registry", ""},
	{[]string{opensWith}, "volume-secret-gone", "volumes of %s cannot be opened any more: %s is their key", ""},
	{[]string{encrypts}, "certificate-gone", "%s no longer serves TLS with its own certificate: it stands in %s", ""},
}

func (c *Case) lacking(o *Object, users []user, e effect) Consequence {
	q := Consequence{Severity: Breaks, Rank: max(1, podsOf(users)), ID: e.id, Objects: []*Object{o}, Affected: names(users)}
	hard := slices.DeleteFunc(slices.Clone(users), func(u user) bool { return u.optional })
	if len(hard) == 0 {
		q.Severity, q.Title = Note, fmt.Sprintf(e.soft, some(users), o)
		return q
	}
	q.Title = fmt.Sprintf(e.title, some(hard), o)
	if e.id == "account-gone" && podsOf(hard) > 0 {
		q.Detail = []string{"Once it is there again, new pods start; the tokens of those that run stay void, and they are refused until they are restarted."}
	}
	if e.id == "account-gone" && o.Name == "default" {
		q.Severity = Note
		q.Title = fmt.Sprintf("%s is made again at once, but the tokens that %s took of it are void", o, some(hard))
		return q
	}
	if n := podsOf(hard); n > 0 && e.id == "needed-to-start" {
		q.Detail = append(q.Detail, "Pods that run go on with what they read, until one ends or moves.")
		q.Detail = append(q.Detail, c.writesBehind(hard)...)
	}
	for _, u := range hard {
		if k := c.component(u.Object, u.pods); k != nil && k.Outage {
			q.Severity = Outage
			q.Title = fmt.Sprintf("%s when %s starts anew: %s", k.Sees, k.Title, q.Title)
			break
		}
	}
	return q
}

// writesBehind says which writes fail once those who answer for webhooks do not
// start again.
func (c *Case) writesBehind(users []user) []string {
	var out []string
	of := served.of(c.State)
	for _, u := range users {
		for _, pod := range u.pods {
			for _, service := range of[pod] {
				for _, h := range hooks.of(c.State)[service] {
					if h.fails && c.stays(h.config) && c.concerns(h) {
						out = append(out, fmt.Sprintf("Then %s are refused: they answer for %s, whose failurePolicy is Fail.", writes(h.rules), h.config))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// inService are the accounts as which something runs.
func (c *Case) inService(accounts []user) []user {
	var out []user
	for _, a := range accounts {
		if a.Resource.GroupResource() == ServiceAccounts {
			as := slices.DeleteFunc(c.users(a.Key()), func(u user) bool { return u.how != runsAs })
			if len(as) == 0 {
				continue
			}
			for _, u := range as {
				a.pods = append(a.pods, u.pods...)
			}
		}
		out = append(out, a)
	}
	return out
}

// known is of what a controller makes again, and of what Helm keeps.
func known(o *Object) *Consequence {
	if o.Content == nil {
		return nil
	}
	q := &Consequence{Severity: Note, Objects: []*Object{o}}
	gr, labels := o.Resource.GroupResource(), o.Content.GetLabels()
	switch {
	case gr == ConfigMaps && o.Name == "kube-root-ca.crt":
		q.ID, q.Title = "root-ca", o.String()+" comes back within seconds: the controller manager writes it into every namespace"
	case gr == ConfigMaps && o.Namespace == "kube-system" && o.Name == "extension-apiserver-authentication":
		q.ID, q.Title = "api-authentication", o.String()+" comes back within a minute: the API server writes it"
	case gr != ServiceAccounts && labels["owner"] == "helm" && labels["name"] != "":
		q.ID = "helm-release"
		release := o.Namespace + "/" + labels["name"]
		q.Title = fmt.Sprintf("Helm no longer has revision %s of release %s, which is %s", labels["version"], release, labels["status"])
		if labels["status"] == "deployed" {
			q.Severity, q.Rank = Breaks, 1
			q.Title = fmt.Sprintf("Helm forgets release %s: %s is its deployed revision", release, o)
			q.Detail = []string{"What the release made stays, but is neither upgraded nor uninstalled by Helm any more."}
		}
	default:
		return nil
	}
	return q
}

// token is of a Secret with a token of a ServiceAccount. API servers note on it
// when somebody last came with it.
func (c *Case) token(o *Object) *Consequence {
	if o.Resource.GroupResource() != Secrets || o.Content == nil {
		return nil
	}
	account := o.Content.GetAnnotations()[corev1.ServiceAccountNameKey]
	if account == "" {
		return nil
	}
	q := &Consequence{Severity: Note, ID: "token-gone", Objects: []*Object{o}, Affected: []string{"ServiceAccount " + o.Namespace + "/" + account}}
	labels := o.Content.GetLabels()
	used := labels["kubernetes.io/legacy-token-last-used"]
	switch {
	case labels["kubernetes.io/legacy-token-invalid-since"] != "":
		q.Title = o.String() + " holds a token that is invalid already"
	case used == "":
		q.Title = fmt.Sprintf("the token of %s goes; no use of it is noted", q.Affected[0])
	default:
		q.Severity, q.Rank = Breaks, 1
		q.Title = fmt.Sprintf("whoever comes with the token of %s is refused: it was last used on %s", q.Affected[0], used)
	}
	return q
}

// readers are what reads a ConfigMap of a name through the API, so that no pod
// says so.
var readers = map[string]struct{ component, title string }{
	"cilium-config":  {component: "cilium-agent"},
	"kubeadm-config": {title: "kubeadm can neither join nodes nor upgrade"},
	"kubelet-config": {title: "kubeadm can neither join nodes nor upgrade"},
	"aws-auth":       {title: "nodes and users whose identity is one of AWS are let in no more"},
}

func (c *Case) readByName(o *Object) *Consequence {
	reader, ok := readers[o.Name]
	if !ok || o.Resource.GroupResource() != ConfigMaps || reader.component == "" && o.Namespace != "kube-system" {
		return nil
	}
	q := &Consequence{Severity: Breaks, Rank: 1, ID: "config-gone", Objects: []*Object{o}, Title: reader.title + ": they read " + o.String()}
	switch {
	case o.Name == "aws-auth":
		q.Severity = Outage
	case reader.component == "":
		q.Title = reader.title + ": it reads " + o.String()
	default:
		return c.configOf(q, o, reader.component)
	}
	return q
}

// configOf is of the configuration of a component; nil if none of its pods runs.
func (c *Case) configOf(q *Consequence, o *Object, id string) *Consequence {
	i := slices.IndexFunc(c.Components(), func(r Running) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	k := c.Components()[i]
	var pods []*Object
	for _, p := range k.Pods {
		if p.Namespace == o.Namespace && c.stays(p.Object) {
			pods = append(pods, p.Object)
		}
	}
	if len(pods) == 0 {
		return nil
	}
	q.Severity, q.Rank, q.Affected = severityOf(&k.Component), len(pods), names(pods)
	q.Title = fmt.Sprintf("%s when %s starts anew: it reads %s (%s)", k.Sees, k.Title, o, count(len(pods), "running pod"))
	return q
}
