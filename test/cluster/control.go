// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long the parts of a cluster may take on a busy machine.
const (
	apiTimeout   = 2 * time.Minute
	nodeTimeout  = 4 * time.Minute
	readyTimeout = 2 * time.Minute
)

// controller starts and knows the control plane.
type controller struct {
	options
	supervisor
	began time.Time
	admin user
	// kubeProxy is the user that Kubernetes' own roles know.
	kubeProxy user
	servers   []*apiServer
	// nodes are the first processes of the nodes.
	nodes map[string]int
}

// control brings the cluster up and has the tests run. All it starts ends with
// the namespaces.
func control(ctx context.Context, o options) error {
	if err := checkSealed(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	c := &controller{
		options:    o,
		supervisor: supervisor{o.logs(), fail},
		began:      time.Now(),
		admin:      newUser("admin", "system:masters"),
		kubeProxy:  newUser("system:kube-proxy", ""),
		nodes:      map[string]int{},
	}
	if err := c.bringUp(ctx); err != nil {
		return err
	}
	if c.replay.on {
		return c.playIncident(ctx)
	}
	if c.doctor {
		return c.consult(ctx)
	}
	if c.waits() {
		return c.wait(ctx)
	}
	for _, s := range c.sets {
		if err := c.runSet(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// say tells the user how far things are.
func (c *controller) say(format string, args ...any) {
	fmt.Printf("[%4.0f s] %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// wait leaves the cluster to the user.
func (c *controller) wait(ctx context.Context) error {
	fmt.Printf("The cluster stays up until you interrupt it. To use it:\n"+
		"  nsenter --target $(pgrep -f '^/proc/self/exe control') --all env KUBECONFIG=%s PATH=%s:$PATH bash\n",
		c.kubeconfig(c.admin.name), filepath.Dir(c.program("kubectl")))
	<-ctx.Done()
	return context.Cause(ctx)
}

func (c *controller) bringUp(ctx context.Context) error {
	// kubectl keeps what it learns about the API below its home.
	if err := os.Setenv("HOME", c.run()); err != nil {
		return err
	}
	if err := makeLAN(); err != nil {
		return err
	}
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	c.say("the API server is ready")
	if err := c.startControllers(ctx); err != nil {
		return err
	}
	if err := c.setStage(ctx); err != nil {
		return err
	}
	if err := c.startNodes(ctx); err != nil {
		return err
	}
	_, err := c.kubectl(ctx, nil, "wait", "--for=condition=Ready", "node", "--all", "--timeout="+readyTimeout.String())
	if err != nil {
		return err
	}
	c.say("%d nodes are ready, with %s on each", nodeCount, c.proxy.name)
	return nil
}

// startControllers starts what acts on objects, then makes the first of them.
func (c *controller) startControllers(ctx context.Context) error {
	admin := c.kubeconfig(c.admin.name)
	err := c.start("kube-controller-manager", c.program("kube-controller-manager"), "--kubeconfig="+admin, "--leader-elect=false",
		"--service-account-private-key-file="+c.key(), "--root-ca-file="+c.certificate(),
		"--allocate-node-cidrs=false", "--cluster-cidr="+podCIDR, "--service-cluster-ip-range="+serviceCIDR)
	if err != nil {
		return err
	}
	err = c.start("kube-scheduler", c.program("kube-scheduler"), "--kubeconfig="+admin, "--leader-elect=false")
	if err != nil {
		return err
	}
	objects, err := render("objects.yaml", map[string]any{"Machines": machines(), "DNS": dnsServiceIP, "Server": controlIP})
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, objects, "apply", "--filename=-"); err != nil {
		return err
	}
	corefile := c.run("Corefile")
	if err := renderTo(corefile, "Corefile", map[string]any{"Server": controlIP, "Kubeconfig": admin}); err != nil {
		return err
	}
	return c.start("coredns", c.program("coredns"), "-conf", corefile)
}

// startNodes starts all nodes at once and waits until their proxies work.
func (c *controller) startNodes(ctx context.Context) error {
	token, err := c.proxy.token(ctx, c)
	if err != nil {
		return fmt.Errorf("get the proxy a token: %w", err)
	}
	proxyUser := user{name: "proxy", token: token}
	if err := c.writeKubeconfig(proxyUser); err != nil {
		return err
	}
	ready := make(chan error, nodeCount)
	for _, m := range machines() {
		spec := nodeSpec{
			Self: m, Cgroup: nodeCgroup(m.Name), DNS: dnsServiceIP, PodCIDR: podCIDR,
			Proxy: c.proxy.name, Cache: c.cache, Checkout: c.checkout,
			Kubeconfig: c.kubeconfig(nodeUser(m)), ProxyKubeconfig: c.kubeconfig(proxyUser.name),
			KeepProxy: c.replay.on || c.doctor, ProxyFlags: c.replay.agentFlags(),
		}
		for _, other := range machines() {
			if other != m {
				spec.Neighbours = append(spec.Neighbours, other)
			}
		}
		if err := c.startNode(spec, ready); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, nodeTimeout, fmt.Errorf("not all nodes are up after %s", nodeTimeout))
	defer cancel()
	for range machines() {
		select {
		case err := <-ready:
			if err != nil {
				return err
			}
		case <-limited.Done():
			return context.Cause(limited)
		}
	}
	return nil
}

// startNode starts the first process of a node, in namespaces of its own, and
// tells it who it is as soon as it is connected. It says "ready" on its
// standard output.
func (c *controller) startNode(spec nodeSpec, ready chan<- error) error {
	cmd := exec.Command("/proc/self/exe", "node")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, answer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer answer.Close()
	cmd.Stdout = answer
	if err := c.startCommand(spec.Self.Name, cmd); err != nil {
		return err
	}
	go func() {
		// Without an answer the supervisor knows what happened.
		if _, err := bufio.NewReader(stdout).ReadString('\n'); !errors.Is(err, io.EOF) {
			ready <- err
		}
	}()
	c.nodes[spec.Self.Name] = cmd.Process.Pid
	if err := connect(spec.Self, cmd.Process.Pid); err != nil {
		return err
	}
	return json.NewEncoder(stdin).Encode(spec)
}

func (c *controller) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	return runCommand(ctx, stdin, c.program("kubectl"), append([]string{"--kubeconfig=" + c.kubeconfig(c.admin.name)}, args...)...)
}
