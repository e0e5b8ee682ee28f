// SPDX-License-Identifier: Apache-2.0

// Package mutations tests what the doctor finds, and what it misses: from what
// real data planes said of themselves while all was well, it makes bundles in
// which one thing is wrong, and looks for that thing in the findings.
//
// Faults that a kernel can hold are made on a real one as well. Nothing here
// reaches out of the lab.
package mutations

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
