// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/drift"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// layers are the layers within reach; one that is not is nil.
type layers struct {
	api    func(context.Context) ([]api.Frontend, error)
	tables func(context.Context) ([]api.Frontend, error)
	kernel func() (api.Kernel, error)
	// services are asked where the tables are: rows do not tell selections.
	services func(context.Context) (api.Services, error)
	// apiMayFail: the agent reads the API for us, and need not reach it.
	apiMayFail bool
	wanted     []api.Frontend // what the API asked for when it was read last
	notes      []string       // what is not compared, or not as it seems, and why
	problems   []reflector.Problem
}

// reach finds the layers.
func (e *env) reach(ctx context.Context, d *diffFlags) (*layers, error) {
	l := &layers{}
	client := api.NewClient(*d.socket)
	status, agentErr := client.Status(ctx)
	if agentErr == nil {
		d.objects.nodeFrom(status)
		l.noteFill(status)
	}
	// An agent that answers, if only that it cannot say how it is, has tables.
	if _, answered := errors.AsType[*api.Error](agentErr); answered || agentErr == nil {
		l.tables, l.services = client.Frontends, client.Services
	} else if !errors.Is(agentErr, api.ErrNoAgent) {
		return nil, agentErr
	}
	if err := l.reachAPI(ctx, e, d); err != nil {
		return nil, err
	}
	if l.api == nil && l.tables != nil {
		l.api, l.apiMayFail = client.Desired, true
	}
	_, kernelErr := readKernel(*d.pinPath)
	if kernelErr == nil {
		l.kernel = func() (api.Kernel, error) { return readKernel(*d.pinPath) }
	}
	if len(l.names()) < 2 {
		return nil, tooFew(l, agentErr, kernelErr)
	}
	if kernelErr != nil {
		l.notes = append(l.notes, "the kernel is not compared: "+kernelErr.Error())
	}
	return l, nil
}

// noteFill tells of an agent that has not filled the kernel yet: then maps are
// missing, or hold what was before, without anything being amiss.
func (l *layers) noteFill(status api.Status) {
	if !status.Synced {
		l.notes = append(l.notes, "the agent's first lists are not in the kernel yet: what the kernel held before stays in force until they are")
	}
}

func tooFew(l *layers, agentErr, kernelErr error) error {
	var missing []string
	if l.api == nil {
		missing = append(missing, "api: give -f FILE or --kubeconfig FILE")
	}
	if l.tables == nil {
		missing = append(missing, "tables: "+agentErr.Error())
	}
	if kernelErr != nil {
		missing = append(missing, "kernel: "+kernelErr.Error())
	}
	return fmt.Errorf("diff needs two of api, tables and kernel; %s", strings.Join(missing, "; "))
}

// nodeFrom takes from the agent what the flags do not say of its node, and of
// what it was told to do.
func (o *objectFlags) nodeFrom(status api.Status) {
	if o.nodeName != "" && o.nodeName != status.Node {
		return
	}
	o.nodeName = status.Node
	o.disableExternal = o.disableExternal || status.DisableExternalIPs
	o.allowNodeAddress = o.allowNodeAddress || status.AllowNodeAddressClaims
	for _, text := range status.Listening {
		if at, protocol, err := api.ParseTarget(text); err == nil {
			o.listening = append(o.listening, model.Listener{AddrPort: at, Protocol: protocol})
		}
	}
	if _, given := o.nodeLabels[zoneLabel]; !given && status.Zone != "" {
		o.nodeLabels = map[string]string{zoneLabel: status.Zone}
	}
	if len(o.nodeIPs.values) > 0 {
		return
	}
	for _, text := range status.NodeAddresses {
		if address, err := netip.ParseAddr(text); err == nil {
			o.nodeIPs.values = append(o.nodeIPs.values, address)
		}
	}
}

