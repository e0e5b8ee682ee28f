// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Crashes returns the container of a pod that waits to be started again because
// it ended again and again; nil if none does.
func Crashes(pod *corev1.Pod) *corev1.ContainerStatus {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range all {
		if w := all[i].State.Waiting; w != nil && w.Reason == "CrashLoopBackOff" {
			return &all[i]
		}
	}
	return nil
}

// NotReady returns the condition of a pod that should be ready and is not; nil
// if it is, or has come to its end.
func NotReady(pod *corev1.Pod) *corev1.PodCondition {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status != corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
