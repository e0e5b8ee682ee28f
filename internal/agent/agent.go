// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/cgroup"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/healthcheck"
	"github.com/fairlead-io/fairlead/internal/metrics"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reconciler"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Agent is a running proxy.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	started time.Time

	source     reflector.Source
	reach      *reach     // nil: the source is a folder
	recording  *recording // nil: off
	pods       podFinder
	datapath   *datapath.Datapath
	tables     *tables.Tables
	writer     *tables.Writer
	reconciler *reconciler.Reconciler
	node       *nodeTracker
	devices    *deviceTracker // nil: no packet path
	settings   *troubles      // with settings of the kernel
	refusals   *broadcast

	eligibility   eligibility
	checks        *healthcheck.Services
	healthz       *healthcheck.Server // nil: off
	metrics       *metrics.Metrics
	metricsServer *healthcheck.Server   // nil: off
	triggersSeen  map[model.Name]uint64 // of the reconciler's goroutine
}

// Run is the proxy of this node until ctx ends. What it wrote to the kernel
// stays in force then, and the next Run takes it over.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	datapath.SpareProcessor()
	a := &Agent{cfg: cfg, log: log, started: time.Now().UTC(), settings: newTroubles(log), refusals: newBroadcast()}
	if err := a.openSource(); err != nil {
		return err
	}
	if err := a.openDatapath(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer a.datapath.Close()
	if err := a.build(); err != nil {
		return err
	}
	listener, err := api.Listen(cfg.Socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: api.NewHandler(a), ReadHeaderTimeout: 10 * time.Second}
	return a.serve(ctx, append(slices.Concat(a.health(), a.followDevices(), a.followAPI(), a.record()),
		func(context.Context) error { return ignoreClosed(server.Serve(listener)) },
		func(ctx context.Context) error { <-ctx.Done(); return server.Close() },
		func(ctx context.Context) error { a.writer.Run(ctx); return nil },
		func(ctx context.Context) error { a.reconciler.Run(ctx); return nil },
		a.node.run, a.node.watch,
		func(ctx context.Context) error { return a.datapath.ReadRefusals(ctx, a.refused) },
		a.datapath.ReleaseSockets,
		func(ctx context.Context) error {
			keepCloseWait(ctx, closeWait, a.cfg.CloseWait, a.settings)
			return nil
		},
	))
}

// serve runs the parts until ctx ends or one of them fails, and then waits for
// all: the datapath must not be closed under the reconciler.
func (a *Agent) serve(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := a.tables.Start(ctx); err != nil {
		return err
	}
	a.log.Info("the agent runs", "node", a.cfg.NodeName, "source", a.sourceName(),
		"cgroup", a.cfg.Cgroup, "pinPath", a.cfg.PinPath, "socket", a.cfg.Socket)
	var wg sync.WaitGroup
	failures := make(chan error, len(parts))
	for _, part := range parts {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				failures <- err
				cancel(err)
			}
		})
	}
	wg.Wait()
	close(failures)
	var all []error
	for err := range failures {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the API socket: %w", err)
}

func (a *Agent) openSource() error {
	if a.cfg.ManifestDir != "" {
		a.source = reflector.NewFolder(a.cfg.ManifestDir, a.cfg.NodeName, a.log)
		return nil
	}
	if err := a.openReach(); err != nil {
		return err
	}
	config := a.reach.client.REST()
	var err error
	if a.pods, err = newPodFinder(config); err != nil {
		return err
	}
	if a.recording, err = newRecording(a.cfg, a.reach.client, a.log); err != nil {
		return err
	}
	a.source, err = reflector.NewKubernetes(config, a.cfg.NodeName, a.reach.client.Found, a.log)
	return err
}

