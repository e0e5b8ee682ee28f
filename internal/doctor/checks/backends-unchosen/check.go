// SPDX-License-Identifier: Apache-2.0

// Package backendsunchosen finds Services that lead to endpoints of theirs which a policy does not
// give to the node.
//
// The layers are compared by package layers; only words are decided here.
package backendsunchosen

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
		ID: "backends-unchosen", Title: "Services that lead to endpoints which a policy keeps from the node", Page: page, Kind: compare.Unchosen, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	return doctor.Warning, fmt.Sprintf("%s leads to %s in %s, which its policies do not give to this node", p.Who(), p.List(), p.Where()), "Connections work. They leave the node or the zone, and with externalTrafficPolicy Local the client's address may be lost."
}
