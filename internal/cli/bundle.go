// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/evidence"
)

func newBundle(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what fairlead doctor looks at into one archive",
		Long: `Collect into one archive what the API says, what this node's Service proxy and its
kernel hold, and what the system's pods log, so that fairlead doctor --bundle finds on
another machine, and on another day, what it would have found here.

Each layer is read twice, some seconds apart. The commands are those that a person would
run; nothing is changed on the node or in the cluster, and the node alone is enough when
the API server is gone. As root it tries some connections from the node, unless
--probe=false is given. With --fairlead, --cilium or --kube-proxy these data planes are
asked on all nodes, or on those of --node, by commands in their pods. What that takes of
permissions is in deploy/doctor.yaml.

Secrets are never asked for, and what looks like a password, a token or a key is left
out of objects, logs and outputs. Names and addresses of the cluster stay: they are what
it is about. The archive is for its owner's eyes until he gives it to others.

Exit status: 0 it is written, 2 it is not. What could not be read is told, and stands in
the archive with the reason.`,
		Example: e.examples("fairlead bundle --kubeconfig /etc/kubernetes/admin.conf   # on a node",
			"fairlead bundle --kubeconfig ~/.kube/config --cilium -o cluster.tar.gz", "fairlead bundle --kubeconfig ~/.kube/config --kube-proxy --node n1 --node n2",
			"fairlead doctor --bundle cluster.tar.gz"),
		Args: noArguments,
	}
	c := addCollectFlags(cmd)
	path := cmd.Flags().StringP("output", "o", "", "write the archive `FILE`.tar.gz; fairlead-bundle-TIME.tar.gz if empty")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *path != "" && !strings.HasSuffix(*path, ".tar.gz") && !strings.HasSuffix(*path, ".tgz") {
			return seeHelp(cmd, "-o %s: an archive's name ends in .tar.gz or .tgz", *path)
		}
		if err := c.check(cmd); err != nil {
			return err
		}
		return e.bundle(cmd.Context(), c, *path)
	}
	return cmd
}

func (e *env) bundle(ctx context.Context, c *collectFlags, path string) error {
	// Minutes of reading are not to end in a folder that is not there.
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write the bundle %s: %w", path, err)
	}
	b, err := c.collect(ctx, e)
	if err != nil {
		return err
	}
	path = cmp.Or(path, "fairlead-bundle-"+b.Made.UTC().Format("20060102T150405Z")+".tar.gz")
	if err := evidence.Write(path, b); err != nil {
		return err
	}
	e.tellFailed(b)
	return e.print(fmt.Sprintf("%s: %d outputs, %s, in %s\n", path, len(b.Records), bytesText(uint64(fileSize(path))), time.Since(b.Made).Round(time.Second)))
}

// tellFailed says what could not be read, a few of it.
func (e *env) tellFailed(b *evidence.Bundle) {
	const few = 5
	lines := failed(b)
	for _, line := range lines[:min(few, len(lines))] {
		e.warn("not read, or only in part: %s", line)
	}
	if left := len(lines) - few; left > 0 {
		e.warn("and %d more, which the archive names", left)
	}
}
