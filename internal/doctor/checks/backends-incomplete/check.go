// SPDX-License-Identifier: Apache-2.0

// Package backendsincomplete finds Services of whose backends a data plane has only some.
//
// The layers are compared by package layers; only words are decided here.
package backendsincomplete

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
		ID: "backends-incomplete", Title: "Services that lack some of their backends in a data plane", Page: page, Kind: compare.Incomplete, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	return doctor.Warning, fmt.Sprintf("%s lacks %s in %s", p.Who(), p.List(), p.Where()), "These endpoints get no new connections from this node; the others get theirs."
}
