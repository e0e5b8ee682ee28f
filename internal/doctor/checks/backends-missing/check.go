// SPDX-License-Identifier: Apache-2.0

// Package backendsmissing finds Services that have backends in the API and none in a data plane.
//
// The layers are compared by package layers; only words are decided here.
package backendsmissing

import (
	_ "embed"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/adapter/compare"
	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/layers"
)

//go:embed README.md
var page string

// Check is the check.
func Check() doctor.Check {
	return layers.Check(layers.Outline{
		ID: "backends-missing", Title: "Services without backends in a data plane, while the API has some", Page: page, Kind: compare.Empty, Say: say,
	})
}

func say(p *layers.Parting) (doctor.Severity, string, string) {
	if p.InForce() {
		return doctor.Critical, fmt.Sprintf("%s has no backends in %s, and %s", p.Who(), p.Met(), p.WantedText()), refused[p.Plane]
	}
	title := fmt.Sprintf("%s is about to lose its backends: there are none among %s, and %s; the kernel still has them", p.Who(), p.Where(), p.WantedText())
	return doctor.Critical, title, "The agent writes what its tables say as soon as it works on the Service again, be it for a changed annotation. Then connections are refused."
}

// refused is what a connection meets that has no backend.
var refused = map[facts.DataPlane]string{
	facts.PlaneCilium:    "Connections are refused on this node: connect() says \"operation not permitted\".",
	facts.PlaneFairlead:  "Connections are refused on this node: connect() says \"connection refused\".",
	facts.PlaneKubeProxy: "Connections are refused on this node.",
}
