// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/adapter/cilium"
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/probe"
)

// Fairlead is what Fairlead's own agent says, and its maps.
type Fairlead struct {
	Status          *api.Status // nil: not read
	StatusRecord    *evidence.Record
	Frontends       []api.Frontend
	FrontendsRecord *evidence.Record // nil: not read
	Kernel          *api.Kernel      // nil: not read
	KernelRecord    *evidence.Record
}

// Cilium is what a Cilium agent says of itself, besides its Services.
type Cilium struct {
	// Version is as "1.18.5"; "" if nothing told.
	Version          string
	VersionRecord    *evidence.Record
	Status           *cilium.Status // nil: not read
	StatusRecord     *evidence.Record
	Config           map[string]string // nil: not read
	ConfigRecord     *evidence.Record
	Endpoints        []cilium.Endpoint
	EndpointsRecord  *evidence.Record // nil: not read
	Identities       []cilium.Identity
	IdentitiesRecord *evidence.Record // nil: not read
	// MapPressure is from 0 to 1, by map.
	MapPressure   map[string]float64
	MetricsRecord *evidence.Record // nil: not read
}

// KubeProxy is what a kube-proxy says of itself.
type KubeProxy struct {
	Version string // as "1.35.4"; "" if nothing told
	Mode    string // iptables | nftables | ipvs; "" if nothing told
	Record  *evidence.Record
}

// Conntrack is the kernel's connection tracking.
type Conntrack struct {
	Count, Max int
	Record     *evidence.Record
}

// Probe is a connection that was tried, or some that tell by their difference.
type Probe struct {
	probe.Result
	Record *evidence.Record
}

// Access is what the API server said to a review.
type Access struct {
	// User is as the API server names it: system:serviceaccount:NAMESPACE:NAME.
	User string
	// Resource may be RESOURCE/SUBRESOURCE, and Name "" for all.
	Verb, Group, Resource, Name string
	Namespace                   string
	Allowed                     bool
	Reason                      string
	Record                      *evidence.Record
}

// Log is what a process logged.
type Log struct {
	Node, Pod, Container string
	Lines                []Line
	Record               *evidence.Record
}

// Line is one line of a log.
type Line struct {
	Number int       // from 1
	Time   time.Time // zero: it does not say
	Text   string
}
