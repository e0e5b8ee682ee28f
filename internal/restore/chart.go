// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/fairlead-io/fairlead/internal/printable"
	"github.com/fairlead-io/fairlead/internal/redact"
)

// Chart is a folder that Helm renders.
type Chart struct {
	Folder string
	// Release and Namespace are what it is installed as.
	Release, Namespace string
	Values             []string // files
	Helm               string   // the program; helm in PATH if empty
}

// FromChart has helm render a chart. There is no other renderer here: nobody
// else's result would be what Helm installs.
func FromChart(ctx context.Context, c Chart) (*Wanted, error) {
	args := []string{"template", c.Release, c.Folder, "--namespace", c.Namespace, "--include-crds"}
	for _, file := range c.Values {
		args = append(args, "--values", file)
	}
	program, err := exec.LookPath(cmp.Or(c.Helm, "helm"))
	if err != nil {
		return nil, fmt.Errorf("render the chart %s: %w: say with --helm where it is, or run `%s > rendered.yaml` where there is one, and give -f rendered.yaml",
			c.Folder, err, printable.Command(append([]string{"helm"}, args...)...))
	}
	var out, errOut bytes.Buffer
	helm := exec.CommandContext(ctx, program, args...)
	helm.Stdout, helm.Stderr = &out, &errOut
	if err := helm.Run(); err != nil {
		if text := strings.TrimSpace(errOut.String()); text != "" {
			err = errors.New(redact.Text(text))
		}
		return nil, fmt.Errorf("render the chart %s with %s: %w", c.Folder, program, err)
	}
	return FromRendered("the chart "+c.Folder, c.Namespace, out.Bytes())
}
