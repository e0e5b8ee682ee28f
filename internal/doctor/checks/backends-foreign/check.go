// SPDX-License-Identifier: Apache-2.0

// Package backendsforeign finds Services that lead to endpoints which are another Service's.
//
// The layers are compared by package layers; only words are decided here.
package backendsforeign

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
		ID: "backends-foreign", Title: "Services that lead to the backends of others", Page: page, Kind: compare.Foreign, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	title := fmt.Sprintf("%s leads to %s of %s in %s", p.Who(), p.List(), p.Rightful(), p.Where())
	how, follows := doctor.Critical, "Clients of one Service reach another one, with all that they send."
	if !p.InForce() {
		how, follows = doctor.Warning, ""
	}
	return how, title, follows
}
