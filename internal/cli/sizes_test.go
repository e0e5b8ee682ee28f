// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

func TestTheSizesSayWhatTheMapsTake(t *testing.T) {
	cmd, told := newAgent(&env{}), uint64(0)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		var what string
		var each uint64
		name, usage := pflag.UnquoteUsage(f)
		if name != "N" {
			return
		}
		for at := range usage {
			if _, err := fmt.Sscanf(usage[at:], "N × %d bytes of kernel memory, %s", &each, &what); err == nil {
				break
			}
		}
		n, err := strconv.ParseUint(f.DefValue, 10, 32)
		if err != nil || each == 0 {
			t.Fatalf("--%s %q does not say what an entry takes: %q", f.Name, f.DefValue, usage)
		}
		told += n * each
	})
	// Some maps have room for a few more, whatever the flags say.
	total := datapath.DefaultSizes().Total()
	if difference := max(told, total) - min(told, total); difference > total/100 {
		t.Errorf("the flags' help adds up to %d bytes, the maps to %d", told, total)
	}
}
