// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	containerdTimeout = time.Minute
	proxyTimeout      = 2 * time.Minute
)

// nodeSpec is all that a node has to know.
type nodeSpec struct {
	Self       machine
	Neighbours []machine
	// Cgroup is the node's, as its kubelet names it.
	Cgroup  string
	DNS     string
	PodCIDR string
	// Proxy is the name of the Service proxy, which may get flags besides, and
	// may be one that is killed and started again.
	Proxy           string
	ProxyFlags      []string
	KeepProxy       bool
	Kubeconfig      string
	ProxyKubeconfig string
	Cache           string
	Checkout        string
}

func (s nodeSpec) folders() folders { return folders{s.Cache, s.Checkout} }

// Folder holds what the node has on disk.
func (s nodeSpec) Folder() string { return s.folders().run(s.Self.Name) }

// beNode is the first process of a node: it makes the node's surroundings out
// of its namespaces, starts what runs on every node, and says "ready" once the
// Service proxy works.
func beNode(ctx context.Context, orders io.Reader) error {
	if err := checkSealed(); err != nil {
		return err
	}
	var spec nodeSpec
	if err := json.NewDecoder(orders).Decode(&spec); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	node := &node{spec, supervisor{spec.folders().logs(), fail}}
	if err := node.bringUp(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return context.Cause(ctx)
}

type node struct {
	nodeSpec
	supervisor
}

func (n *node) bringUp(ctx context.Context) error {
	if err := joinCgroup(n.Self.Name); err != nil {
		return err
	}
	if err := n.furnish(); err != nil {
		return err
	}
	if err := joinLAN(n.Self, n.Neighbours); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	if err := n.startKubelet(); err != nil {
		return err
	}
	return n.startProxy(ctx)
}

// furnish gives the node a name, and its own files where programs are used to
// find them.
func (n *node) furnish() error {
	if err := unix.Sethostname([]byte(n.Self.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for from, to := range map[string]string{"lib": "/var/lib", "log": "/var/log"} {
		from = filepath.Join(n.Folder(), from)
		if err := os.MkdirAll(from, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
	}
	for to, kind := range map[string]string{"/run": "tmpfs", "/sys/fs/bpf": "bpf"} {
		if err := unix.Mount(kind, to, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", to, err)
		}
	}
	if err := os.Mkdir("/run/lock", 0o755); err != nil {
		return err
	}
	// Pods that ask for it see mounts that are made later.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts with pods: %w", err)
	}
	return nil
}

func (n *node) startContainerd(ctx context.Context) error {
	if err := os.Mkdir(filepath.Join(n.Folder(), "cni"), 0o755); err != nil {
		return err
	}
	if err := n.render("cni.conflist", "cni", "10-pods.conflist"); err != nil {
		return err
	}
	if err := n.render("containerd.toml", "containerd.toml"); err != nil {
		return err
	}
	if err := n.startPart("containerd", "containerd", "--config="+filepath.Join(n.Folder(), "containerd.toml")); err != nil {
		return err
	}
	err := eventually(ctx, containerdTimeout, "containerd answers", func(ctx context.Context) error {
		_, err := runCommand(ctx, nil, "ctr", "version")
		return err
	})
	if err != nil {
		return err
	}
	_, err = runCommand(ctx, nil, "ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", n.folders().images())
	return err
}

func (n *node) startKubelet() error {
	if err := n.render("kubelet.yaml", "kubelet.yaml"); err != nil {
		return err
	}
	resolver := filepath.Join(n.Folder(), "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver "+controlIP+"\n"), 0o644); err != nil {
		return err
	}
	return n.startPart("kubelet", n.folders().program("kubelet"),
		"--config="+filepath.Join(n.Folder(), "kubelet.yaml"), "--kubeconfig="+n.Kubeconfig,
		"--hostname-override="+n.Self.Name, "--node-ip="+n.Self.IP)
}

func (n *node) startProxy(ctx context.Context) error {
	proxy, err := findProxy(n.Proxy)
	if err != nil {
		return err
	}
	command, err := proxy.command(n)
	if err != nil {
		return err
	}
	start := n.startPart
	if n.KeepProxy {
		start = n.keepPart
	}
	if err := start("proxy", command[0], command[1:]...); err != nil {
		return err
	}
	return eventually(ctx, proxyTimeout, proxy.name+" works", func(ctx context.Context) error { return proxy.check(ctx, n) })
}

// startPart starts a program of the node, which its log is named after.
func (n *node) startPart(name, program string, args ...string) error {
	return n.start(n.Self.Name+"-"+name, program, args...)
}

// keepPart is for a program that somebody kills.
func (n *node) keepPart(name, program string, args ...string) error {
	return n.keep(n.Self.Name+"-"+name, program, args...)
}

// render writes one of the configuration files into the node's folder.
func (n *node) render(name string, path ...string) error {
	return renderTo(filepath.Join(append([]string{n.Folder()}, path...)...), name, n.nodeSpec)
}

// nodeUser is who the kubelet of a machine is to the API server.
func nodeUser(m machine) string { return "system:node:" + m.Name }
