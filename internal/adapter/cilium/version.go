// SPDX-License-Identifier: Apache-2.0

package cilium

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
)

// versionNumber is as 1.18.5, 1.19.0-rc.1 or v1.17.3; what may follow is the
// commit.
var versionNumber = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:rc|pre|snapshot|dev)[0-9A-Za-z.]*)?)\b`)

// ParseVersion reads `cilium-dbg version`, as text or with -o json. The agent's
// own version is meant; that of the program stands for it if the agent does
// not answer.
func ParseVersion(text []byte) (string, error) {
	var client, daemon string
	if object, _ := jsonIn(text); object != nil {
		var both struct{ Client, Daemon struct{ Version string } }
		if err := json.Unmarshal(object, &both); err != nil {
			return "", errors.New("it is no version of a Cilium agent: " + err.Error())
		}
		client, daemon = both.Client.Version, both.Daemon.Version
	}
	for _, line := range lines(text) {
		if rest, found := strings.CutPrefix(line, "Client:"); found {
			client = strings.TrimSpace(rest)
		}
		if rest, found := strings.CutPrefix(line, "Daemon:"); found {
			daemon = strings.TrimSpace(rest)
		}
	}
	for _, words := range []string{daemon, client} {
		if found := versionNumber.FindStringSubmatch(words); found != nil {
			return found[1], nil
		}
	}
	return "", errors.New("it is no version of a Cilium agent")
}

// Version is what the agent's status says of it; "" if nothing.
func (s *Status) Version() string {
	_, rest, _ := strings.Cut(s.Cilium, " ")
	if found := versionNumber.FindStringSubmatch(rest); found != nil {
		return found[1]
	}
	return ""
}
