// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

const (
	// web is the address of the Service that has the faults.
	web = "10.97.0.80"
	// patientsImage is upstream's, as the nodes have it.
	patientsImage = "registry.k8s.io/e2e-test-images/agnhost:2.59"
	// diagnosisTimeout is for a proxy to follow, for an agent to compare its maps,
	// which it does once a minute, and for the doctor's two looks.
	diagnosisTimeout = 90 * time.Second
)

// consultation is one thing that is done to the cluster, and what the doctor has
// to say then; nothing: that all is well.
type consultation struct {
	name string
	do   func(context.Context) error
	// finds is a part of what it says.
	finds string
	// inside is that the doctor looks on the first node itself and tries
	// connections; else it asks all nodes by way of the API server.
	inside bool
}

// consult runs the doctor on a cluster that is well, and on one that somebody
// has broken, fault by fault.
func (c *controller) consult(ctx context.Context) error {
	if err := c.admitPatients(ctx); err != nil {
		return err
	}
	for _, s := range c.consultations() {
		if s.do != nil {
			if err := s.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		began := time.Now()
		if err := eventually(ctx, diagnosisTimeout, "the doctor says so", func(ctx context.Context) error { return c.diagnose(ctx, s) }); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		c.say("%s: the doctor says so, after %s", s.name, time.Since(began).Round(time.Second))
	}
	return nil
}

// admitPatients makes what the doctor looks at.
func (c *controller) admitPatients(ctx context.Context) error {
	values := map[string]any{"Image": patientsImage, "Web": web, "Proxy": "kube-proxy", "Label": "k8s-app", "Program": c.program("kube-proxy")}
	if c.proxy.name == "fairlead" {
		values["Proxy"], values["Label"], values["Program"] = "fairlead", "app.kubernetes.io/name", c.fairlead()
	}
	objects, err := render("patients.yaml", values)
	if err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, objects, "apply", "--filename=-"); err != nil {
		return err
	}
	for _, object := range []string{"deployment/web", "--namespace=kube-system daemonset/" + values["Proxy"].(string)} {
		if _, err := c.kubectl(ctx, nil, append([]string{"rollout", "status", "--timeout=" + readyTimeout.String()}, strings.Fields(object)...)...); err != nil {
			return err
		}
	}
	return nil
}

func (c *controller) consultations() []consultation {
	dns, err := render("objects.yaml", map[string]any{"Machines": machines(), "DNS": dnsServiceIP, "Server": controlIP})
	apply := func(ctx context.Context) error {
		_, failed := c.kubectl(ctx, dns, "apply", "--filename=-")
		return errors.Join(err, failed)
	}
	do := func(args ...string) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.kubectl(ctx, nil, args...); return err }
	}
	selector := func(app string) func(context.Context) error {
		return do("patch", "service/web", `--patch={"spec":{"selector":{"app":"`+app+`"}}}`)
	}
	all := []consultation{
		{name: "all is well, by way of the API server"},
		{name: "all is well, seen on a node", inside: true},
		{name: "the endpoints of DNS are deleted", do: do("delete", "endpointslice/kube-dns-control", "--namespace=kube-system"), finds: "dns-chain · ", inside: true},
		{name: "they are back", do: apply, inside: true},
		{name: "a Service selects nobody", do: selector("wbe"), finds: "selector-empty · default/web · layer api"},
		{name: "it selects its pods again", do: selector("web")},
	}
	first, last := machines()[0].Name, machines()[nodeCount-1].Name
	all = append(all,
		consultation{name: "the API server hangs", do: func(ctx context.Context) error { return c.stopped(ctx, "--advertise-address="+controlIP) }, finds: "connectivity · default/kubernetes · layer connection · on " + first, inside: true},
		consultation{name: "it goes on", do: func(ctx context.Context) error { return c.resumed(ctx, "--advertise-address="+controlIP) }, inside: true})
	if c.proxy.name == "fairlead" {
		agent := "agent --node-name=" + first
		all = append(all,
			consultation{name: "the agent of " + first + " hangs", do: func(ctx context.Context) error { return c.stopped(ctx, agent) }, finds: "agent-down · kube-system/fairlead · layer agent · on " + first, inside: true},
			consultation{name: "it goes on", do: func(ctx context.Context) error { return c.resumed(ctx, agent) }, inside: true})
		return append(all,
			consultation{name: "an address is deleted from the maps of " + last, finds: "frontend-missing · default/web · layer kernel · on " + last,
				do: func(context.Context) error { return c.deleteFrontends(last) }},
			consultation{name: "the agent compares its maps and mends them"})
	}
	restart := func(ctx context.Context) error {
		// It is known by its configuration, of which each node has its own.
		_, err := runCommand(ctx, nil, "pkill", "--signal", "KILL", "--full", c.run(last, "kube-proxy.yaml"))
		return err
	}
	hanging := c.run(first, "kube-proxy.yaml")
	all = append(all,
		consultation{name: "the kube-proxy of " + first + " hangs", do: func(ctx context.Context) error { return c.stopped(ctx, hanging) }, finds: "agent-down · kube-system/kube-proxy · layer agent · on " + first, inside: true},
		consultation{name: "it goes on", do: func(ctx context.Context) error { return c.resumed(ctx, hanging) }, inside: true},
		consultation{name: "the rules of " + last + " are flushed", finds: "rules-gone · kube-proxy · layer kernel · on " + last, do: func(ctx context.Context) error {
			_, err := c.onNode(ctx, last, "nft", "flush", "ruleset")
			return err
		}},
		consultation{name: "kube-proxy starts again and writes them anew", do: restart})
	return append(all,
		consultation{name: "an address is deleted from the rules of " + last, finds: "frontend-missing · default/web · layer kernel · on " + last, do: func(ctx context.Context) error {
			_, err := c.onNode(ctx, last, "nft", "delete", "element", "ip", "kube-proxy", "service-ips", "{ "+web+" . tcp . 80 }")
			return err
		}},
		consultation{name: "kube-proxy starts again and mends it", do: restart})
}

