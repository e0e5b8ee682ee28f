// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// releasePatience bounds how long a release waits until it shows.
const releasePatience = 10 * time.Second

// Release ends the retention of a Service, and returns when nothing is retained
// for it any more.
func (a *Agent) Release(ctx context.Context, service string) (api.Released, error) {
	namespace, name, _ := strings.Cut(service, "/")
	released := api.Released{SchemaVersion: api.SchemaVersion, Service: service, Retained: a.retainedFor(service)}
	if len(released.Retained) == 0 {
		return api.Released{}, api.NotFound("nothing is retained for %q: `fairlead status` lists what is", service)
	}
	if err := a.writer.Release(model.Name{Namespace: namespace, Name: name}); err != nil {
		return api.Released{}, api.NotFound("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	for len(a.retainedFor(service)) > 0 {
		select {
		case <-time.After(releaseStep):
		case <-ctx.Done():
			return api.Released{}, fmt.Errorf("release %s: it is asked for and not done yet, see `fairlead status`: %w", service, ctx.Err())
		}
	}
	return released, nil
}

// releaseStep is how often a release looks.
const releaseStep = 5 * time.Millisecond

func (a *Agent) retained() []api.Retention { return explain.Retentions(a.writer.Retained()) }

func (a *Agent) retainedFor(service string) []api.Retention {
	return slices.DeleteFunc(a.retained(), func(r api.Retention) bool { return r.Service != service })
}

// retentionTroubles says of each Service once that it goes on with backends
// that the API has no more: somebody should find out why.
func retentionTroubles(all []api.Retention) []string {
	var troubles []string
	for _, r := range perService(all) {
		troubles = append(troubles, fmt.Sprintf("%s %s; `fairlead explain %s` shows more, `fairlead release %s` ends it", r.Service, explain.KeptText(r), r.Service, r.Service))
	}
	return troubles
}

// perService joins the sets of each Service.
func perService(all []api.Retention) []api.Retention {
	var joined []api.Retention
	for _, r := range all {
		i := slices.IndexFunc(joined, func(o api.Retention) bool { return o.Service == r.Service })
		if i < 0 {
			r.Backends = slices.Clone(r.Backends)
			joined = append(joined, r)
			continue
		}
		joined[i] = join(joined[i], r)
	}
	return joined
}

// join returns what two sets of a Service keep, from the first to the last.
func join(a, b api.Retention) api.Retention {
	if b.Since.Before(a.Since) {
		a.Since = b.Since
	}
	if a.Until != nil && b.Until != nil && b.Until.After(*a.Until) {
		a.Until = b.Until
	}
	for _, more := range b.Backends {
		known := func(o api.Backend) bool { return o.Address == more.Address && o.Port == more.Port }
		if !slices.ContainsFunc(a.Backends, known) {
			a.Backends = append(a.Backends, more)
		}
	}
	return a
}

// retention hears of each step of a retention, and tells those who watch.
func (a *Agent) retention(e tables.RetentionEvent) {
	a.metrics.Retained(e.What)
	a.refusals.send(retentionEvent(e))
	a.log.Warn("retention: "+e.What, "service", e.Key.Service.String(), "port", e.Key.PortName, "family", e.Key.Family.String(), "role", e.Key.Role.String(), "what", e.Text)
}

func retentionEvent(e tables.RetentionEvent) api.Event {
	return api.Event{
		Event: e.What, Family: e.Key.Family.String(), Role: e.Key.Role.String(),
		Refusal: api.Refusal{
			SchemaVersion: api.SchemaVersion, Time: e.Time.UTC(), Service: e.Key.Service.String(),
			PortName: e.Key.PortName, Protocol: e.Key.Protocol.String(), Reason: e.Text,
		},
	}
}
