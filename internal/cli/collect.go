// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/collect"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

// How often and how far apart layers are read unless the user says otherwise:
// what differs for five seconds is no write on its way.
const (
	defaultSamples  = 2
	defaultInterval = 5 * time.Second
)

// collectFlags say what is collected of what is alive.
type collectFlags struct {
	kubeconfig, nodeName    string
	journal                 string
	servers, nodes          []string
	fairlead, cilium, proxy bool
	probe                   bool
	probeFlag               *pflag.Flag
	socket, pinPath         *string
	samples                 int
	interval                time.Duration
	names                   []string // of these flags
}

func addCollectFlags(cmd *cobra.Command) *collectFlags {
	c := &collectFlags{names: []string{"kubeconfig", "api-server", "fairlead", "cilium", "kube-proxy", "node", "node-name", "samples", "interval", "socket", "pin-path", "probe", "journal"}}
	flags := cmd.Flags()
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server; in a pod its service account does if empty")
	flags.StringArrayVar(&c.servers, "api-server", nil, "`URL`, or ADDRESS:PORT, of another API server of the cluster, for when the first one is away; repeatable")
	flags.BoolVar(&c.fairlead, "fairlead", false, "ask Fairlead's agents in their pods, by way of the API server")
	flags.BoolVar(&c.cilium, "cilium", false, "ask Cilium's agents in their pods, by way of the API server")
	flags.BoolVar(&c.proxy, "kube-proxy", false, "read kube-proxy's rules in its pods, by way of the API server")
	flags.StringSliceVar(&c.nodes, "node", nil, "ask only pods on this node, `NAME`; repeatable")
	flags.StringVar(&c.nodeName, "node-name", "", "`NAME` of the node that this is; found out if empty")
	flags.BoolVar(&c.probe, "probe", true, "as root on a node, try connections from it and from some of its pods to the API server, DNS, the gateway and other nodes; --probe=false sends nothing")
	c.probeFlag = flags.Lookup("probe")
	flags.StringVar(&c.journal, "journal", "", "journal's `FILE`: add its last events, and its last objects where no API server answers")
	flags.IntVar(&c.samples, "samples", defaultSamples, "how often each layer is read: what one sample shows is suspected, what two show is confirmed")
	flags.DurationVar(&c.interval, "interval", defaultInterval, "`TIME` from the beginning of one sample to that of the next")
	c.socket, c.pinPath = socketFlag(cmd), pinPathFlag(cmd)
	return c
}

// refuse keeps a flag from having no effect in silence beside another one.
func (c *collectFlags) refuse(cmd *cobra.Command, beside string) error {
	for _, name := range c.names {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for what is alive, and --%s is not: leave one of them out", name, beside)
		}
	}
	return nil
}

func (c *collectFlags) planes() (all []collect.Plane) {
	for _, p := range []struct {
		asked bool
		plane collect.Plane
	}{{c.fairlead, collect.Fairlead}, {c.cilium, collect.Cilium}, {c.proxy, collect.KubeProxy}} {
		if p.asked {
			all = append(all, p.plane)
		}
	}
	return all
}

// check refuses what cannot be meant.
func (c *collectFlags) check(cmd *cobra.Command) error {
	const most = 100
	switch {
	case c.samples < 1 || c.samples > most:
		return seeHelp(cmd, "--samples must be from 1 to %d", most)
	case c.interval < 0:
		return seeHelp(cmd, "--interval must not be negative")
	case len(c.nodes) > 0 && len(c.planes()) == 0:
		return seeHelp(cmd, "--node is about pods: say of which data plane with --fairlead, --cilium or --kube-proxy")
	case len(c.planes()) > 0 && !c.hasAPI():
		return seeHelp(cmd, "pods are asked by way of the API server: give --kubeconfig")
	}
	return nil
}

// hasAPI says whether anything tells where an API server is.
func (c *collectFlags) hasAPI() bool {
	return c.kubeconfig != "" || len(c.servers) > 0 || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// collect reads what is alive, and tells what it could not ask.
func (c *collectFlags) collect(ctx context.Context, e *env) (*evidence.Bundle, error) {
	doing, done := e.whileAsking("reaching the API server")
	defer done()
	cfg := collect.Config{
		By: "fairlead " + buildVersion(), Samples: c.samples, Interval: c.interval, Planes: c.planes(), Nodes: c.nodes,
		Here: c.here(ctx), Journal: c.journal,
		Doing: doing,
	}
	if !c.hasAPI() {
		e.warn("the API is not asked: give --kubeconfig")
		return collect.Collect(ctx, cfg)
	}
	client, err := apiserver.New(apiserver.Config{Kubeconfig: c.kubeconfig, Servers: c.servers, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if err := client.Connect(ctx); err != nil && !errors.Is(err, apiserver.ErrNoDirectAddress) {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	others.Go(func() { _ = client.Run(running) }) // it ends with its context only
	defer others.Wait()
	defer stop()
	cfg.API = client
	return collect.Collect(ctx, cfg)
}

// here is the node on which the program runs; its agent knows its name.
func (c *collectFlags) here(ctx context.Context) *collect.Here {
	name := c.nodeName
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if status, err := api.NewClient(*c.socket).Status(ctx); err == nil {
		name = cmp.Or(name, status.Node)
	}
	here := &collect.Here{
		Node: name, Socket: *c.socket, Pins: *c.pinPath, Proc: "/proc", Logs: "/var/log/pods",
		Kernel: func() (api.Kernel, error) { return readKernel(*c.pinPath) },
	}
	// Who is not root can only dial from where he is, and does so if he asks for it.
	if c.probe && (os.Geteuid() == 0 || c.probeFlag.Changed) {
		here.Dial = c.dial
	}
	return here
}

// failed are the records of which nothing, or only a part, could be read, one
// line each.
func failed(b *evidence.Bundle) (lines []string) {
	for i := range b.Records {
		if r := &b.Records[i]; r.Error != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", r.Place(), r.Error))
		}
	}
	return lines
}