// diagnose runs the doctor once, and compares what it says.
func (c *controller) diagnose(ctx context.Context, s consultation) error {
	args := []string{"doctor", "--kubeconfig=" + c.kubeconfig(c.admin.name), "--interval=2s"}
	var cmd *exec.Cmd
	if s.inside {
		cmd = c.enter(ctx, machines()[0].Name, append([]string{c.fairlead()}, args...)...)
	} else {
		asked := "--kube-proxy"
		if c.proxy.name == "fairlead" {
			asked = "--fairlead"
		}
		cmd = exec.CommandContext(ctx, c.fairlead(), append(args, asked)...)
	}
	printed, err := cmd.CombinedOutput()
	text, status := string(printed), cmd.ProcessState.ExitCode()
	switch {
	case s.finds == "" && status != 0:
		return fmt.Errorf("all is well, and it ends with %d: %w\n%s", status, err, text)
	case s.finds != "" && (status != 1 || !strings.Contains(text, s.finds)):
		return fmt.Errorf("it ends with %d, and does not find %q:\n%s", status, s.finds, text)
	}
	return nil
}

// stopped and resumed are for the program of the cluster whose command line has
// these words: it hangs, and goes on.
func (c *controller) stopped(ctx context.Context, words string) error {
	_, err := runCommand(ctx, nil, "pkill", "--signal", "STOP", "--full", "--", words)
	return err
}

func (c *controller) resumed(ctx context.Context, words string) error {
	_, err := runCommand(ctx, nil, "pkill", "--signal", "CONT", "--full", "--", words)
	return err
}

// deleteFrontends takes the Service's ClusterIP out of the maps of a node, as
// only root with a tool of his own could.
func (c *controller) deleteFrontends(node string) error {
	frontends, err := ebpf.LoadPinnedMap(fmt.Sprintf("/proc/%d/root/sys/fs/bpf/fairlead/current/fairlead_frontends", c.nodes[node]), nil)
	if err != nil {
		return err
	}
	defer frontends.Close()
	// A key begins with the address, IPv4 mapped.
	prefix := netip.MustParseAddr(web).As16()
	var key, value []byte
	var found [][]byte
	for entries := frontends.Iterate(); entries.Next(&key, &value); {
		if bytes.HasPrefix(key, prefix[:]) {
			found = append(found, bytes.Clone(key))
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("the maps of %s have no frontend at %s", node, web)
	}
	for _, key := range found {
		if err := frontends.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// enter has a program run on a node.
func (c *controller) enter(ctx context.Context, node string, argv ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(c.nodes[node]), "--mount", "--net", "--uts", "--"}, argv...)...)
}

func (c *controller) onNode(ctx context.Context, node string, argv ...string) (string, error) {
	printed, err := c.enter(ctx, node, argv...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w: %s", strings.Join(argv, " "), node, err, printed)
	}
	return string(printed), nil
}
