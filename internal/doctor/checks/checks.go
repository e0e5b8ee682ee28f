// SPDX-License-Identifier: Apache-2.0

// Package checks is the list of all checks. Each has a folder of its own, named
// by its id, with a page that says what it looks for, why, by which evidence,
// and what to do.
package checks

import (
	"github.com/fairlead-io/fairlead/internal/doctor"
	agentdown "github.com/fairlead-io/fairlead/internal/doctor/checks/agent-down"
	apithroughservice "github.com/fairlead-io/fairlead/internal/doctor/checks/api-through-service"
	apiserverempty "github.com/fairlead-io/fairlead/internal/doctor/checks/apiserver-empty"
	backendsforeign "github.com/fairlead-io/fairlead/internal/doctor/checks/backends-foreign"
	backendsincomplete "github.com/fairlead-io/fairlead/internal/doctor/checks/backends-incomplete"
	backendsmissing "github.com/fairlead-io/fairlead/internal/doctor/checks/backends-missing"
	backendsstale "github.com/fairlead-io/fairlead/internal/doctor/checks/backends-stale"
	backendsunchosen "github.com/fairlead-io/fairlead/internal/doctor/checks/backends-unchosen"
	componentcrashing "github.com/fairlead-io/fairlead/internal/doctor/checks/component-crashing"
	componentforbidden "github.com/fairlead-io/fairlead/internal/doctor/checks/component-forbidden"
	"github.com/fairlead-io/fairlead/internal/doctor/checks/connectivity"
	conntrackfull "github.com/fairlead-io/fairlead/internal/doctor/checks/conntrack-full"
	cutoff "github.com/fairlead-io/fairlead/internal/doctor/checks/cut-off"
	dnschain "github.com/fairlead-io/fairlead/internal/doctor/checks/dns-chain"
	duplicatevip "github.com/fairlead-io/fairlead/internal/doctor/checks/duplicate-vip"
	frontendextra "github.com/fairlead-io/fairlead/internal/doctor/checks/frontend-extra"
	frontendmissing "github.com/fairlead-io/fairlead/internal/doctor/checks/frontend-missing"
	identityinit "github.com/fairlead-io/fairlead/internal/doctor/checks/identity-init"
	knownbug "github.com/fairlead-io/fairlead/internal/doctor/checks/known-bug"
	mapfull "github.com/fairlead-io/fairlead/internal/doctor/checks/map-full"
	nameprefix "github.com/fairlead-io/fairlead/internal/doctor/checks/name-prefix"
	podnetwork "github.com/fairlead-io/fairlead/internal/doctor/checks/pod-network"
	rbacmissing "github.com/fairlead-io/fairlead/internal/doctor/checks/rbac-missing"
	rulesgone "github.com/fairlead-io/fairlead/internal/doctor/checks/rules-gone"
	selectorempty "github.com/fairlead-io/fairlead/internal/doctor/checks/selector-empty"
	sharedadvertiseaddress "github.com/fairlead-io/fairlead/internal/doctor/checks/shared-advertise-address"
	targetport "github.com/fairlead-io/fairlead/internal/doctor/checks/target-port"
	twoproxies "github.com/fairlead-io/fairlead/internal/doctor/checks/two-proxies"
)

// All are the checks that a doctor runs.
func All() []doctor.Check {
	return []doctor.Check{
		agentdown.Check(),
		apithroughservice.Check(),
		apiserverempty.Check(),
		backendsforeign.Check(),
		backendsincomplete.Check(),
		backendsmissing.Check(),
		backendsstale.Check(),
		backendsunchosen.Check(),
		componentcrashing.Check(),
		componentforbidden.Check(),
		connectivity.Check(),
		conntrackfull.Check(),
		cutoff.Check(),
		dnschain.Check(),
		duplicatevip.Check(),
		frontendextra.Check(),
		frontendmissing.Check(),
		identityinit.Check(),
		knownbug.Check(),
		mapfull.Check(),
		nameprefix.Check(),
		podnetwork.Check(),
		rbacmissing.Check(),
		rulesgone.Check(),
		selectorempty.Check(),
		sharedadvertiseaddress.Check(),
		targetport.Check(),
		twoproxies.Check(),
	}
}
