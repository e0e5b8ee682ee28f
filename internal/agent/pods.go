// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/model"
)

// podFinder finds a pod's address, for people who trace by name. It is nil
// where there is no API server.
type podFinder func(ctx context.Context, pod model.Name) (netip.Addr, error)

func newPodFinder(config *rest.Config) (podFinder, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return func(ctx context.Context, name model.Name) (netip.Addr, error) {
		pod, err := client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return netip.Addr{}, fmt.Errorf("get pod %s: %w", name, err)
		}
		a, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("pod %s has no address yet", name)
		}
		return a, nil
	}, nil
}

var errNoPods = errors.New("pods have names only where there is an API server: give the pod's address")
