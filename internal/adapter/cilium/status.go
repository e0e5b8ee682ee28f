// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ParseStatus reads `cilium-dbg status`, with or without --verbose, or with
// -o json.
func ParseStatus(text []byte) (*Status, error) {
	s := &Status{}
	for _, line := range lines(text) {
		s.Lines = append(s.Lines, line)
	}
	if object, _ := jsonIn(text); object != nil {
		return s, s.readJSON(object)
	}
	return s.readText()
}

// ReplacesKubeProxy says whether the agent does all that kube-proxy would: the
// word is that of its status or of its configuration, in any version.
func ReplacesKubeProxy(word string) bool {
	return slices.Contains([]string{"true", "strict", "enabled"}, strings.ToLower(word))
}

func (s *Status) readText() (*Status, error) {
	known := false
	for i, line := range s.Lines {
		title, rest, found := strings.Cut(line, ":")
		if !found || strings.HasPrefix(line, " ") {
			continue
		}
		rest = strings.TrimSpace(rest)
		word, detail, _ := strings.Cut(rest, " ")
		switch title {
		case "Kubernetes":
			s.Kubernetes, s.KubernetesDetail = word, strings.TrimSpace(detail)
		case "KubeProxyReplacement":
			s.KubeProxyReplacement = word
		case "Cilium":
			s.Cilium = strings.Join(strings.Fields(rest), " ")
		case "Controller Status":
			s.Failing = failing(s.Lines[i+1:])
		default:
			continue
		}
		known = true
	}
	if !known {
		return nil, errors.New("it is no status of a Cilium agent")
	}
	return s, nil
}

// columns are parted by two spaces at least.
var columns = regexp.MustCompile(` {2,}`)

// failing returns the lines of controllers that fail, out of the indented table
// that follows: name, last success, last error, count, message.
func failing(rest []string) []string {
	var out []string
	for _, line := range rest {
		if !strings.HasPrefix(line, " ") {
			break
		}
		cells := columns.Split(strings.TrimSpace(line), -1)
		if len(cells) < 4 {
			continue
		}
		if count, err := strconv.Atoi(cells[3]); err == nil && count > 0 {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

type health struct {
	State string `json:"state"`
	Msg   string `json:"msg"`
}

func (s *Status) readJSON(object []byte) error {
	var status struct {
		Kubernetes  *health `json:"kubernetes"`
		Cilium      *health `json:"cilium"`
		Replacement *struct {
			Mode string `json:"mode"`
		} `json:"kube-proxy-replacement"`
		Controllers []struct {
			Name   string `json:"name"`
			Status struct {
				Count int    `json:"consecutive-failure-count"`
				Msg   string `json:"last-failure-msg"`
			} `json:"status"`
		} `json:"controllers"`
	}
	if err := json.Unmarshal(object, &status); err != nil {
		return fmt.Errorf("read the status of a Cilium agent: %w", err)
	}
	if status.Cilium == nil {
		return errors.New("it is no status of a Cilium agent")
	}
	s.Cilium = strings.TrimSpace(status.Cilium.State + " " + status.Cilium.Msg)
	if k := status.Kubernetes; k != nil {
		s.Kubernetes, s.KubernetesDetail = k.State, k.Msg
	}
	if r := status.Replacement; r != nil {
		s.KubeProxyReplacement = r.Mode
	}
	for _, c := range status.Controllers {
		if c.Status.Count > 0 {
			s.Failing = append(s.Failing, fmt.Sprintf("%s   %d   %s", c.Name, c.Status.Count, c.Status.Msg))
		}
	}
	return nil
}
