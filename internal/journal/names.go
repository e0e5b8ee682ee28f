// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"fmt"
)

// Names returns the names of the objects of a kind that the journal tells of,
// in their order, whatever their namespaces.
func (j *Journal) Names(ctx context.Context, kind Kind) ([]string, error) {
	names, err := j.names(ctx, kind)
	if err != nil {
		return names, fmt.Errorf("read the names of %s in journal %s: %w", kind.Resource, j.path, j.explain(err))
	}
	return names, nil
}

func (j *Journal) names(ctx context.Context, kind Kind) (names []string, err error) {
	rows, err := j.read.QueryContext(ctx, `SELECT DISTINCT o.name FROM objects o JOIN kinds k ON k.id = o.kind
		WHERE k."group" = ? AND k.version = ? AND k.resource = ? AND k.kind = ? ORDER BY o.name`, kind.Group, kind.Version, kind.Resource, kind.Kind)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
