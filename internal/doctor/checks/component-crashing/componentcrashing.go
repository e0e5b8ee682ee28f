// SPDX-License-Identifier: Apache-2.0

// Package componentcrashing finds pods of the network's components that end
// again and again, or are not ready.
package componentcrashing

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/parts"
)

//go:embed README.md
var page string

// Check finds pods of components that do not run.
func Check() doctor.Check {
	return doctor.Check{
		ID: "component-crashing", Title: "components whose pods end again and again, or are not ready", Rank: doctor.RankPods,
		Page: page, Sample: find,
	}
}

// grace is for how long a pod may be not ready: it may just have been made.
const grace = 2 * time.Minute

func find(s *facts.Sample) []doctor.Finding {
	if s.Objects == nil {
		return nil
	}
	isPart := map[*corev1.Pod]*parts.Part{}
	known := parts.Of(s.Objects)
	for i := range known {
		for _, pod := range known[i].Pods {
			isPart[pod] = &known[i]
		}
	}
	var out []doctor.Finding
	for _, pod := range s.Objects.Pods {
		part := isPart[pod]
		if part == nil && pod.Namespace != "kube-system" || pod.DeletionTimestamp != nil {
			continue
		}
		if f, wrong := judge(s, pod, part); wrong {
			out = append(out, f)
		}
	}
	return out
}

func judge(s *facts.Sample, pod *corev1.Pod, part *parts.Part) (doctor.Finding, bool) {
	name := cmp.Or(facts.Controller(pod), "Pod "+pod.Namespace+"/"+pod.Name)
	if container := parts.Crashes(pod); container != nil {
		f := common(s, pod, name, fmt.Sprintf("%s (restarts: %d)", crashStatus(pod, container), container.RestartCount))
		f.Title = fmt.Sprintf("pods of %s end again and again: container %s", name, container.Name)
		f.Severity = doctor.Warning
		if part != nil && !othersServe(part) {
			f.Severity = doctor.Critical
		}
		f.Evidence[0].Excerpt += lastWords(container)
		f.Remedy = []doctor.Remedy{{
			Text:     "Read what it said before it ended.",
			Commands: []string{doctor.Kubectl(pod.Namespace, "logs", pod.Name, "--container", container.Name, "--previous")},
		}}
		return f, true
	}
	condition := parts.NotReady(pod)
	if condition == nil || pod.Spec.NodeName == "" || condition.LastTransitionTime.After(s.From.Add(s.Objects.Skew()-grace)) {
		return doctor.Finding{}, false
	}
	f := common(s, pod, name, strings.TrimSpace("not ready "+condition.Reason+" "+condition.Message))
	f.Title = fmt.Sprintf("pods of %s are not ready", name)
	f.Severity = doctor.Warning
	f.Remedy = []doctor.Remedy{{Text: "See why.", Commands: []string{
		doctor.Kubectl(pod.Namespace, "describe", "pod", pod.Name),
		doctor.Kubectl(pod.Namespace, "logs", pod.Name, "--all-containers", "--tail", "50"),
	}}}
	return f, true
}

// othersServe says whether pods of a Deployment are ready, and do what the one
// that is not would do. What runs on each node does it for its own.
func othersServe(part *parts.Part) bool {
	return strings.HasPrefix(part.Workload, "deployment/") && slices.ContainsFunc(part.Pods, func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// crashStatus is what kubectl shows of the pod.
func crashStatus(pod *corev1.Pod, container *corev1.ContainerStatus) string {
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == container.Name {
			return "Init:CrashLoopBackOff"
		}
	}
	return "CrashLoopBackOff"
}

// lastWords are what the container's last run ended with.
func lastWords(container *corev1.ContainerStatus) string {
	t := container.LastTerminationState.Terminated
	if t == nil {
		return ""
	}
	const most = 300
	words := strings.TrimSpace(t.Message)
	if len(words) > most {
		words = "…" + strings.ToValidUTF8(words[len(words)-most:], "")
	}
	return strings.TrimRight(fmt.Sprintf("\nlast run: exit code %d %s\n%s", t.ExitCode, t.Reason, words), "\n ")
}

func common(s *facts.Sample, pod *corev1.Pod, name, row string) doctor.Finding {
	account := pod.Namespace + "/" + cmp.Or(pod.Spec.ServiceAccountName, "default")
	f := doctor.Finding{
		Layer: doctor.LayerAgent, Subject: name,
		Detail:   []string{"What does not run does not do its part for the network of this node."},
		Evidence: []doctor.Evidence{doctor.Excerpt(s.Objects.Record(pod), fmt.Sprintf("%s/%s  %s  %s", pod.Namespace, pod.Name, row, pod.Spec.NodeName))},
		RestsOn:  []string{doctor.Reach(account, pod.Spec.NodeName), doctor.Permission(account)},
	}
	if pod.Spec.NodeName != "" {
		f.Nodes = []string{pod.Spec.NodeName}
	}
	if !pod.Spec.HostNetwork {
		f.RestsOn = append(f.RestsOn, doctor.PodNetwork(pod.Spec.NodeName))
	}
	return f
}
