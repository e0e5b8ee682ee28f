// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/replay"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// recordedFlags name a moment of a journal, and what an agent would have kept
// until then.
type recordedFlags struct {
	journal     string
	at          string
	version     uint64
	retain      list[model.Name]
	retainLimit time.Duration
}

// addRecorded lets a command look at a moment of a journal.
func (o *objectFlags) addRecorded(cmd *cobra.Command) {
	o.addMoment(cmd)
	cmd.Flags().StringVar(&o.recorded.journal, "journal", "", "journal's `FILE`: look at what was recorded rather than at what is now")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return o.refuseWithoutJournal(cmd) }
	if o.takesFiles {
		cmd.MarkFlagsMutuallyExclusive("filename", "journal")
	}
}

// addMoment is for a command that takes its journal in another way.
func (o *objectFlags) addMoment(cmd *cobra.Command) {
	o.recorded = &recordedFlags{retain: list[model.Name]{kind: "NAMESPACE/NAME", parse: parseService}}
	cmd.Flags().StringVar(&o.recorded.at, "at", "", "the moment in the journal, a `TIME` as 2026-01-02T15:04:05Z, or how long ago as 30m; its end if empty")
	cmd.Flags().Uint64Var(&o.recorded.version, "at-version", 0, "the moment in the journal when `N` was the last resourceVersion")
	addRetentionFlags(cmd, &o.recorded.retain, &o.recorded.retainLimit)
	cmd.MarkFlagsMutuallyExclusive("at", "at-version")
}

// refuseWithoutJournal keeps a flag about journals from having no effect in
// silence.
func (o *objectFlags) refuseWithoutJournal(cmd *cobra.Command) error {
	for _, name := range []string{"at", "at-version", "retain", "retain-limit"} {
		if !o.fromJournal() && cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is about a journal: give --journal too", name)
		}
	}
	return nil
}

func (r *recordedFlags) moment(now time.Time) (replay.Moment, error) {
	if r.retainLimit < 0 {
		return replay.Moment{}, fmt.Errorf("--retain-limit %s: it must not be negative", r.retainLimit)
	}
	at, err := readTime("--at", r.at, now)
	return replay.Moment{Time: at, Version: r.version}, err
}

// doing is what takes long with a large journal.
func (r *recordedFlags) doing() string { return "replaying " + r.journal }

// played is a moment of a journal. Close it.
type played struct {
	journal  *journal.Journal
	engine   *replay.Engine
	summary  replay.Summary
	problems []reflector.Problem
}

func (p *played) close() {
	if p.engine != nil {
		p.engine.Close()
	}
	_ = p.journal.Close()
}

