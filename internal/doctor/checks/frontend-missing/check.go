// SPDX-License-Identifier: Apache-2.0

// Package frontendmissing finds addresses of Services that a data plane does not serve, although
// the Service has backends.
//
// The layers are compared by package layers; only words are decided here.
package frontendmissing

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
		ID: "frontend-missing", Title: "addresses of Services that a data plane does not serve", Page: page, Kind: compare.Missing, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	follows := "Connections to " + p.PlacesText() + " find nobody who translates them: they leave the node, and run out of time."
	if p.InForce() {
		return doctor.Critical, fmt.Sprintf("%s is not served at %s: it is missing in %s", p.Who(), p.PlacesText(), p.Where()), follows
	}
	return doctor.Critical, fmt.Sprintf("%s is about to be served no longer at %s: it is missing in %s", p.Who(), p.PlacesText(), p.Where()), ""
}
