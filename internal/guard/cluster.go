// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/impact"
)

const (
	// A State is used for shortestPause at least before the next is made, and for
	// as long as keeps making them to a share of one core, but not for more than
	// longestPause: what was allowed meanwhile is judged again with each delete.
	shortestPause = 250 * time.Millisecond
	longestPause  = time.Second
	share         = 0.1
	// tolerated is how long a kind may not be followed before what is known of it
	// counts for nothing. API servers that restart take less.
	tolerated = 15 * time.Second
)

// errNotSynced is why a guard that has just begun judges nothing.
var errNotSynced = errors.New("it has not yet read all objects")

// Cluster is what is watched of a cluster.
type Cluster struct {
	followers []*follower
	leftOut   []schema.GroupResource
	log       *slog.Logger

	changed chan struct{} // buffered 1
	current atomic.Pointer[impact.State]
}

// Watched are the kinds that a guard follows. Whoever may list Secrets or
// ConfigMaps may read what they hold, so they are left out unless asked for; of
// them no more than names and labels is asked for even so.
func Watched(secrets bool) []impact.Kind {
	return slices.DeleteFunc(impact.Kinds(), func(k impact.Kind) bool { return !secrets && confidential(k.GroupResource()) })
}

func confidential(gr schema.GroupResource) bool {
	return gr == impact.Secrets || gr == impact.ConfigMaps
}

// NewCluster makes no request yet.
func NewCluster(config *rest.Config, secrets bool, log *slog.Logger) (*Cluster, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	names, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	c := newCluster(log)
	for _, kind := range Watched(secrets) {
		f := newFollower(kind, func() { signal(c.changed) })
		if _, partial := kind.New().(*metav1.PartialObjectMetadata); partial {
			f.list, f.watch = sourceOf(names.Resource(kind.GroupVersionResource))
		} else {
			f.list, f.watch = sourceOf(objects.Resource(kind.GroupVersionResource))
		}
		c.followers = append(c.followers, f)
	}
	if !secrets {
		c.leftOut = []schema.GroupResource{impact.Secrets, impact.ConfigMaps}
	}
	return c, nil
}

func newCluster(log *slog.Logger) *Cluster {
	return &Cluster{log: log, changed: make(chan struct{}, 1)}
}

// Run follows all kinds until ctx ends.
func (c *Cluster) Run(ctx context.Context) {
	quiet := klog.NewContext(ctx, logr.FromSlogHandler(c.log.Handler()).V(4))
	var all sync.WaitGroup
	for _, f := range c.followers {
		all.Go(func() { f.run(quiet) })
	}
	all.Go(func() { c.renew(ctx) })
	all.Wait()
}

// renew makes a new State after something has changed, and not more often than
// its share of a core allows: requests wait for none.
func (c *Cluster) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		if c.settled() != nil {
			continue
		}
		began := time.Now()
		c.refresh()
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(max(shortestPause, time.Duration(float64(took)/share)), longestPause)):
		}
	}
}

func (c *Cluster) refresh() {
	s := c.build(nil)
	c.warm(s)
	if c.current.Swap(s) == nil {
		c.log.Info("all kinds are read: deletes are judged from now on", "kinds", len(c.followers), "not known", len(s.Unknowns()))
	}
}

// settled says which kind has neither been listed yet nor been refused.
func (c *Cluster) settled() error {
	for _, f := range c.followers {
		if !f.settled() {
			return fmt.Errorf("%w: %s are missing", errNotSynced, f.kind.GroupResource())
		}
	}
	return nil
}

// State is the cluster as of a moment ago, or why nobody should judge by it.
func (c *Cluster) State() (*impact.State, error) {
	s := c.current.Load()
	if s == nil {
		if err := c.settled(); err != nil {
			return nil, err
		}
		return nil, errNotSynced
	}
	for _, f := range c.followers {
		if err := f.stale(time.Now()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// With is the cluster at this moment, with an object as it is given. It takes
// as long as making a State does, so it is for an object that State does not
// have yet, or has otherwise.
func (c *Cluster) With(o *impact.Object) *impact.State { return c.build(o) }

func (c *Cluster) build(first *impact.Object) *impact.State {
	s := impact.NewState(time.Now())
	if first != nil {
		s.Add(first) // of two with one name the first stays
	}
	for _, f := range c.followers {
		f.addTo(s)
	}
	for _, gr := range c.leftOut {
		s.SetUnknown(gr, "the guard was not told to read their names")
	}
	for _, d := range impact.Contents[*impact.Definition](s, impact.Definitions) {
		s.SetUnknown(schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}, "the guard does not follow custom resources")
	}
	return s
}

// warm judges an object of each kind, so that the tables which judges make when
// they first look something up in a State are there before a request is.
func (c *Cluster) warm(s *impact.State) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a judge has a defect; deletes are allowed where it shows: report it", "panic", p)
		}
	}()
	var one []*impact.Object
	for _, f := range c.followers {
		if of := s.Of(f.kind.GroupResource()); len(of) > 0 {
			one = append(one, of[0])
		}
	}
	impact.Examine(s, impact.Delete(s, one, impact.Orphan))
}

// signal leaves a note for a reader who may be busy.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
