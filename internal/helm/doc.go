// SPDX-License-Identifier: Apache-2.0

// Package helm reads what Helm keeps of its releases in a cluster: which there
// are, and what one of them was to install.
//
// It knows the form of Helm's Secrets and ConfigMaps, and nothing of Helm's
// library. Values that users gave to a chart are never read out of a release.
// Rendering charts may not enter, nor what anybody does with a manifest.
package helm

import (
	"errors"
	"time"
)

// Release is one revision of a Helm release.
type Release struct {
	Namespace, Name string
	Revision        int
	Status          string
	// Chart is the chart's name, and AppVersion the version of what it installs.
	Chart, ChartVersion, AppVersion string
	// Modified is when it was deployed last; zero if the release does not tell.
	Modified time.Time
	// Manifest is what was rendered, without hooks. It has the values of Secrets.
	Manifest string
	// Definitions are the CustomResourceDefinitions that stand beside the chart's
	// templates. Helm installs them first, and leaves them out of its manifest.
	Definitions string
	// Hooks are objects that Helm makes for a moment of an installation, as KIND
	// NAME.
	Hooks []string
}

// StatusDeployed is the status of the revision that is in force.
const StatusDeployed = "deployed"

// What can be wrong with a release. Errors of this package wrap them.
var (
	// ErrNotFound is a release, or a revision, that is not there.
	ErrNotFound = errors.New("there is no such Helm release")
	// ErrNotDeployed is a release of which no revision is in force.
	ErrNotDeployed = errors.New("no revision of it is deployed")
	// ErrForeign is an object that holds no release.
	ErrForeign = errors.New("it holds no Helm release")
	// ErrHelm2 is a release of Helm 2.
	ErrHelm2 = errors.New("it is a release of Helm 2")
	// ErrCorrupt is a release that cannot be read.
	ErrCorrupt = errors.New("the release is corrupt")
	// ErrTruncated is a release of which the end is missing.
	ErrTruncated = errors.New("the end of the release is missing")
	// ErrIncomplete is a release in several objects, of which one is missing.
	ErrIncomplete = errors.New("a part of the release is missing")
	// ErrTooLarge is a release that would take more memory than one can need.
	ErrTooLarge = errors.New("the release is too large")
)
