// SPDX-License-Identifier: Apache-2.0

package impacttest_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/test/lab"
)

func TestMain(m *testing.M) { lab.Main(m, nil) }
