// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-io/fairlead/internal/rbac"
)

// consequence is what is said of any subject that loses something; of accounts,
// whether they go too.
func (j *rights) consequence(losses []rbac.Loss, accounts []account, severity Severity, title string) Consequence {
	q := Consequence{Severity: severity, ID: "rights-lost", Title: title, Objects: j.causes(losses, accounts...)}
	for _, o := range q.Objects {
		j.told[o] = true
	}
	for _, a := range accounts {
		if j.accounts[a] != nil {
			q.Detail = append(q.Detail, fmt.Sprintf("ServiceAccount %s goes: what its pods ask for is refused as from nobody.", a))
		}
	}
	q.Detail = slices.Concat(q.Detail, exactly(losses, title), kept(losses), j.dangling(losses), j.aggregated(losses), comesBack(q.Objects))
	return q
}

// most is how many of a kind a detail names.
const most = 10

func enough(list []string) string {
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// exactly is all that is lost, by namespace, if it is more than the title says.
func exactly(losses []rbac.Loss, title string) []string {
	byNamespace := map[string][]rbac.Loss{}
	for _, l := range losses {
		byNamespace[l.Namespace] = append(byNamespace[l.Namespace], l)
	}
	var out []string
	for i, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		if i == most {
			return append(out, fmt.Sprintf("Lost in %d namespaces more.", len(byNamespace)-most))
		}
		if text := rbac.LossList(byNamespace[namespace]); !strings.Contains(title, text) {
			out = append(out, "Lost: "+text+".")
		}
	}
	return out
}

// kept is what goes on to allow a part of what is lost.
func kept(losses []rbac.Loss) []string {
	found := map[string]bool{}
	for _, l := range losses {
		for _, g := range l.Kept {
			found[fmt.Sprintf("%s (%s)", g.Binding, g.Role)] = true
		}
	}
	if len(found) == 0 {
		return nil
	}
	return []string{"A part of that is still granted by " + enough(slices.Sorted(maps.Keys(found))) + "."}
}

// dangling are the bindings that stay under a role that goes.
func (j *rights) dangling(losses []rbac.Loss) []string {
	found := map[string]bool{}
	for _, l := range losses {
		for _, g := range l.By {
			if j.gone[g.Role] != nil && j.gone[g.Binding] == nil {
				found[g.Binding.String()] = true
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	list := slices.Sorted(maps.Keys(found))
	return []string{fmt.Sprintf("%s %s, and %s a role that is gone: whoever makes one of that name grants what it says.",
		enough(list), verb(len(list), "stays", "stay"), verb(len(list), "names", "name"))}
}

// aggregated are the roles that stay and lose the rules of one that goes.
func (j *rights) aggregated(losses []rbac.Loss) []string {
	found := map[string]bool{}
	for _, l := range losses {
		for _, g := range l.By {
			if given := j.byRole[g.Role]; len(given) > 0 && j.gone[g.Role] == nil {
				found[fmt.Sprintf("%s has rules of %s by aggregation, and loses them with it.", g.Role, some(given))] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// bootstrapLabel is on the roles and bindings that an API server makes itself.
const bootstrapLabel = "kubernetes.io/bootstrapping"

// comesBack names what an API server makes again.
func comesBack(objects []*Object) []string {
	var own []*Object
	for _, o := range objects {
		if content := o.Content; content != nil && content.GetLabels()[bootstrapLabel] == "rbac-defaults" {
			own = append(own, o)
		}
	}
	if len(own) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("An API server makes %s again when it starts, and not before.", enough(names(own)))}
}

// controllers is the consequence for those of kube-controller-manager.
func (j *rights) controllers() []Consequence {
	if len(j.manager) == 0 {
		return nil
	}
	var losses []rbac.Loss
	var who, affected []string
	for _, s := range j.manager {
		losses = append(losses, s.losses...)
		who, affected = append(who, s.Name), append(affected, "ServiceAccount "+s.account().String())
	}
	title := fmt.Sprintf("%d controllers of kube-controller-manager stop: %s", len(who), sentence(who))
	if len(who) == 1 {
		title = fmt.Sprintf("%s of kube-controller-manager stops: it", who[0])
	}
	q := j.consequence(losses, nil, Outage, title+" may no longer "+rbac.LossSummary(losses))
	q.Rank, q.Affected = residentsNow.of(j.State).running, affected
	return []Consequence{q}
}

// tell notes that it is known what becomes of the objects behind losses.
func (j *rights) tell(losses []rbac.Loss) {
	for _, o := range j.causes(losses) {
		j.told[o] = true
	}
}

// notes are of what the command names and nobody loses anything by, as far as is
// known: what could not be read is no note.
func (j *rights) notes() []Consequence {
	var out []Consequence
	for _, s := range j.idle {
		q := j.consequence(s.losses, []account{s.account()}, Note, fmt.Sprintf("ServiceAccount %s may no longer %s, and nobody runs as it", s.account(), rbac.LossSummary(s.losses)))
		q.Affected = []string{"ServiceAccount " + s.account().String()}
		q.Detail = append(q.Detail, "A token of it that was given away, as to a pipeline, could not be seen here.")
		out = append(out, q)
	}
	for _, gr := range accessKinds {
		if j.Unknown(gr) != "" {
			return out
		}
	}
	byReason := map[string][]*Object{}
	for ref, o := range j.gone {
		if cause, _ := j.Gone(o); cause.By == nil && !j.told[o] {
			reason := j.harmless(ref)
			byReason[reason] = append(byReason[reason], o)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		objects := byReason[reason]
		slices.SortFunc(objects, func(a, b *Object) int { return strings.Compare(a.String(), b.String()) })
		out = append(out, Consequence{
			Severity: Note, ID: "rights-unused", Title: some(objects) + ": " + reason, Objects: objects, Detail: comesBack(objects),
		})
	}
	return out
}

// harmless is why nobody loses anything by a role or a binding.
func (j *rights) harmless(ref rbac.Ref) string {
	if !strings.HasSuffix(ref.Kind, "Binding") {
		if len(j.policy.BindingsTo(ref)) == 0 {
			return "nobody is bound to it"
		}
		return spared
	}
	if len(j.policy.SubjectsOf(ref)) == 0 {
		return "it names nobody"
	}
	if role := roleOf(j.gone[ref]); !j.policy.Exists(role) {
		return "its role does not exist, so that it grants nothing"
	}
	return spared
}

const spared = "nobody loses anything: others grant the same, or nobody is there to lose it"

// roleOf is the role that a binding names.
func roleOf(binding *Object) rbac.Ref {
	var to rbacv1.RoleRef
	switch b := binding.Content.(type) {
	case *rbacv1.ClusterRoleBinding:
		to = b.RoleRef
	case *rbacv1.RoleBinding:
		to = b.RoleRef
	}
	role := rbac.Ref{Kind: to.Kind, Name: to.Name}
	if to.Kind == "Role" {
		role.Namespace = binding.Namespace
	}
	return role
}
