// SPDX-License-Identifier: Apache-2.0

package impact_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/impact/impacttest"
)

// TestCore: definitions, namespaces, finalizers, and what is said of kinds that
// could not be read.
func TestCore(t *testing.T) {
	impacttest.Run(t, "testdata/core",
		"kind-goes", "instances-vanish", "component-kinds-vanish", "conversion-lost",
		"namespace-goes", "component-namespace-goes", "namespace-refused", "namespace-hangs", "hangs", "waits")
}
