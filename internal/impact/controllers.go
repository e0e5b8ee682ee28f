// SPDX-License-Identifier: Apache-2.0

package impact

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// controller is who takes a finalizer away.
type controller struct {
	// finalizer is it, or what it begins with if it ends in a slash.
	finalizer string
	title     string
	// runs are names by which its pods are known: of a container, or their label
	// app.kubernetes.io/name.
	runs []string
	// outside says that it need not be a pod of the cluster: many providers run it
	// themselves.
	outside bool
	// does is what it does before, if people would not think of it.
	does string
}

const (
	cloud  = "the cloud's service controller"
	awsLB  = "the AWS Load Balancer Controller"
	argoCD = "Argo CD's application controller"
)

var (
	awsNames  = []string{"aws-load-balancer-controller"}
	argoNames = []string{"argocd-application-controller"}
)

// controllers are those that install finalizers in many clusters.
func controllers() []controller {
	return []controller{
		{"service.kubernetes.io/load-balancer-cleanup", cloud, []string{"cloud-controller-manager"}, true, "it deletes the load balancer, and so the Service's address outside of the cluster"},
		{"networking.gke.io/", "GKE's network controllers", nil, true, ""},
		{"service.k8s.aws/", awsLB, awsNames, false, "it deletes the load balancer, and so the Service's address outside of the cluster"},
		{"elbv2.k8s.aws/", awsLB, awsNames, false, ""},
		{"ingress.k8s.aws/", awsLB, awsNames, false, "it deletes the load balancer, and so the Ingress's address"},
		{"karpenter.sh/", "Karpenter", []string{"karpenter"}, true, "it drains the node and ends its machine"},
		{"acme.cert-manager.io/", "cert-manager", []string{"cert-manager", "cert-manager-controller"}, false, ""},
		{"finalizer.acme.cert-manager.io", "cert-manager", []string{"cert-manager", "cert-manager-controller"}, false, ""},
		{"resources-finalizer.argocd.argoproj.io", argoCD, argoNames, true, "it deletes all that the Application deployed"},
		{"resources-finalizer.argocd.argoproj.io/", argoCD, argoNames, true, "it deletes all that the Application deployed"},
		{"finalizers.fluxcd.io", "Flux", []string{"kustomize-controller", "helm-controller", "source-controller", "notification-controller"}, false, "it deletes what was deployed, if it is set to prune"},
		{"external-attacher/", "the CSI driver's attacher", []string{"csi-attacher"}, true, ""},
		{"external-provisioner.volume.kubernetes.io/", "the CSI driver's provisioner", []string{"csi-provisioner"}, true, ""},
		{"snapshot.storage.kubernetes.io/", "the snapshot controller", []string{"snapshot-controller"}, true, ""},
		{"finalizer.keda.sh", "KEDA's operator", []string{"keda-operator"}, false, ""},
	}
}

func controllerOf(finalizer string) (controller, bool) {
	all := controllers()
	i := slices.IndexFunc(all, func(k controller) bool {
		return finalizer == k.finalizer || strings.HasSuffix(k.finalizer, "/") && strings.HasPrefix(finalizer, k.finalizer)
	})
	if i < 0 {
		return controller{}, false
	}
	return all[i], true
}

// podsNamed are the running pods that are known by one of the names.
func (s *State) podsNamed(names []string) []PodOf {
	var out []PodOf
	for _, name := range names {
		out = append(out, podsByName.of(s)[name]...)
	}
	return out
}

var podsByName = newIndex(func(s *State) map[string][]PodOf {
	of := map[string][]PodOf{}
	for o, pod := range Contents[*corev1.Pod](s, Pods) {
		if !runs(pod) {
			continue
		}
		names := []string{pod.Labels["app.kubernetes.io/name"]}
		for i := range pod.Spec.Containers {
			names = append(names, pod.Spec.Containers[i].Name)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			of[name] = append(of[name], PodOf{o, pod})
		}
	}
	return of
})

// writer is a ServiceAccount that may change objects, with what says so.
type writer struct {
	namespace, name string
	binding         *Object
	role            Key
}

// writers are the running pods whose ServiceAccount may change objects of a
// group by rules that name it, before the delete and after. Who may change
// everything proves nothing.
func (c *Case) writers(group string) (before, after []PodOf) {
	may := map[account]bool{} // and whether it still may
	for _, w := range writersByGroup.of(c.State)[group] {
		a := account{w.namespace, w.name}
		may[a] = may[a] || c.stays(w.binding) && !c.GoneKey(c.State, w.role)
	}
	for a, still := range may {
		for _, p := range c.PodsIn(a.namespace) {
			if !runs(p.Pod) || accountOf(p.Pod) != a {
				continue
			}
			before = append(before, p)
			if still && c.stays(p.Object) {
				after = append(after, p)
			}
		}
	}
	return before, after
}

// writersByGroup are the accounts that may update or patch something in an API
// group that is not Kubernetes' own.
var writersByGroup = newIndex(func(s *State) map[string][]writer {
	groups := map[Key][]string{}
	for o, role := range Contents[*rbacv1.ClusterRole](s, ClusterRoles) {
		groups[o.Key()] = written(role.Rules)
	}
	for o, role := range Contents[*rbacv1.Role](s, Roles) {
		groups[o.Key()] = written(role.Rules)
	}
	of := map[string][]writer{}
	bind := func(binding *Object, to rbacv1.RoleRef, subjects []rbacv1.Subject) {
		role := Key{ClusterRoles, "", to.Name}
		if to.Kind == "Role" {
			role = Key{Roles, binding.Namespace, to.Name}
		}
		for _, group := range groups[role] {
			for _, subject := range subjects {
				if subject.Kind == rbacv1.ServiceAccountKind {
					of[group] = append(of[group], writer{cmp.Or(subject.Namespace, binding.Namespace), subject.Name, binding, role})
				}
			}
		}
	}
	for o, b := range Contents[*rbacv1.ClusterRoleBinding](s, ClusterRoleBindings) {
		bind(o, b.RoleRef, b.Subjects)
	}
	for o, b := range Contents[*rbacv1.RoleBinding](s, RoleBindings) {
		bind(o, b.RoleRef, b.Subjects)
	}
	return of
})

// written are the API groups of others in which rules let somebody change what
// is there.
func written(rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, rule := range rules {
		if !slices.ContainsFunc(rule.Verbs, func(verb string) bool { return verb == "update" || verb == "patch" || verb == "*" }) {
			continue
		}
		for _, group := range rule.APIGroups {
			if group != "*" && !ofKubernetes(group) && !slices.Contains(out, group) {
				out = append(out, group)
			}
		}
	}
	return out
}
