// SPDX-License-Identifier: Apache-2.0

// Package parts finds the components of a cluster's network among its objects
// and its logs, reads what a component said of late, and knows from what its
// objects can be put back.
//
// It is what several checks need alike. What is wrong with a component is for
// the checks to say.
package parts

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/rbac"
)

// Part is a component that runs in a cluster, under one service account.
type Part struct {
	rbac.Component
	Namespace, Account string
	// Workload is what keeps it running, as daemonset/NAME; "" if that is not
	// known.
	Workload string
	// Pods are those that are known, by name.
	Pods []*corev1.Pod
	// Object is what shows that it runs, and Record where that stands.
	Object any
	Record *evidence.Record
	// OwnAccount is that the API server knows it by its service account.
	OwnAccount bool
}

// Name is NAMESPACE/SERVICEACCOUNT.
func (p *Part) Name() string { return p.Namespace + "/" + p.Account }

// User is what the API server knows it by.
func (p *Part) User() rbac.User { return rbac.ServiceAccount(p.Namespace, p.Account) }

// Nodes are those on which pods of it are known to be.
func (p *Part) Nodes() []string {
	var out []string
	for _, pod := range p.Pods {
		if pod.Spec.NodeName != "" {
			out = append(out, pod.Spec.NodeName)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Restart is the command that starts it anew; "" if that is not known.
func (p *Part) Restart() string {
	if p.Workload == "" {
		return ""
	}
	return doctor.Kubectl(p.Namespace, "rollout", "restart", p.Workload)
}

// Of are the components that the objects show, in the order of the list of
// components.
func Of(o *facts.Objects) []Part {
	if o == nil {
		return nil
	}
	var out []Part
	for _, c := range rbac.Components() {
		in := finder{component: c}
		for _, d := range o.DaemonSets {
			in.workload(o, "daemonset", d, d.Spec.Template, d.Spec.Selector)
		}
		for _, d := range o.Deployments {
			in.workload(o, "deployment", d, d.Spec.Template, d.Spec.Selector)
		}
		for _, pod := range o.Pods {
			in.pod(o, pod)
		}
		out = append(out, in.found...)
	}
	return out
}

// finder collects the parts that are one component.
type finder struct {
	component rbac.Component
	found     []Part
	selectors []labels.Selector // of the parts found by their workloads
}

func (f *finder) workload(o *facts.Objects, kind string, object metav1.Object, template corev1.PodTemplateSpec, selector *metav1.LabelSelector) {
	if !f.component.Runs(template.Labels, &template.Spec) {
		return
	}
	selects, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		selects = labels.Nothing()
	}
	f.selectors = append(f.selectors, selects)
	f.found = append(f.found, Part{
		Component: f.component, Namespace: object.GetNamespace(), Account: template.Spec.ServiceAccountName,
		Workload: kind + "/" + object.GetName(), Object: object, Record: o.Record(object), OwnAccount: ownAccount(o, object.GetNamespace(), &template.Spec),
	})
}

// pod puts a pod with the workload that it is of, or with others of its account.
func (f *finder) pod(o *facts.Objects, pod *corev1.Pod) {
	if !f.component.Runs(pod.Labels, &pod.Spec) {
		return
	}
	for i := range f.found {
		p := &f.found[i]
		if p.Namespace == pod.Namespace && f.belongs(i, pod) {
			p.Pods = append(p.Pods, pod)
			return
		}
	}
	f.selectors = append(f.selectors, labels.Nothing())
	f.found = append(f.found, Part{
		Component: f.component, Namespace: pod.Namespace, Account: pod.Spec.ServiceAccountName,
		Pods: []*corev1.Pod{pod}, Object: pod, Record: o.Record(pod), OwnAccount: ownAccount(o, pod.Namespace, &pod.Spec) && !isStatic(pod),
	})
}

func (f *finder) belongs(i int, pod *corev1.Pod) bool {
	p := &f.found[i]
	if p.Workload != "" {
		return f.selectors[i].Matches(labels.Set(pod.Labels))
	}
	return p.Account == pod.Spec.ServiceAccountName
}

// ownAccount says whether the API server knows a pod by its service account: not
// if a ConfigMap gives it a kubeconfig with credentials of somebody else's.
func ownAccount(o *facts.Objects, namespace string, spec *corev1.PodSpec) bool {
	if !rbac.IsItsAccount(spec) {
		return false
	}
	return !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap == nil {
			return false
		}
		config := facts.Find[corev1.ConfigMap](o, namespace+"/"+v.ConfigMap.Name)
		return config != nil && slices.ContainsFunc(slices.Collect(maps.Values(config.Data)), hasCredentials)
	})
}

