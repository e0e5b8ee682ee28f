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

// pressureLine is a line of the metric bpf_map_pressure: as the agent lists it,
// with quotes up to 1.16 and without since, or as Prometheus reads it.
var pressureLine = regexp.MustCompile(`^(?:cilium_)?bpf_map_pressure(?:\s+|\{)(?:.*[ ,])?map_name="?([^"\s,}]+)"?[^}]*?\}?\s+(\S+)\s*$`)

// metricLine is any line of such a list.
var metricLine = regexp.MustCompile(`^(?:#|Metric\s|[a-z_:][a-zA-Z0-9_:]*(?:\s|\{))`)

// ParseMapPressure reads how full each BPF map is, from 0 to 1, out of
// `cilium-dbg metrics list`, as a table or with -o json, or of what Prometheus
// reads of the agent. A map that is not in it may be one that Cilium does not
// measure.
func ParseMapPressure(text []byte) (map[string]float64, error) {
	if list, _ := jsonIn(text); list != nil {
		return mapPressureJSON(list)
	}
	var bad faults
	out := map[string]float64{}
	known := false
	for n, line := range lines(text) {
		known = known || metricLine.MatchString(line) && strings.ContainsAny(line, "_M")
		row := pressureLine.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		value, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			bad.add(n, "%q is no number", row[2])
			continue
		}
		out[row[1]] = value
	}
	if !known {
		return nil, errors.New("it is no list of metrics")
	}
	return out, bad.err()
}

func mapPressureJSON(list []byte) (map[string]float64, error) {
	var metrics []struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
		Value  float64           `json:"value"`
	}
	if err := json.Unmarshal(list, &metrics); err != nil {
		return nil, fmt.Errorf("read the list of metrics: %w", err)
	}
	out := map[string]float64{}
	for _, m := range metrics {
		if strings.TrimPrefix(m.Name, "cilium_") == "bpf_map_pressure" && m.Labels["map_name"] != "" {
			out[m.Labels["map_name"]] = m.Value
		}
	}
	return out, nil
}
