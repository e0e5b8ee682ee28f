// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// batch collects what the changes of a batch come to. Its order is what makes
// it safe: sets are published before frontends point to them, frontends come
// before others go, so that an address which changes hands is never missing,
// and a set is released when nothing points to it any more.
type batch struct {
	services []model.Name

	inserts []datapath.Frontend
	origins []origin // of each insert
	deletes []datapath.Frontend
	release []datapath.SetID

	failed map[model.Name]faults
}

// origin is the Service, and the place among its frontends, of an insert.
type origin struct {
	w    *written
	name model.Name
}

func (b *batch) fail(name model.Name, k model.FrontendKey, err error) {
	if b.failed[name] == nil {
		b.failed[name] = faults{}
	}
	b.failed[name][k] = err
}

// apply writes a batch of changes and reports how it went.
func (r *Reconciler) apply(changes []tables.Change) {
	began := time.Now()
	b := &batch{
		release:  r.release,
		services: make([]model.Name, 0, len(changes)),
		inserts:  make([]datapath.Frontend, 0, len(changes)),
		origins:  make([]origin, 0, len(changes)),
		failed:   map[model.Name]faults{},
	}
	late := r.deletes
	r.deletes, r.release = nil, nil
	for _, c := range changes {
		r.plan(b, c)
	}
	b.deleteLate(late)
	r.insert(b)
	r.remove(b)
	r.report(b)
	r.noteRestored(changes)
	if r.cfg.Tried != nil {
		r.cfg.Tried(Batch{Changes: changes, Failed: b.failed, Took: time.Since(began)})
	}
}

// noteRestored sees whether the kernel has a frontend of a restored row now. It
// does not wait for those that cannot be written: they would serve nobody
// without programs either.
func (r *Reconciler) noteRestored(changes []tables.Change) {
	if r.early != earlyUnasked || r.cfg.Restored == nil {
		return
	}
	if slices.ContainsFunc(changes, func(c tables.Change) bool {
		w := r.written[c.Row.Name]
		return c.Row.Restored && w != nil && len(w.frontends) > 0
	}) {
		r.early = earlyDue
	}
}

// plan publishes the sets of one Service and collects its frontends.
func (r *Reconciler) plan(b *batch, c tables.Change) {
	name := c.Row.Name
	b.services = append(b.services, name)
	w := r.written[name]
	_, retry := r.failed[name]
	if w == nil {
		if c.Deleted {
			return
		}
		w = &written{}
		r.written[name] = w
	} else if !retry && !c.Deleted && sameRows(w.row, c.Row) {
		w.row = c.Row
		return
	}
	delete(r.failed, name)
	before := *w
	var desired model.Compiled
	if !c.Deleted {
		desired = c.Row.Compiled
	}
	w.row = c.Row
	w.sets = nil
	w.frontends = make([]datapath.Frontend, 0, len(desired.Claims))
	errs := r.publish(w, before.sets, desired.Sets)
	r.collect(b, name, w, desired.Claims, errs)
	b.drop(before, w)
	if c.Deleted {
		delete(r.written, name)
	}
}