// play replays the journal, and tells what it was.
func (o *objectFlags) play(ctx context.Context, e *env) (*played, error) {
	to, err := o.recorded.moment(time.Now())
	if err != nil {
		return nil, err
	}
	p := &played{}
	if p.journal, err = journal.Open(o.recorded.journal); err != nil {
		return nil, err
	}
	if err := o.playTo(ctx, e, p, to); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (o *objectFlags) playTo(ctx context.Context, e *env, p *played, to replay.Moment) error {
	options, err := o.replayOptions(ctx, e, p.journal)
	if err != nil {
		return err
	}
	if p.engine, err = replay.New(options); err != nil {
		return err
	}
	done := e.whileBusy(o.recorded.doing)
	p.summary, err = p.engine.Run(ctx, p.journal, to)
	done()
	p.problems = p.engine.Problems()
	if err := p.torn(err); err != nil {
		return fmt.Errorf("replay %s: %w", o.recorded.journal, err)
	}
	e.tell(p.summary, options.Node.Name)
	if err := e.warnOfEnd(ctx, p.journal, to.Time); err != nil {
		return err
	}
	if unheard := p.engine.Unheard(); len(unheard) > 0 {
		e.warn("an agent would have served nothing at that moment: it had not heard of any %s", joinedKinds(unheard))
	}
	return nil
}

// torn takes a torn journal for a problem beside others: what could be read
// counts.
func (p *played) torn(err error) error {
	if !errors.Is(err, journal.ErrTorn) {
		return err
	}
	p.problems = append(p.problems, reflector.Problem{Message: err.Error()})
	return nil
}

func joinedKinds(kinds []reflector.Kind) string {
	texts := make([]string, len(kinds))
	for i, kind := range kinds {
		texts[i] = kind.String()
	}
	return joined(texts)
}

// replayOptions are those of the agent that the flags describe.
func (o *objectFlags) replayOptions(ctx context.Context, e *env, j *journal.Journal) (replay.Options, error) {
	nodes, torn := replay.Nodes(ctx, j)
	if torn != nil && !errors.Is(torn, journal.ErrTorn) {
		return replay.Options{}, torn
	}
	if o.nodeName == "" && len(nodes) > 0 {
		o.nodeName = nodes[0]
		if len(nodes) > 1 {
			e.warn("looking from Node %s, the first of %d in the journal: --node-name names another", o.nodeName, len(nodes))
		}
	}
	if err := o.needNode(); err != nil {
		if torn != nil {
			e.warn("%v", torn)
		}
		return replay.Options{}, err
	}
	recorded := slices.Contains(nodes, o.nodeName)
	if !recorded {
		e.warn("the journal has no Node %s: its zone and its addresses are those that flags give", o.nodeName)
	}
	node, err := o.node(nil)
	return replay.Options{
		Node: node, NodeRecorded: recorded, Model: o.options(),
		Retention: tables.Retention{Services: append([]model.Name{replay.APIServer}, o.recorded.retain.values...), Limit: o.recorded.retainLimit},
	}, err
}

// tell says on stderr what an answer rests on.
func (e *env) tell(s replay.Summary, node string) {
	e.warnOfGaps(s.Gaps)
	if s.Cut {
		e.warn("the moment lies within a list: what had come of it by then does not count")
	}
	e.warn("replayed %d events from %s to %s (%s) on Node %s", s.Events, stampText(s.First), stampText(s.Last), replay.DurationText(s.Last.Sub(s.First).Round(time.Millisecond)), node)
}

// warnOfEnd says where a journal ends before the moment that is asked for.
func (e *env) warnOfEnd(ctx context.Context, j *journal.Journal, at time.Time) error {
	_, last, found, err := j.Extent(ctx)
	if found && at.After(last) {
		e.warn("what happened after %s is not in the journal, or had not happened yet when it was read", stampText(last))
	}
	if errors.Is(err, journal.ErrTorn) {
		return nil // the replay has said so
	}
	return err
}

// readRecorded makes the world of what was recorded.
func (o *objectFlags) readRecorded(ctx context.Context, e *env) (world, error) {
	p, err := o.play(ctx, e)
	if err != nil {
		return world{}, err
	}
	defer p.close()
	return world{p.engine.Node(), p.engine.Candidates(), p.problems}, nil
}

// explainRecorded explains a Service as it was at a moment of a journal.
func (e *env) explainRecorded(ctx context.Context, o *objectFlags, output *format, target string) error {
	p, err := o.play(ctx, e)
	if err != nil {
		return err
	}
	defer p.close()
	node := p.engine.Node()
	view := explain.View{Snapshot: p.engine.Snapshot(), Node: node, Served: node.Addresses, Retained: p.engine.Retained()}
	row, err := view.Find(target)
	if err != nil {
		return p.absence(ctx, target, err)
	}
	explained := view.Service(row)
	explain.Frontends(&explained, row, api.Frontends(row.Name, &row.Compiled), func(f api.Frontend) (*api.KernelEntry, string) {
		return nil, explain.Verdict(f)
	})
	for i := range explained.Transitions {
		if err := p.nameManagers(ctx, explained.Transitions[i].Causes); err != nil {
			return err
		}
	}
	if err := e.printExplain(output, explained); err != nil {
		return err
	}
	return e.report(p.problems)
}

// absence says of a Service that was not there when it was.
func (p *played) absence(ctx context.Context, target string, notFound error) error {
	namespace, name, isName := strings.Cut(target, "/")
	if answer, ok := errors.AsType[*api.Error](notFound); !ok || answer.Status != http.StatusNotFound || !isName {
		return notFound
	}
	gone := ""
	for event, err := range p.journal.Events(ctx, journal.Filter{Kinds: []string{"services"}, Namespaces: []string{namespace}, Names: []string{name}}) {
		switch {
		case err != nil:
			return notFound
		case event.Time.After(p.summary.Last):
			return fmt.Errorf("there was no Service %s at that moment; it comes at %s", target, stampText(event.Time))
		case event.Type == journal.Deleted:
			gone = "it was deleted at " + stampText(event.Time)
		case event.Type == journal.Absent:
			gone = "it was found gone at " + stampText(event.Time)
		}
	}
	if gone == "" {
		return fmt.Errorf("there is no Service %s in the journal", target)
	}
	return fmt.Errorf("there was no Service %s at that moment; %s", target, gone)
}

// nameManagers says who wrote the versions of objects that led to a transition.
func (p *played) nameManagers(ctx context.Context, causes []api.ObjectRef) error {
	for i := range causes {
		cause := &causes[i]
		version, err := strconv.ParseUint(cause.ResourceVersion, 10, 64)
		if err != nil || version == 0 {
			continue
		}
		namespace, name, qualified := strings.Cut(cause.Name, "/")
		if !qualified {
			namespace, name = "", cause.Name
		}
		f := journal.Filter{Kinds: []string{cause.Kind}, Namespaces: []string{namespace}, Names: []string{name}, FromVersion: version, ToVersion: version}
		for event, err := range p.journal.Events(ctx, f) {
			if err != nil && !errors.Is(err, journal.ErrTorn) {
				return err
			}
			cause.Manager = cmp.Or(event.Manager, cause.Manager)
		}
	}
	return nil
}
