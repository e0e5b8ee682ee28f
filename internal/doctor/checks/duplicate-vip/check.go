// SPDX-License-Identifier: Apache-2.0

// Package duplicatevip looks for addresses that two Services claim.
package duplicatevip

import (
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/facts"
	"github.com/fairlead-io/fairlead/internal/doctor/services"
	"github.com/fairlead-io/fairlead/internal/model"
)

//go:embed README.md
var page string

const id = "duplicate-vip"

// Check looks for claims that another Service holds.
func Check() doctor.Check {
	return doctor.Check{ID: id, Title: "addresses that two Services claim", Rank: doctor.RankConfig, Page: page, Sample: check}
}

func check(s *facts.Sample) []doctor.Finding {
	world := s.World("", facts.PlaneKubeProxy)
	if world == nil {
		return nil
	}
	all := services.All(s.Objects)
	var out []doctor.Finding
	for _, c := range model.CompileAll(world.Services, world.Slices, &world.Node, &world.Options) {
		held := shadowed(&c)
		for _, holder := range slices.Sorted(maps.Keys(held)) {
			winner, found := services.Find(all, holder)
			loser, known := services.Find(all, c.Service.String())
			if found && known {
				out = append(out, contested(s.Objects, winner, loser, held[holder]))
			}
		}
	}
	return out
}

// shadowed are the addresses that others hold, by who does.
func shadowed(c *model.Candidate) map[string][]string {
	out := map[string][]string{}
	for _, claim := range c.Compiled.Claims {
		if claim.Shadowed == "" {
			continue
		}
		key := address(claim.Key)
		if !slices.Contains(out[claim.Shadowed], key) {
			out[claim.Shadowed] = append(out[claim.Shadowed], key)
		}
	}
	return out
}

func address(k model.FrontendKey) string {
	if k.Address.IsUnspecified() {
		return fmt.Sprintf("node port %d/%s", k.Port, k.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(k.Address, k.Port), k.Protocol)
}

func contested(o *facts.Objects, winner, loser services.Service, keys []string) doctor.Finding {
	return doctor.Finding{
		Check: id, Severity: doctor.Warning, Layer: doctor.LayerAPI, Subject: loser.String(),
		Title: fmt.Sprintf("%s claims %s, which %s claims too", loser, list(keys), winner),
		Detail: []string{
			fmt.Sprintf("Only one of them can have it. Fairlead gives it to the older one, or to the first by name if they are of one age: %s. Other data planes may choose otherwise, and another one on each node.", winner),
		},
		Evidence: services.Shown(o, winner, loser),
		Remedy: []doctor.Remedy{{
			Text:     fmt.Sprintf("Give one of them another address, or another port; if %s is not needed any more, delete it.", loser),
			Commands: []string{doctor.Kubectl(loser.Namespace, "edit", "service", loser.Name)},
		}},
	}
}

func list(keys []string) string {
	const most = 3
	if more := len(keys) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(keys[:most], ", "), more)
	}
	return strings.Join(keys, ", ")
}