// sameRows says that nothing in the kernel depends on what differs: a row that
// changed nothing shares the compiled slices of the one before.
func sameRows(a, b *tables.Service) bool {
	return a != nil && sameSlice(a.Compiled.Sets, b.Compiled.Sets) && sameSlice(a.Compiled.Claims, b.Compiled.Claims)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// publish makes every desired set exist and hold its backends. The result has
// the error of each desired set, or is nil if there was none.
func (r *Reconciler) publish(w *written, before []set, desired []model.Set) []error {
	var errs []error
	w.sets = make([]set, 0, len(desired))
	for i := range desired {
		d := &desired[i]
		if d.Action == model.ActionUnsupported {
			continue
		}
		s, err := r.ensureSet(w, before, d)
		if err == nil {
			_, err = r.cfg.Datapath.Publish(s.id, d)
			s.published = s.published || err == nil || r.cfg.Datapath.Served(s.id)
			w.sets = append(w.sets, s)
		}
		if err != nil {
			if errs == nil {
				errs = make([]error, len(desired))
			}
			errs[i] = err
		}
	}
	return errs
}

// ensureSet finds the set the Service has under the key, or creates it. All
// sets of one Service port and family have the same owner.
func (r *Reconciler) ensureSet(w *written, before []set, d *model.Set) (set, error) {
	if i, ok := slices.BinarySearchFunc(before, d.Key, func(s set, k model.SetKey) int { return s.key.Compare(k) }); ok {
		return before[i], nil
	}
	owner, ok := ownerAmong(w.sets, d.Key)
	if !ok {
		owner, ok = ownerAmong(before, d.Key)
	}
	if !ok {
		owner, ok = r.cfg.Datapath.ClaimOwner(d.Key)
	}
	if !ok {
		owner = r.cfg.Datapath.NewOwner()
	}
	id, err := r.cfg.Datapath.CreateSet(d.Key, owner)
	if err != nil {
		return set{}, err
	}
	return set{key: d.Key, id: id, owner: owner}, nil
}

func ownerAmong(sets []set, k model.SetKey) (uint32, bool) {
	for i := range sets {
		o := &sets[i].key
		if o.PortName == k.PortName && o.Protocol == k.Protocol && o.Family == k.Family {
			return sets[i].owner, true
		}
	}
	return 0, false
}

// collect adds the frontends whose set is in the kernel. A frontend of a set
// that could not be published for the first time is left out: it would refuse
// what other sets of the Service still serve. One whose set could not be
// changed stays as it was. Both carry the error.
func (r *Reconciler) collect(b *batch, name model.Name, w *written, claims []model.Claim, errs []error) {
	for i := range claims {
		c := &claims[i]
		if c.Shadowed != "" {
			continue
		}
		d := &w.row.Compiled.Sets[c.Set]
		if d.Action == model.ActionUnsupported {
			continue
		}
		if errs != nil && errs[c.Set] != nil {
			b.fail(name, c.Key, errs[c.Set])
		}
		s := findWritten(w.sets, d.Key)
		if s == nil || !s.published {
			continue
		}
		f := datapath.Frontend{Key: c.Key, Set: s.id}
		w.frontends = append(w.frontends, f)
		b.inserts = append(b.inserts, f)
		b.origins = append(b.origins, origin{w, name})
	}
}

func findWritten(sets []set, k model.SetKey) *set {
	if len(sets) == 1 && sets[0].key == k {
		return &sets[0]
	}
	i, ok := slices.BinarySearchFunc(sets, k, func(s set, k model.SetKey) int { return s.key.Compare(k) })
	if !ok {
		return nil
	}
	return &sets[i]
}

func findSet(sets []model.Set, k model.SetKey) *model.Set {
	i, ok := slices.BinarySearchFunc(sets, k, func(s model.Set, k model.SetKey) int { return s.Key.Compare(k) })
	if !ok {
		return nil
	}
	return &sets[i]
}

// drop collects the frontends and sets the Service does not have any more.
func (b *batch) drop(before written, w *written) {
	for _, f := range before.frontends {
		if !slices.ContainsFunc(w.frontends, f.Same) {
			b.deletes = append(b.deletes, f)
		}
	}
	for i := range before.sets {
		if findWritten(w.sets, before.sets[i].key) == nil {
			b.release = append(b.release, before.sets[i].id)
		}
	}
}

// deleteLate collects what could not be deleted before, unless it is wanted
// again by now.
func (b *batch) deleteLate(frontends []datapath.Frontend) {
	for _, f := range frontends {
		if !slices.ContainsFunc(b.inserts, f.Same) {
			b.deletes = append(b.deletes, f)
		}
	}
}

// insert writes the new frontends.
func (r *Reconciler) insert(b *batch) {
	errs := r.cfg.Datapath.InsertFrontends(b.inserts)
	if errs != nil && len(b.deletes) > 0 {
		// The deletes make room; what changed hands has been inserted by now.
		if err := r.cfg.Datapath.DeleteFrontends(b.deletes); err == nil {
			errs = r.cfg.Datapath.InsertFrontends(b.inserts)
		}
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		o := b.origins[i]
		b.fail(o.name, b.inserts[i].Key, err)
		o.w.frontends = slices.DeleteFunc(o.w.frontends, func(f datapath.Frontend) bool { return f == b.inserts[i] })
	}
}

// remove deletes what went. Sets stay until their frontends are gone.
func (r *Reconciler) remove(b *batch) {
	if err := r.cfg.Datapath.DeleteFrontends(b.deletes); err != nil {
		r.deletes, r.release = b.deletes, b.release
		r.cfg.Log.Error("frontends could not be deleted, will try again", "frontends", len(b.deletes), "error", err, "in", r.retry)
		return
	}
	if len(b.deletes) > 0 {
		r.retry = firstRetry // there is room again
	}
	for _, id := range b.release {
		if err := r.cfg.Datapath.ReleaseSet(id); err != nil {
			r.cfg.Log.Error("a backend set could not be released", "set", id, "error", err)
		}
	}
}

func (r *Reconciler) report(b *batch) {
	maps.Copy(r.failed, b.failed)
	if len(b.failed) > 0 && time.Since(r.complained) >= complainInterval {
		r.complained = time.Now()
		name := slices.MinFunc(slices.Collect(maps.Keys(b.failed)), model.Name.Compare)
		r.cfg.Log.Error("not everything could be written to the kernel, will try again",
			"services", len(b.failed), "first", name, "error", first(b.failed[name]), "in", r.retry)
	}
	r.cfg.Tables.Report(tables.Report{
		Revision: r.revision, Time: time.Now().UTC(), Tried: b.services, Failed: b.failed,
	})
}

// first is the error of the first frontend, so that the same fault is always
// told the same way.
func first(errs faults) error {
	k := slices.MinFunc(slices.Collect(maps.Keys(errs)), model.FrontendKey.Compare)
	return fmt.Errorf("frontend %s: %w", k, errs[k])
}
