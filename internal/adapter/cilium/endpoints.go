// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ParseEndpoints reads `cilium-dbg endpoint list`, as a table or with -o json.
// If it returns endpoints and an error, there are more that it could not read.
func ParseEndpoints(text []byte) ([]Endpoint, error) {
	if list, line := jsonIn(text); list != nil {
		return endpointsJSON(list, line)
	}
	return endpointsTable(text)
}

// endpointRow is the first line of an endpoint. Its address columns may be
// empty and its labels are one a line, so that words and not columns part it.
var endpointRow = regexp.MustCompile(`^\s*(\d+)\s+(Enabled|Disabled(?: \(Audit\))?|Unknown)\s+(Enabled|Disabled(?: \(Audit\))?|Unknown)\s+(\d+|<no label id>)\s+(.*\S)\s+(\S+)\s*$`)

// endpointStates are the last words of a row.
var endpointStates = []string{
	"creating", "waiting-for-identity", "not-ready", "waiting-to-regenerate", "regenerating",
	"restoring", "ready", "disconnecting", "disconnected", "invalid", "Unknown",
}

func endpointsTable(text []byte) ([]Endpoint, error) {
	var out []Endpoint
	var bad faults
	titled := false
	for n, line := range lines(text) {
		switch {
		case strings.HasPrefix(line, "ENDPOINT "):
			titled = true
		case strings.TrimSpace(line) == "" || titled && len(out) == 0 && strings.HasPrefix(strings.TrimSpace(line), "ENFORCEMENT"):
		case len(out) > 0 && isLabel(line):
			last := &out[len(out)-1]
			last.Labels = append(last.Labels, strings.TrimSpace(line))
		default:
			e, err := endpointLine(line)
			if err != nil {
				bad.add(n, "%v", err)
				continue
			}
			e.Line = n
			out = append(out, e)
		}
	}
	if !titled && len(out) == 0 {
		return nil, errors.New("it is no list of endpoints")
	}
	// Some of the labels of the last endpoint may be missing with the line's end.
	if torn(text) && bad.count == 0 && len(out) > 0 && !slices.Contains(endpointStates, out[len(out)-1].State) {
		bad.add(out[len(out)-1].Line, "it ends within this line")
	}
	if out == nil {
		out = []Endpoint{}
	}
	return out, bad.err()
}

// isLabel says whether a line has nothing but one more label.
func isLabel(line string) bool {
	label := strings.TrimSpace(line)
	return line[0] == ' ' && !strings.Contains(label, " ") && strings.Contains(label, ":")
}

func endpointLine(line string) (Endpoint, error) {
	row := endpointRow.FindStringSubmatch(line)
	if row == nil {
		return Endpoint{}, fmt.Errorf("%q is no endpoint", line)
	}
	e := Endpoint{Ingress: row[2] == "Enabled", Egress: row[3] == "Enabled", State: row[6]}
	var err error
	if e.ID, err = strconv.Atoi(row[1]); err != nil {
		return e, fmt.Errorf("%q is no endpoint: %w", line, err)
	}
	if row[4] != "<no label id>" {
		if e.Identity, err = strconv.Atoi(row[4]); err != nil {
			return e, fmt.Errorf("%q is no endpoint: %w", line, err)
		}
	}
	if _, err := netip.ParseAddr(e.State); err == nil {
		return e, fmt.Errorf("the endpoint %d has no state: the line is cut off", e.ID)
	}
	label := strings.TrimSpace(strings.ReplaceAll(row[5], "No address", ""))
	for {
		rest, word := cutLast(label)
		a, err := netip.ParseAddr(word)
		if err != nil {
			break
		}
		e.Addresses = append(e.Addresses, a)
		label = rest
	}
	slices.SortFunc(e.Addresses, netip.Addr.Compare)
	if label != "" && label != "no labels" && label != "Unknown" && !strings.HasPrefix(label, "Unknown ") {
		e.Labels = []string{label}
	}
	return e, nil
}

// cutLast parts the last word from a text.
func cutLast(text string) (rest, word string) {
	at := strings.LastIndexByte(text, ' ')
	return strings.TrimSpace(text[:max(at, 0)]), text[at+1:]
}

// endpoint is an element of `cilium-dbg endpoint list -o json`.
type endpoint struct {
	ID     int `json:"id"`
	Status *struct {
		External struct {
			Namespace string `json:"k8s-namespace"`
			Name      string `json:"k8s-pod-name"`
			Pod       string `json:"pod-name"`
		} `json:"external-identifiers"`
		Identity struct {
			ID     int      `json:"id"`
			Labels []string `json:"labels"`
		} `json:"identity"`
		Labels struct {
			SecurityRelevant []string `json:"security-relevant"`
		} `json:"labels"`
		Networking struct {
			Addressing []struct {
				IPv4 string `json:"ipv4"`
				IPv6 string `json:"ipv6"`
			} `json:"addressing"`
		} `json:"networking"`
		Policy struct {
			Realized struct {
				Enabled string `json:"policy-enabled"`
			} `json:"realized"`
		} `json:"policy"`
		State string `json:"state"`
	} `json:"status"`
}

func endpointsJSON(list []byte, line int) ([]Endpoint, error) {
	decoder := json.NewDecoder(bytes.NewReader(list))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return nil, errors.New("it is no list of endpoints")
	}
	out := []Endpoint{}
	at, counted := line, int64(0)
	for i := 1; decoder.More(); i++ {
		var e endpoint
		if err := decoder.Decode(&e); err != nil {
			return out, fmt.Errorf("element %d of the list: %w", i, err)
		}
		if e.ID == 0 || e.Status == nil {
			return out, fmt.Errorf("element %d of the list is no endpoint", i)
		}
		// The number of the line in which the element ends.
		end := decoder.InputOffset()
		at += bytes.Count(list[counted:end], []byte("\n"))
		counted = end
		out = append(out, e.read(at))
	}
	if _, err := decoder.Token(); err != nil {
		return out, fmt.Errorf("the list ends too early: %w", err)
	}
	return out, nil
}

func (e *endpoint) read(line int) Endpoint {
	s := e.Status
	out := Endpoint{ID: e.ID, Pod: s.External.Pod, Identity: s.Identity.ID, Labels: s.Identity.Labels, State: s.State, Line: line}
	if s.External.Namespace != "" && s.External.Name != "" {
		out.Pod = s.External.Namespace + "/" + s.External.Name
	}
	if len(s.Labels.SecurityRelevant) > 0 {
		out.Labels = s.Labels.SecurityRelevant
	}
	for _, pair := range s.Networking.Addressing {
		for _, text := range []string{pair.IPv4, pair.IPv6} {
			if a, err := netip.ParseAddr(text); err == nil {
				out.Addresses = append(out.Addresses, a)
			}
		}
	}
	enabled := s.Policy.Realized.Enabled
	out.Ingress = enabled == "ingress" || enabled == "both"
	out.Egress = enabled == "egress" || enabled == "both"
	return out
}
