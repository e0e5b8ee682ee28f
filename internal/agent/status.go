// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Status says whether the agent is well, and what it rests on.
func (a *Agent) Status(context.Context) (api.Status, error) {
	snapshot := a.tables.Snapshot()
	node, served := a.node.current()
	s := api.Status{
		SchemaVersion: api.SchemaVersion, Healthy: true, Findings: []string{},
		Version: a.cfg.Version, PID: os.Getpid(), Started: a.started,
		Node: node.Name, Zone: node.Zone, NodeAddresses: []string{}, NodePortAddresses: []string{},
		DisableExternalIPs: a.cfg.DisableExternalIPs, AllowNodeAddressClaims: a.cfg.AllowNodeAddressClaims,
		Listening: listeningOn(node.Listening),
		Source:    a.sourceName(), SourceState: []api.SourceStatus{}, Problems: []string{}, Retained: a.retained(),
		Synced: a.reconciler.Stats.Filled.Load(), LastWrite: snapshot.LastWrite(),
		LastCompared: timeOf(a.reconciler.Stats.LastCompared.Load()), Repaired: a.reconciler.Stats.Repaired.Load(),
		PinPath: a.cfg.PinPath, Cgroup: a.cfg.Cgroup, SocketPath: string(a.cfg.SocketMode),
		PacketPath: a.packetPath(),
		Features:   datapath.Features(),
	}
	for _, address := range node.Addresses {
		s.NodeAddresses = append(s.NodeAddresses, address.String())
	}
	for _, address := range served {
		s.NodePortAddresses = append(s.NodePortAddresses, address.String())
	}
	troubles := slices.Concat(a.addRows(&s, snapshot), a.node.findings(), a.settings.findings())
	troubles = append(troubles, retentionTroubles(s.Retained)...)
	troubles = append(troubles, addAPIServer(&s, a.reach.status(a.cfg.StateFile))...)
	a.addSources(&s)
	troubles = append(troubles, a.addHealth(&s)...)
	if err := a.addKernel(&s); err != nil {
		return api.Status{}, err
	}
	troubles = append(troubles, a.addDevices(&s)...)
	addRecording(&s, a.recording)
	judge(&s, a.datapath.Hooks(), troubles)
	return s, nil
}

// listeningOn writes each listener once; sockets may share one.
func listeningOn(all []model.Listener) []string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = l.AddrPort.String() + "/" + l.Protocol.String()
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// addRows counts, and says what could not be written: most often all of it for
// one reason, which the first error tells.
func (a *Agent) addRows(s *api.Status, snapshot tables.Snapshot) (troubles []string) {
	first := ""
	for row := range snapshot.Services() {
		s.Services++
		for _, claim := range row.Compiled.Claims {
			s.Frontends++
			switch state, message, _ := snapshot.Status(row, claim.Key); state {
			case api.StatusPending:
				s.Pending++
			case api.StatusError:
				s.Errors++
				first = cmp.Or(first, fmt.Sprintf("%s of %s: %s", claim.Key, row.Name, message))
			}
		}
	}
	if s.Errors == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d frontends could not be written (see `fairlead get frontends -o wide`), first %s", s.Errors, first)}
}

func (a *Agent) addSources(s *api.Status) {
	states, problems := a.writer.Sources()
	for _, state := range states {
		s.SourceState = append(s.SourceState, sourceStatus(state))
	}
	for _, p := range problems {
		s.Problems = append(s.Problems, p.Error())
	}
}

func (a *Agent) addKernel(s *api.Status) (err error) {
	if s.Maps, err = a.datapath.Usage(); err != nil {
		return fmt.Errorf("read how full the maps are: %w", err)
	}
	if s.Attachments, err = datapath.Attachments(a.cfg.Cgroup, a.cfg.PinPath); err != nil {
		s.Attachments = []api.Attachment{}
		s.Findings = append(s.Findings, fmt.Sprintf("what is attached cannot be told: %v", err))
	}
	if s.EventsLost, err = a.datapath.EventsLost(); err != nil {
		return err
	}
	if s.Packets, err = a.datapath.PacketCounts(); err != nil {
		return err
	}
	releases := a.datapath.Releases()
	s.SocketsReleased, s.SocketsStranded = releases.Sockets, releases.Stranded
	s.Refusals = []api.RefusalCount{}
	reader, err := datapath.OpenReader(a.cfg.PinPath)
	if err != nil {
		// Before the first fill there are no current maps to read.
		return nil
	}
	defer reader.Close()
	s.Refusals, err = reader.Refusals()
	return err
}

// judge sets the health and says why it is not well, the troubles included.
// Hooks are the programs that should be attached.
func judge(s *api.Status, hooks int, troubles []string) {
	bad := func(format string, args ...any) {
		s.Healthy = false
		s.Findings = append(s.Findings, fmt.Sprintf(format, args...))
	}
	if !s.Synced {
		bad("the first lists are not in the kernel yet: what was pinned before is in force")
	}
	for _, source := range s.SourceState {
		if source.Stale {
			bad("%s is stale since %s, what was known stays in force: %s%s", source.Kind, source.Since.Format(time.RFC3339), source.Error, remedy(source))
		}
	}
	for _, trouble := range troubles {
		bad("%s", trouble)
	}
	if s.SocketsStranded > 0 {
		bad("%d connected UDP sockets keep a backend that is gone, in network namespaces of which no process is seen here: run the agent in the node's PID namespace (hostPID) with CAP_SYS_PTRACE", s.SocketsStranded)
	}
	for _, f := range s.Features {
		if !f.Present {
			s.Findings = append(s.Findings, fmt.Sprintf("this kernel lacks %s: %s", f.Name, f.Cost))
		}
	}
	ours := 0
	for _, at := range s.Attachments {
		if at.Ours && at.Device == "" {
			ours++
		}
	}
	if s.Synced && s.SocketPath != string(datapath.SocketOff) && ours < hooks {
		bad("%d of the %d programs are attached to %s: someone detached the others, restart the agent", ours, hooks, s.Cgroup)
	}
	if len(s.Problems) > 0 {
		bad("%d objects or files cannot be read, their last good content stays in force", len(s.Problems))
	}
}
