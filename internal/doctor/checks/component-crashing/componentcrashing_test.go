// SPDX-License-Identifier: Apache-2.0

package componentcrashing

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/doctor"
	"github.com/fairlead-io/fairlead/internal/doctor/doctortest"
)

func TestCheck(t *testing.T) { doctortest.Run(t, []doctor.Check{Check()}, "testdata") }
