// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/recorder"
)

func TestARecordingThatLacksAKindInTheEndIsAFinding(t *testing.T) {
	services := recorder.KindStatus{Name: "services", Listed: true}
	for name, c := range map[string]struct {
		kinds  []recorder.KindStatus
		warned string // empty: all were recorded
	}{
		"all kinds are followed": {[]recorder.KindStatus{services, {Name: "nodes", Listed: true}}, ""},
		"one was followed and is not any more": {
			[]recorder.KindStatus{services, {Name: "nodes", Listed: true, Trouble: errors.New("forbidden")}},
			"not recorded: nodes; the first because of: forbidden"},
		"the first list of one is under way": {
			[]recorder.KindStatus{services, {Name: "endpointslices.discovery.k8s.io", Objects: 44200}},
			"not recorded: endpointslices.discovery.k8s.io; the first because of: its first list is not complete"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, warnings strings.Builder
			e := &env{out: &out, err: &warnings}
			err := e.recorded(recorder.Status{Path: filepath.Join(t.TempDir(), "j"), Kinds: c.kinds}, false)
			if found := errors.Is(err, errFindings); found != (c.warned != "") || !found && err != nil {
				t.Errorf("ended with %v", err)
			}
			if got := warnings.String(); !strings.Contains(got, c.warned) || c.warned == "" && got != "" {
				t.Errorf("warned of %q, want %q", got, c.warned)
			}
		})
	}
}
