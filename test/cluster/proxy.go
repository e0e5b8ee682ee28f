// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// proxy is a Service proxy as the cluster sees it.
type proxy struct {
	name string
	// token gets what the proxy shows to the API server.
	token func(context.Context, *controller) (string, error)
	// command is how it is started on a node, and check says why it does not
	// work yet.
	command func(*node) ([]string, error)
	check   func(context.Context, *node) error
}

func proxies() []proxy {
	return []proxy{
		{name: "fairlead", token: fairleadToken, command: fairleadCommand, check: fairleadCheck},
		{name: "nftables", token: kubeProxyToken, command: kubeProxyCommand, check: kubeProxyCheck},
	}
}

func proxyNames() []string {
	var names []string
	for _, p := range proxies() {
		names = append(names, p.name)
	}
	return names
}

func findProxy(name string) (proxy, error) {
	for _, p := range proxies() {
		if p.name == name {
			return p, nil
		}
	}
	return proxy{}, fmt.Errorf("the proxy %q is not known; there are %s", name, strings.Join(proxyNames(), ", "))
}

// fairleadToken gives the agent the rights that users give it.
func fairleadToken(ctx context.Context, c *controller) (string, error) {
	if _, err := c.kubectl(ctx, nil, "apply", "--filename="+c.rbac()); err != nil {
		return "", err
	}
	token, err := c.kubectl(ctx, nil, "create", "token", "fairlead", "--namespace=kube-system", "--duration=24h")
	return strings.TrimSpace(token), err
}

// fairleadCommand leaves to the agent what users leave to it: the node has a
// /run and a /sys/fs/bpf of its own.
func fairleadCommand(n *node) ([]string, error) {
	cgroup, err := proxyCgroup(n.Self.Name)
	command := []string{n.folders().fairlead(), "agent", "--node-name=" + n.Self.Name, "--kubeconfig=" + n.ProxyKubeconfig,
		"--cgroup=" + cgroup, "--cluster-cidr=" + n.PodCIDR}
	return append(command, n.ProxyFlags...), err
}

func fairleadCheck(ctx context.Context, n *node) error {
	_, err := runCommand(ctx, nil, n.folders().fairlead(), "status")
	return err
}

// kubeProxyToken is that of a user with the role that Kubernetes has for it.
func kubeProxyToken(_ context.Context, c *controller) (string, error) { return c.kubeProxy.token, nil }

func kubeProxyCommand(n *node) ([]string, error) {
	config := filepath.Join(n.Folder(), "kube-proxy.yaml")
	return []string{n.folders().program("kube-proxy"), "--config=" + config}, n.render("kube-proxy.yaml", "kube-proxy.yaml")
}

func kubeProxyCheck(ctx context.Context, _ *node) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10256/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("healthz says %s", response.Status)
	}
	return nil
}
