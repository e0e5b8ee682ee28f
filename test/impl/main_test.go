// SPDX-License-Identifier: Apache-2.0

// Package impl tests that Fairlead understands other proxies: the real
// kube-proxy serves Services of a real API server in a namespace of its own,
// the adapters read what the kernel then holds, and a comparison with the rows
// of the same objects finds nothing.
//
// With -update, what was recorded becomes the testdata of the adapters.
package impl

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }
