// SPDX-License-Identifier: Apache-2.0

// Package deploy carries what users apply to a cluster inside the binary, for
// the demo.
package deploy

import _ "embed"

// RBAC is all that the agent may read, bound to its service account.
//
//go:embed rbac.yaml
var RBAC string
