// SPDX-License-Identifier: Apache-2.0

// Package backendsstale finds Services that lead to addresses which are no endpoints of theirs,
// nor of any other Service.
//
// The layers are compared by package layers; only words are decided here.
package backendsstale

import (
	_ "embed"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/layers"
)

//go:embed README.md
var page string

// Check is the check.
func Check() doctor.Check {
	return layers.Check(layers.Outline{
		ID: "backends-stale", Title: "Services that lead to backends which are no more", Page: page, Kind: compare.Stale, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	how := doctor.Critical
	follows := "A part of the connections goes to an address where nobody answers, or where somebody else does by now."
	if !p.InForce() {
		how, follows = doctor.Warning, ""
	}
	return how, fmt.Sprintf("%s leads to %s in %s, which is no endpoint of it", p.Who(), p.List(), p.Where()), follows
}
