// SPDX-License-Identifier: Apache-2.0

// Package doctor tests the doctor on what is alive: the real agent and the real
// kube-proxy serve objects of a real API server in namespaces without a way out,
// `fairlead bundle` collects what they hold, and the doctor has to find nothing
// where nothing is wrong, and every fault that a test makes by hand.
//
// With -collect, what was collected of healthy nodes becomes the testdata, in
// which no version of the doctor may find anything.
package doctor

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
