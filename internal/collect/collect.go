// SPDX-License-Identifier: Apache-2.0

// Package collect makes a bundle of evidence of what is alive: what the API
// says, what this node's data planes and its kernel hold, and, through the API,
// what those of other nodes do.
//
// It asks, bounds what it gets, and writes down by which command a person would
// get the same. It changes nothing on a node or in a cluster, and never asks for
// what is in a Secret: of those that Helm keeps it takes names and labels, if the
// user may list Secrets anyway. What an answer means may not enter; a source that
// fails is a record that says why, and never the end of a collection.
package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/apiserver"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// Config says what to collect.
type Config struct {
	// By is the version of the program.
	By string
	// Samples is how often each layer is read, Interval how much time lies
	// between two beginnings.
	Samples  int
	Interval time.Duration
	// API is the way to an API server; nil: none is asked.
	API *apiserver.Client
	// Here is the node on which the process runs; nil: it is on none of them.
	Here *Here
	// Planes are the data planes that are asked in their pods, on Nodes, or on
	// all if there are none.
	Planes []Plane
	Nodes  []string
	// Journal is the path of a recorder's journal; "": there is none.
	Journal string
	// Doing hears what is being done; it may be called from any goroutine.
	Doing func(string)
}

// Here is what is asked on the node itself.
type Here struct {
	Node   string // its name; "": not known
	Socket string // of Fairlead's agent
	Pins   string // where that pins its maps
	Kernel func() (api.Kernel, error)
	// Dial tries connections on the node, chosen by what a sample shows; nil: none
	// is to be tried.
	Dial func(ctx context.Context, node string, sample []evidence.Record) ([]probe.Result, error)
	Proc string // the folder /proc
	Logs string // the folder of the pods' logs
}

// group is what is read one after the other; groups are read side by side.
type group []source

// Collect reads everything, and returns what it got. It fails only if pods were
// to be asked and cannot be.
func Collect(ctx context.Context, cfg Config) (*evidence.Bundle, error) {
	c := &collector{cfg: cfg}
	b := &evidence.Bundle{Made: time.Now(), By: cfg.By}
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	for n := 1; n <= cfg.Samples && ctx.Err() == nil; n++ {
		began := time.Now()
		b.Records = append(b.Records, c.sample(ctx, n)...)
		if why := nothing(b.Records); why != "" && cfg.Journal == "" {
			return nil, fmt.Errorf("%w (%s)", ErrNothing, why)
		}
		if n < cfg.Samples {
			c.doing("waiting for sample %d of %d", n+1, cfg.Samples)
			pause(ctx, cfg.Interval-time.Since(began))
		}
	}
	c.doing("reading logs")
	b.Records = append(b.Records, c.read(ctx, 0, c.logs(ctx))...)
	if cfg.Journal != "" {
		c.doing("reading %s", cfg.Journal)
		recorded, err := c.recorded(ctx, b.Records)
		if err != nil {
			return nil, err
		}
		b.Records = append(b.Records, recorded...)
	}
	unique(b.Records)
	return b, ctx.Err()
}

// ErrNothing says that there is neither an API server nor a Service proxy to look
// at.
var ErrNothing = errors.New("find a cluster here: no Service proxy that fairlead knows is on this machine, and no API server answers")

// nothing says why a first sample tells nothing of Services; it is empty if it
// does.
func nothing(records []evidence.Record) (why string) {
	why = "none was asked: give --kubeconfig"
	for _, r := range records {
		switch {
		case r.Kind == evidence.Conntrack:
		case r.Kind == evidence.Version && r.Error != "":
			why = r.Error
		default:
			return ""
		}
	}
	return why
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

type collector struct {
	cfg  Config
	api  *cluster // nil: none is asked
	pods []pod    // those in which commands run
}

func (c *collector) doing(format string, args ...any) {
	if c.cfg.Doing != nil {
		c.cfg.Doing(fmt.Sprintf(format, args...))
	}
}

// find prepares what all samples need.
func (c *collector) find(ctx context.Context) (err error) {
	if c.cfg.API == nil {
		c.nameHere(ctx)
		return nil
	}
	if c.api, err = newCluster(c.cfg.API); err != nil {
		return err
	}
	c.doing("looking for pods")
	c.api.findPods(ctx)
	c.nameHere(ctx)
	c.pods, err = c.api.podsOf(c.cfg.Planes, c.cfg.Nodes)
	return err
}

// sample reads every layer once.
func (c *collector) sample(ctx context.Context, n int) []evidence.Record {
	c.doing("reading sample %d of %d", n, c.cfg.Samples)
	var groups []group
	if c.api != nil {
		groups = append(groups, c.api.sources(ctx))
	}
	if c.cfg.Here != nil {
		groups = append(groups, c.cfg.Here.sources(ctx, c.api.runs(KubeProxy, c.cfg.Here.Node))...)
	}
	for _, p := range c.pods {
		groups = append(groups, p.sources(c.api))
	}
	records := c.read(ctx, n, groups)
	if h := c.cfg.Here; h != nil && h.Dial != nil {
		c.doing("trying connections")
		records = append(records, c.read(ctx, n, []group{h.dials(records)})...)
	}
	return records
}

// atOnce is how many groups are read at the same time: enough for a cluster's
// nodes to take minutes rather than hours, and few enough for an API server in
// trouble.
const atOnce = 6

// read reads groups side by side; their order is kept.
func (c *collector) read(ctx context.Context, sample int, groups []group) []evidence.Record {
	results := make([][]evidence.Record, len(groups))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, g := range groups {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			for _, s := range g {
				if r, ok := s.run(ctx, sample); ok {
					results[i] = append(results[i], r)
				}
			}
		})
	}
	all.Wait()
	return slices.Concat(results...)
}
