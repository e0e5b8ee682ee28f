// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/tables"
)

func TestACauseThatIsNoObject(t *testing.T) {
	got := causeRef(tables.Cause{Other: "a heartbeat"})
	if want := (api.ObjectRef{Name: "a heartbeat"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
