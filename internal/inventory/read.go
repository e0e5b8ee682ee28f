// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/impact"
)

// Config is how a cluster is read.
type Config struct {
	// REST is the way to the API server, and who asks.
	REST *rest.Config
	// Doing is told what is being read, from any goroutine; nil if nobody cares.
	Doing func(what string)
}

// Read reads everything that can be deleted: whole what judges read whole, and
// of the rest the metadata. A kind that cannot be read is unknown in the State,
// with the reason; an error means that next to nothing could be read.
func Read(ctx context.Context, cfg Config) (*impact.State, error) {
	r, err := newReader(cfg)
	if err != nil {
		return nil, err
	}
	state := impact.NewState(time.Now())
	kinds, err := r.discover(state)
	if err != nil {
		return nil, err
	}
	r.kinds = len(kinds)
	lists := make([]list, len(kinds))
	inParallel(len(kinds), func(i int) { lists[i] = r.list(ctx, kinds[i]) })
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the objects of %s: %w", r.host, context.Cause(ctx))
	}
	for i, l := range lists {
		// What was read before a list broke off is better known than not.
		for _, o := range l.objects {
			state.Add(o)
		}
		if l.err != nil && !gone(l.err) {
			state.SetUnknown(kinds[i].GroupResource(), reason(l.err))
		}
		if kinds[i].outdated != "" {
			state.SetUnknown(kinds[i].GroupResource(), kinds[i].outdated)
		}
	}
	noteUnserved(state)
	return state, nil
}

// noteUnserved marks as unknown what a CustomResourceDefinition keeps and
// nobody can read, since it serves no version.
func noteUnserved(s *impact.State) {
	for _, d := range impact.Contents[*impact.Definition](s, impact.Definitions) {
		if !d.Served() {
			s.SetUnknown(d.Instances(), "their CustomResourceDefinition serves no version")
		}
	}
}

// reader asks one API server.
type reader struct {
	rest  rest.Interface
	found discovery.ServerResourcesInterface
	host  string
	doing func(string)

	mu             sync.Mutex
	kinds          int // to be read
	read, finished int // objects, kinds
}

func newReader(cfg Config) (*reader, error) {
	config := rest.CopyConfig(cfg.REST)
	config.WarningHandler = rest.NoWarnings{} // that a kind is deprecated concerns its writers
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", cfg.REST.Host, err)
	}
	r := &reader{rest: client.RESTClient(), found: client, host: cfg.REST.Host, doing: cfg.Doing}
	if r.doing == nil {
		r.doing = func(string) {}
	}
	return r, nil
}

// count tells how far the reading is.
func (r *reader) count(kind kind, objects, finished int) {
	r.mu.Lock()
	r.read += objects
	r.finished += finished
	text := fmt.Sprintf("reading %s: %d of %d kinds, %d objects so far", kind.GroupResource(), r.finished, r.kinds, r.read)
	r.mu.Unlock()
	r.doing(text)
}

// atOnce is how many questions an API server is asked at a time: it has others
// to answer.
const atOnce = 4

// inParallel calls do for 0 to n-1, and returns when all calls have.
func inParallel(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(n, atOnce) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// gone says that a kind, or an object, is not there any more.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) }

// reason says why something could not be read, in words that end a sentence.
func reason(err error) string {
	var stale discovery.StaleGroupVersionError
	switch {
	case errors.As(err, &stale):
		return "the server behind their API group does not answer (" + err.Error() + ")"
	case apierrors.IsForbidden(err):
		return "the API server does not let you list them"
	case apierrors.IsResourceExpired(err):
		return fmt.Sprintf("their list changes faster than it can be read: %d times it had expired before its last page", tries)
	case apierrors.ReasonForError(err) == metav1.StatusReasonServiceUnavailable:
		return "the server behind their API group does not answer (" + err.Error() + ")"
	}
	return err.Error()
}
