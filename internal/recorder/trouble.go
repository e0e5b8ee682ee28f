// SPDX-License-Identifier: Apache-2.0

package recorder

import (
	"errors"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// reason says in words why nobody watched since the last good moment. What made
// the kind fall behind comes first, whatever the last request met.
func (f *follower) reason() string {
	cause, last := f.cause, f.stale()
	if cause == nil {
		cause, last = last, nil
	}
	if cause == nil {
		return "the recorder ended before the first list was complete"
	}
	if last == nil || last.Error() == cause.Error() {
		return reasonText(cause)
	}
	return reasonText(cause) + "; then " + reasonText(last)
}

// listReason says why a list is asked for.
func (f *follower) listReason() string {
	if f.cause == nil {
		return journal.ListStart
	}
	return f.reason()
}

// reasons are what a Trouble's reason means for who records.
var reasons = map[reflector.Reason]string{
	reflector.ReasonForbidden:    "forbidden",
	reflector.ReasonUnauthorized: "the API server does not know who asks",
	reflector.ReasonExpired:      "the API server had forgotten what happened meanwhile",
	reflector.ReasonUnavailable:  "the API server could not answer",
	reflector.ReasonTimeout:      "the API server did not answer in time",
	reflector.ReasonUnreachable:  "the API server could not be reached",
	reflector.ReasonUntrusted:    "the API server could not be trusted",
	reflector.ReasonBroken:       "the API server's answer broke off",
}

func reasonText(err error) string {
	trouble, ok := errors.AsType[*reflector.Trouble](err)
	if !ok || reasons[trouble.Reason] == "" {
		return err.Error()
	}
	return fmt.Sprintf("%s (%v)", reasons[trouble.Reason], err)
}

// failed notes why the kind cannot be followed, and logs it once for each
// reason.
func (f *follower) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.trouble == nil || f.trouble.Error() != err.Error() {
		f.log.Warn("cannot follow a kind; will try again", "kind", f.target.String(), "error", err)
	}
	f.trouble = err
}

// followed is called when a watch is open.
func (f *follower) followed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = true
	if f.trouble == nil {
		return
	}
	f.trouble = nil
	f.log.Info("following a kind again", "kind", f.target.String())
}

// retired is called when there is nothing to follow any more.
func (f *follower) retired() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trouble = nil
	f.log.Info("the API server has a kind no more; will look whether it comes again", "kind", f.target.String())
}

func (f *follower) stale() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}