// credentials are the keys of a kubeconfig for what is no service account's token.
var credentials = regexp.MustCompile(`(?m)^\s*-?\s*(?:client-certificate|client-certificate-data|token|exec|username|auth-provider)\s*:`)

// hasCredentials says whether a text is a kubeconfig with credentials of its own.
func hasCredentials(text string) bool {
	return strings.Contains(text, "kind: Config\n") && strings.Contains(text, "users:") && credentials.MatchString(text)
}

// isStatic says whether a pod is the image of one that a kubelet runs by itself,
// without a service account's token.
func isStatic(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// Speaker is who wrote a log, in whichever of its containers, as well as
// objects and the log's own name tell. Without objects the names are those that
// the component's installer gives.
func Speaker(all []Part, l *facts.Log) (Part, bool) {
	namespace, name, found := strings.Cut(l.Pod, "/")
	if !found { // a log that is named after its container alone
		namespace = "kube-system"
	}
	for _, p := range all {
		if slices.ContainsFunc(p.Pods, func(pod *corev1.Pod) bool { return pod.Namespace == namespace && pod.Name == name }) {
			return p, true
		}
	}
	for _, p := range all {
		if p.Namespace == namespace && p.Container == l.Container {
			return p, true
		}
	}
	for _, c := range rbac.Components() {
		if c.Container != "" && l.Container == c.Container && (len(c.Labels) == 0 || strings.HasPrefix(name, c.ID)) {
			return Part{Component: c, Namespace: namespace, Account: c.Account, Record: l.Record}, true
		}
	}
	return Part{}, false
}

// Pod returns the pod that wrote a log; nil if it is not among the objects.
func Pod(o *facts.Objects, l *facts.Log) *corev1.Pod {
	if l.Pod == "" {
		return nil
	}
	return facts.Find[corev1.Pod](o, l.Pod)
}

// Image is that of the part's container; "" if it is not known.
func (p *Part) Image() string {
	spec := podSpec(p.Object)
	if spec == nil {
		return ""
	}
	for _, k := range spec.Containers {
		if k.Name == p.Container {
			return k.Image
		}
	}
	return ""
}

func podSpec(object any) *corev1.PodSpec {
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *corev1.Pod:
		return &o.Spec
	}
	return nil
}

// Wanted is how many pods a part is to have: a workload may be left over, and
// wanted on no node.
func (p *Part) Wanted() int {
	switch o := p.Object.(type) {
	case *appsv1.DaemonSet:
		return int(o.Status.DesiredNumberScheduled)
	case *appsv1.Deployment:
		if o.Spec.Replicas != nil {
			return int(*o.Spec.Replicas)
		}
	}
	return 1
}

// Objects are the newest of a case that show who runs, or the newest of any
// kind if none do; nil if there are none.
func Objects(c *facts.Case) *facts.Objects {
	var newest *facts.Objects
	for _, s := range slices.Backward(c.Samples) {
		if s.Objects == nil {
			continue
		}
		if len(s.Objects.Pods)+len(s.Objects.DaemonSets) > 0 {
			return s.Objects
		}
		if newest == nil {
			newest = s.Objects
		}
	}
	return newest
}
