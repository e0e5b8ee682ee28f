// SPDX-License-Identifier: Apache-2.0

// Package examples carries the example manifests inside the binary, for the
// demo.
package examples

import "embed"

// FS holds the manifests, and the steps of the incident.
//
//go:embed *.yaml incident-1
var FS embed.FS
