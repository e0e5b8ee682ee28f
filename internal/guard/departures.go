// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/impact"
)

const (
	// remembered is how long an allowed delete counts as done although no watch
	// has told of it.
	remembered = 30 * time.Second
	// mostRemembered bounds what is remembered; a delete of more at once is told
	// by the watches before it is at its end.
	mostRemembered = 1000
)

// departures are the objects whose deletes were allowed of late. The zero value
// is ready.
type departures struct {
	mu  sync.Mutex
	all []departure // oldest first
}

type departure struct {
	uid types.UID
	at  time.Time
}

// add has an object count as going. It is called before the object is judged,
// so that of two that are judged at the same time each sees the other go.
func (d *departures) add(uid types.UID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(uid)
	if len(d.all) >= mostRemembered {
		d.all = d.all[1:]
	}
	d.all = append(d.all, departure{uid, now})
}

// withdraw has an object stay after all.
func (d *departures) withdraw(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(uid)
}

func (d *departures) drop(uid types.UID) {
	kept := make([]departure, 0, len(d.all))
	for _, each := range d.all {
		if each.uid != uid {
			kept = append(kept, each)
		}
	}
	d.all = kept
}

// among are the objects of a State that go, but for one.
func (d *departures) among(s *impact.State, but types.UID, now time.Time) []*impact.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.all) > 0 && now.Sub(d.all[0].at) > remembered {
		d.all = d.all[1:]
	}
	var going []*impact.Object
	for _, each := range d.all {
		if o, there := s.ByUID(each.uid); there && each.uid != but {
			going = append(going, o)
		}
	}
	return going
}
