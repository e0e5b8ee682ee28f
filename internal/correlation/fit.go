// SPDX-License-Identifier: Apache-2.0

package correlation

import (
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead-io/fairlead/internal/audit"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// near is how far an event may be from a record that does not name its version.
const near = 5 * time.Second

// What speaks against a pair, as a time that they might as well be apart.
const (
	unusual  = time.Second     // a verb that does this now and then, a record without a name
	doubtful = 2 * time.Second // a request without an end, or one that failed after a while
	// writtenNow is how old a time in managedFields is at most if it is that of
	// this write; an older one says nothing of who wrote now.
	writtenNow = 3 * time.Second
)

// resource is a kind as records name it.
type resource struct{ group, resource string }

// object is what a write was about. Its name may be unknown.
type object struct {
	resource
	namespace, name string
}

// version names one state of one object: servers count versions over all
// objects of a resource.
type version struct {
	resource
	rv string
}

// waiting is a record of a write that waits for its event.
type waiting struct {
	audit.Record
	at      time.Time // by the recorder's clock, as it was known then
	manager string    // what the server would note as its field manager
	used    bool
	decided bool // nothing more is to be said of it
}

func resourceOf(r audit.Record) resource { return resource{r.Resource.Group, r.Resource.Resource} }

func objectOf(r audit.Record) object { return object{resourceOf(r), r.Namespace, r.Name} }

// versionOf is no version where the answer was a list.
func versionOf(r audit.Record) version {
	if r.Verb == "deletecollection" {
		return version{resourceOf(r), ""}
	}
	return version{resourceOf(r), r.ResourceVersion}
}

func eventObject(e journal.Event) object {
	return object{resource{e.Kind.Group, e.Kind.Resource}, e.Namespace, e.Name}
}

// dryRun says whether the request only asked what would happen.
func dryRun(r audit.Record) bool { return parameter(r, "dryRun") != "" }

func parameter(r audit.Record, name string) string {
	_, query, found := strings.Cut(r.RequestURI, "?")
	if !found {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get(name)
}

// maxManager is how long a manager's name may be.
const maxManager = 128

// manager is what a server notes as the field manager of a request: what it asks
// for, or else the client's name.
func manager(r audit.Record) string {
	if name := parameter(r, "fieldManager"); name != "" {
		return name
	}
	name, _, _ := strings.Cut(r.UserAgent, "/")
	printable := func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return -1
	}
	name = strings.Map(printable, name)
	for len(name) > maxManager {
		name = name[:strings.LastIndexFunc(name, func(rune) bool { return true })]
	}
	return name
}

// managerOf is who wrote an event. One that deletes leaves no trace in the
// object: its manager is who wrote it last.
func managerOf(e journal.Event) string {
	if e.Type == journal.Deleted || e.Type == journal.Absent {
		return ""
	}
	return e.Manager
}

// against is what speaks against a pair whose versions do not tell; ok is that
// it is possible at all. behind is how far the server's clock is.
func against(e journal.Event, w *waiting, behind time.Duration) (cost time.Duration, ok bool) {
	cost, ok = verbCost(e, w.Record)
	if !ok {
		return 0, false
	}
	apart := e.Time.Sub(w.Time.Add(behind))
	if apart > near || apart < -near && (w.Verb != "deletecollection" || apart < -window) {
		return 0, false
	}
	if cost += apart.Abs(); w.Name == "" {
		cost += unusual
	}
	if !w.Done() || w.Failed() {
		cost += doubtful
	}
	is := managerOf(e)
	if is == "" || w.manager == "" || !leavesTrace(w.Record) {
		return cost, true
	}
	now := e.Time.Sub(e.ManagedAt.Add(behind)) <= writtenNow
	if is == w.manager {
		return cost, !now || e.Subresource == w.Resource.Subresource
	}
	return cost + doubtful, !now
}

// leavesTrace says whether who asked stands in what the request made. Whoever
// marks an object as deleted has no entry in it, nor has one who binds or evicts.
func leavesTrace(r audit.Record) bool {
	switch r.Verb {
	case "update", "patch":
		return true
	case "create":
		return r.Resource.Subresource == ""
	}
	return false
}

// verbCost says whether a request may lead to an event of the type. A request
// to delete may only mark an object, and the one that removes the last finalizer
// deletes it.
func verbCost(e journal.Event, r audit.Record) (cost time.Duration, ok bool) {
	// A record that names another version made another event; an answer to a
	// deletion has the object's last one, or that of its end.
	if r.ResourceVersion != "" && e.ResourceVersion != "" && !strings.HasPrefix(r.Verb, "delete") {
		return 0, false
	}
	sub := r.Resource.Subresource != ""
	var usual, rare []string
	switch e.Type {
	case journal.Added:
		usual, rare = []string{"create"}, []string{"patch", "update"}
	case journal.Modified:
		usual, rare = []string{"update", "patch"}, []string{"delete", "deletecollection"}
	case journal.Deleted, journal.Absent:
		usual, rare = []string{"delete"}, []string{"deletecollection", "update", "patch"}
	}
	switch {
	case r.Verb == "create" && sub && e.Type != journal.Added: // a binding, an eviction
		return unusual, true
	case r.Verb == "create" && sub:
		return 0, false
	case slices.Contains(usual, r.Verb):
		return 0, true
	case slices.Contains(rare, r.Verb):
		return unusual, true
	}
	return 0, false
}

// storesNothing says whether a subresource does something else than change the
// object.
func storesNothing(r audit.Record) bool {
	switch r.Resource.Subresource {
	case "attach", "exec", "log", "portforward", "proxy", "token":
		return true
	}
	return false
}