// reachAPI finds the API where the flags say it is, if they do.
func (l *layers) reachAPI(ctx context.Context, e *env, d *diffFlags) error {
	if d.objects.given() {
		w, err := d.objects.read(ctx, e)
		rows := w.frontends()
		l.problems = w.problems
		l.api = func(context.Context) ([]api.Frontend, error) { return rows, nil }
		return err
	}
	if d.kubeconfig == "" {
		return nil
	}
	source, err := d.source()
	l.api = func(ctx context.Context) ([]api.Frontend, error) {
		objects, problems, err := source.List(ctx)
		if err != nil {
			return nil, err
		}
		l.problems = problems
		w, err := d.objects.compile(objects, problems)
		return w.frontends(), err
	}
	return err
}

func (d *diffFlags) source() (reflector.Source, error) {
	if err := d.objects.needNode(); err != nil {
		return nil, err
	}
	config, err := apiserver.RESTConfig(d.kubeconfig)
	if err != nil {
		return nil, err
	}
	return reflector.NewKubernetes(config, d.objects.nodeName, nil, slog.New(slog.DiscardHandler))
}

// names are the layers that are compared, in order.
func (l *layers) names() []string {
	names := []string{}
	if l.api != nil {
		names = append(names, drift.LayerAPI)
	}
	if l.tables != nil {
		names = append(names, drift.LayerTables)
	}
	if l.kernel != nil {
		names = append(names, drift.LayerKernel)
	}
	return names
}

const (
	settleTime = time.Second
	settleStep = 100 * time.Millisecond
)

// drift compares the layers. While an agent works they are never read at one
// moment, so only what every reading finds for a second is drift. A large API
// takes long to read: it is asked at the beginning and at the end only.
func (l *layers) drift(ctx context.Context) ([]api.Drift, int, error) {
	found, frontends, err := l.compare(ctx, true)
	end := time.Now().Add(settleTime)
	for last := false; err == nil && len(found) > 0 && l.tables != nil && !last; {
		if err := pause(ctx, settleStep); err != nil {
			return nil, 0, err
		}
		last = !time.Now().Before(end)
		var again []api.Drift
		again, frontends, err = l.compare(ctx, last)
		found = keep(found, func(d api.Drift) bool { return slices.Contains(again, d) })
	}
	return found, frontends, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("compare: %w", ctx.Err())
	}
}

// compare reads every layer once, the API only if that is to be fresh, and
// compares neighbours.
func (l *layers) compare(ctx context.Context, fresh bool) ([]api.Drift, int, error) {
	found, rows, left := []api.Drift{}, []api.Frontend(nil), ""
	if l.api != nil && fresh {
		wanted, err := l.api(ctx)
		if err := l.spare(err); err != nil {
			return nil, 0, err
		}
		l.wanted = wanted
	}
	if l.api != nil {
		rows, left = l.wanted, drift.LayerAPI
	}
	if l.tables != nil {
		have, err := l.tables(ctx)
		if err != nil {
			return nil, 0, err
		}
		if left != "" {
			found = append(found, drift.Rows(rows, have)...)
		}
		rows, left = have, drift.LayerTables
	}
	if l.kernel != nil {
		kernel, err := l.kernel()
		if err != nil {
			return nil, 0, err
		}
		found = append(found, drift.Left(left, drift.Kernel(rows, kernel))...)
		selections, err := l.selections(ctx, kernel)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, selections...)
	}
	return found, len(rows), nil
}

// selections compares how the tables and the kernel choose among backends.
func (l *layers) selections(ctx context.Context, kernel api.Kernel) ([]api.Drift, error) {
	if l.services == nil {
		return nil, nil
	}
	wanted, err := l.services(ctx)
	return drift.Selections(wanted.Services, kernel), err
}

// spare gives up on the API if that failed and the other layers are enough: a
// node must be able to compare without it.
func (l *layers) spare(err error) error {
	if err == nil || !l.apiMayFail || l.kernel == nil {
		return err
	}
	l.api = nil
	l.notes = append(l.notes, "the API is not compared: "+err.Error())
	return nil
}
