// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
)

// answering returns what reads a layer: the answers one after the other, the
// last one for ever.
func answering(reads *int, answers ...[]api.Frontend) func(context.Context) ([]api.Frontend, error) {
	return func(context.Context) ([]api.Frontend, error) {
		answer := answers[min(*reads, len(answers)-1)]
		*reads++
		return answer, nil
	}
}

func TestDiffReadsTheAPIAtTheBeginningAndAtTheEnd(t *testing.T) {
	row := func(action string) []api.Frontend {
		return []api.Frontend{{Address: "10.96.0.1", Port: 80, Protocol: "TCP", Scope: "all", Service: "default/web", Action: action}}
	}
	for _, c := range []struct {
		name        string
		api, tables [][]api.Frontend
		drift       bool
		reads       int           // of the API
		took        time.Duration // at least
	}{
		{"no drift needs one reading", [][]api.Frontend{row("drop")}, [][]api.Frontend{row("drop")}, false, 1, 0},
		{"drift that stays is found in two readings of the API", [][]api.Frontend{row("drop")}, [][]api.Frontend{row("reject")}, true, 2, settleTime},
		{"tables that catch up are no drift, and the API is not read again", [][]api.Frontend{row("drop")}, [][]api.Frontend{row("reject"), row("drop")}, false, 1, settleStep},
		{"an API that changed while it was read is no drift", [][]api.Frontend{row("drop"), row("reject")}, [][]api.Frontend{row("reject")}, false, 2, settleTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads, tableReads int
				l := &layers{api: answering(&reads, c.api...), tables: answering(&tableReads, c.tables...)}
				began := time.Now()
				found, _, err := l.drift(t.Context())
				if err != nil || (len(found) > 0) != c.drift || reads != c.reads {
					t.Errorf("found %v with %d readings of the API, %v", found, reads, err)
				}
				if took := time.Since(began); took < c.took || took > c.took+2*settleStep {
					t.Errorf("it took %v, want %v", took, c.took)
				}
			})
		})
	}
}
