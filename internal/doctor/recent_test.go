// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor/facts"
)

func TestRecent(t *testing.T) {
	check := func(recent ...bool) Check {
		return Check{ID: "test", Sample: func(s *facts.Sample) []Finding {
			if len(recent) < s.Number {
				return nil
			}
			return []Finding{{Subject: "shop/web", Title: "it is so", Recent: recent[s.Number-1]}}
		}}
	}
	for _, test := range []struct {
		name string
		// recent is of the samples that show it; others do not.
		recent []bool
		want   []Certainty
	}{
		{"what may be on its way in each sample is no finding", []bool{true, true}, nil},
		{"what may be on its way in one sample is suspected by the other", []bool{true, false}, []Certainty{Suspected}},
		{"what is on its way in neither is confirmed", []bool{false, false}, []Certainty{Confirmed}},
		{"what the other sample does not show is no finding", []bool{false}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &facts.Case{Samples: []*facts.Sample{{Number: 1}, {Number: 2}}}
			var have []Certainty
			for _, f := range run(check(test.recent...), c) {
				have = append(have, f.Certainty)
			}
			if len(have) != len(test.want) || len(have) > 0 && have[0] != test.want[0] {
				t.Errorf("have %v, want %v", have, test.want)
			}
		})
	}
}
