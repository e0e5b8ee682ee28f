// SPDX-License-Identifier: Apache-2.0

// Package deploy carries what users apply to a cluster inside the binary, for
// the demos.
package deploy

import _ "embed"

var (
	// RBAC is all that the agent may read, bound to its service account.
	//
	//go:embed rbac.yaml
	RBAC string
	// Recorder is a recorder's Deployment, with all that it may read.
	//
	//go:embed recorder.yaml
	Recorder string
	// Guard is the admission policy on guarded objects, and its binding.
	//
	//go:embed guard.yaml
	Guard string
)
