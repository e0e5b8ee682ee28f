// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
	"github.com/fairlead-io/fairlead/internal/tables"
)

// Desired reads the source afresh and compiles everything from scratch. What
// cannot be read is wanted as it was last good, as when the source is followed;
// so are the backends that are retained now, which no source knows.
func (a *Agent) Desired(ctx context.Context) ([]api.Frontend, error) {
	objects, problems, err := a.source.List(ctx)
	if err == nil {
		err = keepLastGood(&objects, problems, a.tables.Snapshot())
	}
	if err != nil {
		return nil, fmt.Errorf("read %s afresh: %w", a.sourceName(), err)
	}
	node, _ := a.node.current()
	options := a.options()
	rows := []api.Frontend{}
	for _, c := range model.CompileAll(objects.Services, objects.Slices, &node, &options) {
		kept := a.writer.Keep(c.Service, c.Compiled)
		rows = append(rows, api.Frontends(c.Service, &kept)...)
	}
	api.SortFrontends(rows)
	return rows, nil
}

// keepLastGood adds to a fresh reading the objects that it could not read, as
// the tables have them. A problem that names no object, such as a file that is
// no YAML, is an error: nobody knows what the reading lacks.
func keepLastGood(fresh *reflector.Objects, problems []reflector.Problem, snapshot tables.Snapshot) error {
	lacking := map[string]bool{}
	for _, p := range problems {
		if p.Object == "" {
			return p
		}
		lacking[p.Object] = true
	}
	// A problem does not always make an object useless.
	for _, s := range fresh.Services {
		delete(lacking, title(reflector.KindService, s.Name))
	}
	for _, s := range fresh.Slices {
		delete(lacking, title(reflector.KindEndpointSlice, s.Name))
	}
	if len(lacking) == 0 {
		return nil
	}
	for row := range snapshot.Services() {
		if lacking[title(reflector.KindService, row.Name)] {
			fresh.Services = append(fresh.Services, row.Object)
		}
		for _, s := range row.Slices {
			if lacking[title(reflector.KindEndpointSlice, s.Name)] {
				fresh.Slices = append(fresh.Slices, s)
			}
		}
	}
	return nil
}

// title is how a reflector.Problem names an object.
func title(kind reflector.Kind, name model.Name) string { return kind.String() + " " + name.String() }
