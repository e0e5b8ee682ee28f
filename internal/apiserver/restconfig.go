// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"runtime/debug"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RESTConfig reads how to reach the API server: from the current context of a
// kubeconfig file, or, without one, from the pod this process runs in.
// Requests are not rate limited: the few watches of an agent must not wait for
// each other.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	config, err := readConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = userAgent()
	return config, nil
}

func readConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set): give --kubeconfig")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the service account of this pod: %w: mount it, or give --kubeconfig", err)
		}
		return config, nil
	}
	file, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", kubeconfig, err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("resolving the file names in the kubeconfig %s: %w", kubeconfig, err)
	}
	if file.CurrentContext == "" {
		return nil, fmt.Errorf("the kubeconfig %s has no current-context: set one with kubectl config use-context", kubeconfig)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("using the context %q of the kubeconfig %s: %w", file.CurrentContext, kubeconfig, err)
	}
	return config, nil
}

// userAgent is how the agent shows in the API server's audit log.
func userAgent() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "fairlead/devel"
	}
	return "fairlead/" + info.Main.Version
}
