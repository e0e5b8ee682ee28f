// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

const (
	// logLines and logBytes bound what is read of a log, from its end.
	logLines = 2000
	logBytes = 1 << 20
	// maxLogs bounds how many containers' logs are read of a cluster: those in
	// trouble first.
	maxLogs = 100
)

// logs are those of the system's containers: of the cluster where the API
// answers, else those that lie on the node.
func (c *collector) logs(ctx context.Context) []group {
	if c.api != nil {
		if found := c.api.logs(c.cfg.Nodes); len(found) > 0 && c.api.answers(ctx) {
			return found
		}
	}
	if c.cfg.Here != nil {
		return []group{c.cfg.Here.logs()}
	}
	return nil
}

// logs finds the containers whose logs tell of Services.
func (c *cluster) logs(nodes []string) []group {
	var found []container
	for i := range c.pods {
		pod := &c.pods[i]
		if !isSystem(pod) || len(nodes) > 0 && !slices.Contains(nodes, pod.Spec.NodeName) {
			continue
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			found = append(found, container{pod, status})
		}
	}
	slices.SortStableFunc(found, func(a, b container) int { return cmp.Compare(b.trouble(), a.trouble()) })
	var groups []group
	for _, each := range found[:min(len(found), maxLogs)] {
		groups = append(groups, each.sources(c))
	}
	return groups
}

// isSystem says whether a pod is a part of the cluster rather than something
// that runs on it.
func isSystem(pod *corev1.Pod) bool {
	return pod.Namespace == metav1.NamespaceSystem || strings.HasPrefix(pod.Spec.PriorityClassName, systemPriority)
}

// systemPriority begins the names of the classes that are for parts of a cluster.
const systemPriority = "system-"

// container is one whose log is read.
type container struct {
	pod    *corev1.Pod
	status corev1.ContainerStatus
}

// trouble is more for containers that are worse off.
func (c container) trouble() int {
	switch {
	case c.status.State.Waiting != nil:
		return 3
	case !c.status.Ready && c.status.State.Running != nil:
		return 2
	case c.status.RestartCount > 0:
		return 1
	}
	return 0
}

// sources are the log of the container, and that of the one before it.
func (c container) sources(api *cluster) group {
	all := group{c.source(api, false)}
	if c.status.RestartCount > 0 {
		all = append(all, c.source(api, true))
	}
	return all
}

func (c container) source(api *cluster, previous bool) source {
	options := &corev1.PodLogOptions{Container: c.status.Name, Previous: previous, Timestamps: true, TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes))}
	command := fmt.Sprintf("kubectl -n %s logs %s -c %s --timestamps --tail=%d", c.pod.Namespace, c.pod.Name, c.status.Name, logLines)
	name := logName(c.pod.Namespace, c.pod.Name, c.status.Name)
	if previous {
		command, name = command+" --previous", strings.TrimSuffix(name, ".log")+".previous.log"
	}
	return source{
		record: evidence.Record{
			Path: "logs/" + cmp.Or(c.pod.Spec.NodeName, "-") + "/" + name, Kind: evidence.Log, Node: c.pod.Spec.NodeName,
			Pod: c.pod.Namespace + "/" + c.pod.Name, Container: c.status.Name, Command: command,
		},
		read: func(ctx context.Context) (output, error) {
			body, err := api.typed.CoreV1().Pods(c.pod.Namespace).GetLogs(c.pod.Name, options).Stream(ctx)
			if err != nil {
				return output{}, err
			}
			defer body.Close()
			text, err := io.ReadAll(body)
			return output{content: text, cut: len(text) >= logBytes}, err
		},
	}
}

func logName(namespace, pod, container string) string {
	return namespace + "_" + pod + "_" + container + ".log"
}
