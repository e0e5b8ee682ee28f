// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// identityRow is the first line of an identity: with --endpoints a count
// follows.
var identityRow = regexp.MustCompile(`^(\d+)\s+(\S+)(?:\s+\d+)?\s*$`)

// ParseIdentities reads `cilium-dbg identity list`, as a table or with -o json.
// If it returns identities and an error, there are more that it could not read.
func ParseIdentities(text []byte) ([]Identity, error) {
	if list, line := jsonIn(text); list != nil {
		return identitiesJSON(list, line)
	}
	var bad faults
	out := []Identity{}
	titled := false
	for n, line := range lines(text) {
		row := identityRow.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "ID ") && strings.Contains(line, "LABELS"):
			titled = true
		case strings.TrimSpace(line) == "":
		case row != nil:
			id, err := strconv.Atoi(row[1])
			if err != nil {
				bad.add(n, "%q is no identity", line)
				continue
			}
			out = append(out, Identity{ID: id, Labels: []string{row[2]}, Line: n})
		case len(out) > 0 && isLabel(line):
			last := &out[len(out)-1]
			last.Labels = append(last.Labels, strings.TrimSpace(line))
		default:
			bad.add(n, "%q is no identity", line)
		}
	}
	if !titled {
		return nil, errors.New("it is no list of identities")
	}
	return out, bad.err()
}

func identitiesJSON(list []byte, line int) ([]Identity, error) {
	var elements []struct {
		ID     int      `json:"id"`
		Labels []string `json:"labels"`
		// With --endpoints it stands one level below.
		Identity struct {
			ID     int      `json:"id"`
			Labels []string `json:"labels"`
		} `json:"identity"`
	}
	if err := json.Unmarshal(list, &elements); err != nil {
		return nil, fmt.Errorf("read the list of identities: %w", err)
	}
	out := []Identity{}
	for i, e := range elements {
		if e.ID == 0 {
			e.ID, e.Labels = e.Identity.ID, e.Identity.Labels
		}
		if e.ID == 0 && len(e.Labels) == 0 {
			return nil, fmt.Errorf("element %d of the list is no identity", i+1)
		}
		out = append(out, Identity{ID: e.ID, Labels: e.Labels, Line: line})
	}
	return out, nil
}
