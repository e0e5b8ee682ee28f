// SPDX-License-Identifier: Apache-2.0

// Package frontendextra finds addresses that a data plane serves although no Service has them.
//
// The layers are compared by package layers; only words are decided here.
package frontendextra

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
		ID: "frontend-extra", Title: "addresses that a data plane serves for no Service", Page: page, Kind: compare.Extra, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	follows := "Who connects there gets to backends of nobody, or of a Service that has moved; and whoever gets the address next cannot be reached."
	return doctor.Warning, fmt.Sprintf("%s is served in %s, and no Service has it", p.PlacesText(), p.Met()), follows
}