// openDatapath becomes the writer. While another agent is, it waits: the maps
// are served all the same.
func (a *Agent) openDatapath(ctx context.Context) error {
	if a.cfg.Cgroup == "" {
		path, err := cgroup.Root()
		if err != nil {
			return err
		}
		a.cfg.Cgroup = path
	}
	if err := cgroup.Check(a.cfg.Cgroup); err != nil {
		return err
	}
	cookie, err := datapath.NetNSCookie()
	if err != nil {
		return err
	}
	cfg := datapath.Config{
		PinPath: a.cfg.PinPath, Cgroup: a.cfg.Cgroup, SocketMode: a.cfg.SocketMode,
		Wire:      datapath.Wire{On: a.cfg.PacketPath, Clsact: a.cfg.Clsact, SNATPorts: a.cfg.SNATPorts},
		HostNetNS: cookie, ServiceCIDRs: a.cfg.ServiceCIDRs, Node: a.cfg.NodeName, Sizes: a.cfg.Sizes,
		MaglevTableSize: a.cfg.MaglevTableSize,
	}
	for said := false; ; said = true {
		a.datapath, err = datapath.Open(cfg, a.log)
		if !errors.Is(err, datapath.ErrHeld) {
			return err
		}
		if !said {
			a.log.Warn("waiting to become the writer of the maps", "because", err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (a *Agent) build() (err error) {
	if a.tables, err = tables.New(); err != nil {
		return err
	}
	a.writer = tables.NewWriter(a.tables, model.Node{Name: a.cfg.NodeName}, a.options())
	if a.reach != nil {
		a.recall()
	}
	a.buildHealth()
	a.node = newNodeTracker(a.cfg, a.log, a.writer.SetNode, a.publishAddresses)
	a.node.listening = a.nodesOwn
	a.node.look()
	a.buildDevices()
	a.reconciler, err = reconciler.New(reconciler.Config{
		Tables: a.tables, Datapath: a.datapath, Log: a.log,
		CompareInterval: a.cfg.CompareInterval, Restored: a.attachEarly, Filled: a.attach, Tried: a.tried,
	})
	return err
}

func (a *Agent) buildDevices() {
	if !a.cfg.PacketPath {
		return
	}
	node := func() []netip.Addr { n, _ := a.node.current(); return n.Addresses }
	a.devices = newDeviceTracker(a.cfg, a.log, node, a.datapath.SetDevices)
	a.devices.look()
}

// followDevices are the parts that do so, if there is a packet path.
func (a *Agent) followDevices() []func(context.Context) error {
	if a.devices == nil {
		return nil
	}
	return []func(context.Context) error{a.devices.run, a.devices.watch}
}

func (a *Agent) options() model.Options {
	return model.Options{
		ProxyName:              model.DefaultProxyName,
		DisableExternalIPs:     a.cfg.DisableExternalIPs,
		AllowNodeAddressClaims: a.cfg.AllowNodeAddressClaims,
		Selection:              a.cfg.Selection,
	}
}

// attachPrograms comes after the rows: the addresses that serve NodePorts come
// with them, and then the programs.
func (a *Agent) attachPrograms(attach func() error) error {
	a.node.begin()
	if a.devices != nil {
		a.devices.prepare()
	}
	if err := attach(); err != nil {
		return err
	}
	if a.devices != nil {
		a.devices.begin()
	}
	return nil
}

// attachEarly is called when the rows of the API server's own Services were
// restored, on a node where nothing is in force.
func (a *Agent) attachEarly() error {
	if err := a.attachPrograms(a.datapath.AttachEarly); err != nil {
		return err
	}
	a.log.Warn("nothing is heard of the API yet; what the state file remembers of its own Services is served until then", "stateFile", a.cfg.StateFile)
	return nil
}

// attach is called when every row was tried.
func (a *Agent) attach() error {
	if err := a.attachPrograms(a.datapath.Attach); err != nil {
		return err
	}
	var s api.Status
	a.addRows(&s, a.tables.Snapshot())
	a.log.Info("the first lists are in the kernel, and the programs are attached", "services", s.Services,
		"frontends", s.Frontends, "failed", s.Errors, "cgroup", a.cfg.Cgroup, "after", time.Since(a.started).Round(time.Millisecond))
	return nil
}

// handler passes events on to the tables, and the node's also to those who
// follow it, before they are said to be complete.
type handler struct {
	*tables.Writer
	agent *Agent
}

func (h handler) Events(events []reflector.Event) {
	for i := range events {
		if events[i].Kind == reflector.KindNode {
			h.agent.node.setAPI(events[i].Node)
			h.agent.eligibility.note(events[i].Node)
		}
	}
	if r := h.agent.reach; r != nil && r.published.note(events) {
		h.agent.learn(apiserver.Slices, r.published.addresses())
	}
	h.Writer.Events(events)
}

// Listed notes also that this node is missing, where somebody must know it: a
// folder of manifests may do without Nodes.
func (h handler) Listed(kind reflector.Kind) {
	if kind == reflector.KindNode && h.agent.cfg.ManifestDir == "" {
		h.agent.eligibility.listed()
	}
	h.Writer.Listed(kind)
}
