// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
)

// versionAnswer is the JSON of `version`.
type versionAnswer struct {
	SchemaVersion int    `json:"schemaVersion"`
	Version       string `json:"version"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
}

// buildVersion is what the Go tool stamped into the binary: a tag, or a
// pseudo-version that names the commit.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// userAgent is how requests show in an API server's audit log.
func userAgent() string { return "fairlead/" + buildVersion() }

func newVersion(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version of this program",
		Example: e.examples("fairlead version", "fairlead version -o json"),
		Args:    noArguments,
	}
	output := outputFlag(cmd, "json", "yaml")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := versionAnswer{api.SchemaVersion, buildVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
		if output.data() {
			return e.printData(output, v)
		}
		return e.print(fmt.Sprintf("fairlead %s (%s, %s)\n", v.Version, v.Go, v.Platform))
	}
	return cmd
}
