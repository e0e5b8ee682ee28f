// SPDX-License-Identifier: Apache-2.0

package impact

// Cascade is what becomes of the objects that a deleted one owns.
type Cascade string

// As kubectl's --cascade has them. Background and foreground differ in their
// order only.
const (
	Background Cascade = "background"
	Foreground Cascade = "foreground"
	Orphan     Cascade = "orphan"
)

// Deletion is what goes.
type Deletion struct {
	// Roots are the objects that the command names, in its order.
	Roots   []*Object
	Cascade Cascade

	gone map[*Object]Cause
}

// Cause is why an object goes.
type Cause struct {
	// By is the object with which it goes; nil if the command names it.
	By *Object
	// Why is how it hangs on By: "owned by", "inside", "an instance of", "kept by".
	Why string
}

// Gone says whether an object goes, and why.
func (d *Deletion) Gone(o *Object) (Cause, bool) { c, ok := d.gone[o]; return c, ok }

// GoneKey says whether an object of that name goes.
func (d *Deletion) GoneKey(s *State, k Key) bool {
	o, ok := s.Get(k)
	if !ok {
		return false
	}
	_, gone := d.gone[o]
	return gone
}
