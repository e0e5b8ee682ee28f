// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/hive/cell"
	"github.com/cilium/hive/script"
	"github.com/cilium/statedb"
	"github.com/spf13/pflag"

	daemonk8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/datapath/tables"
	envoy "github.com/cilium/cilium/pkg/envoy/config"
	"github.com/cilium/cilium/pkg/hive"
	client "github.com/cilium/cilium/pkg/k8s/client/testutils"
	k8stest "github.com/cilium/cilium/pkg/k8s/testutils"
	"github.com/cilium/cilium/pkg/k8s/version"
	lbcell "github.com/cilium/cilium/pkg/loadbalancer/cell"
	"github.com/cilium/cilium/pkg/maglev"
	"github.com/cilium/cilium/pkg/metrics"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/node/addressing"
	nodetypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/source"
)

// agent is the load balancer of a Cilium agent: its control plane, tables and
// maps. Its API objects come from Cilium's own store in place of a server.
type agent struct {
	hive    *hive.Hive
	engine  script.Engine
	log     *slog.Logger
	folder  string // of files for its shell
	started bool

	local *node.LocalNodeStore
	db    *statedb.DB
	addrs statedb.RWTable[tables.NodeAddress]
	known map[string]bool // names of the files of objects that it was given
}

// settings are where the agent is not as Cilium comes.
var settings = map[string]string{
	"enable-service-topology":  "true", // Cilium leaves hints aside otherwise
	"bpf-lb-maglev-table-size": "251",  // the smallest: nothing here uses Maglev
}

func newAgent(nodeName, folder string) (*agent, error) {
	version.Force(k8stest.DefaultVersion)
	nodetypes.SetName(nodeName)
	a := &agent{folder: folder, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), known: map[string]bool{}}
	a.hive = hive.New(
		client.FakeClientCell(),
		daemonk8s.ResourcesCell,
		cell.Config(envoy.SecretSyncConfig{}),
		maglev.Cell,
		metrics.Cell,
		surroundings(),
		cell.Provide(
			source.NewSources,
			tables.NewNodeAddressTable,
			statedb.RWTable[tables.NodeAddress].ToTable,
		),
		cell.Invoke(func(local *node.LocalNodeStore, db *statedb.DB, addrs statedb.RWTable[tables.NodeAddress]) {
			a.local, a.db, a.addrs = local, db, addrs
		}),
		lbcell.Cell,
	)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.hive.RegisterFlags(flags)
	for name, value := range settings {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("set --%s: %w", name, err)
		}
	}
	commands, err := a.hive.ScriptCommands(a.log)
	if err != nil {
		return nil, fmt.Errorf("put the load balancer together: %w", err)
	}
	maps.Insert(commands, maps.All(script.DefaultCmds()))
	a.engine = script.Engine{Cmds: commands}
	return a, nil
}

// start starts the load balancer on a node with these labels and addresses.
func (a *agent) start(ctx context.Context, labels map[string]string, addresses []net.IP) error {
	if err := a.hive.Start(a.log, ctx); err != nil {
		return fmt.Errorf("start the load balancer: %w", err)
	}
	a.started = true
	a.local.Update(func(n *node.LocalNode) {
		n.Labels = labels
		for _, ip := range addresses {
			n.IPAddresses = append(n.IPAddresses, nodetypes.Address{Type: addressing.NodeInternalIP, IP: ip})
		}
	})
	txn := a.db.WriteTxn(a.addrs)
	for _, ip := range addresses {
		address, err := nodeAddress(ip)
		if err != nil {
			txn.Abort()
			return err
		}
		if _, _, err := a.addrs.Insert(txn, address); err != nil {
			txn.Abort()
			return fmt.Errorf("give the node its address %s: %w", ip, err)
		}
	}
	txn.Commit()
	return nil
}

func (a *agent) stop() error {
	if !a.started {
		return nil
	}
	return a.hive.Stop(a.log, context.Background())
}

// shell runs lines in the agent's shell.
func (a *agent) shell(ctx context.Context, lines ...string) error {
	state, err := script.NewState(ctx, a.folder, nil)
	if err != nil {
		return err
	}
	var log strings.Builder
	text := strings.Join(lines, "\n") + "\n"
	err = a.engine.Execute(state, "shell", bufio.NewReader(strings.NewReader(text)), &log)
	if err != nil {
		return fmt.Errorf("run in the shell:\n%s%w\n%s", text, err, log.String())
	}
	return nil
}

// show returns what the shell prints for a command that takes the file to write
// to as its last words.
func (a *agent) show(ctx context.Context, command string) (string, error) {
	const out = "out.txt"
	if err := a.shell(ctx, command+" "+out); err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(a.folder, out))
	return string(text), err
}

// give has the API say that an object is as in a file of the folder now.
func (a *agent) give(ctx context.Context, file string) error {
	verb := "k8s/add"
	if a.known[file] {
		verb = "k8s/update"
	}
	a.known[file] = true
	return a.shell(ctx, verb+" "+file)
}

// nodeAddress is a row of the table of addresses that serve NodePorts.
func nodeAddress(ip net.IP) (tables.NodeAddress, error) {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return tables.NodeAddress{}, fmt.Errorf("%s is no address", ip)
	}
	return tables.NodeAddress{Addr: addr.Unmap(), NodePort: true, Primary: true, DeviceName: "eth0"}, nil
}
