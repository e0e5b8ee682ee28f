// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/datapath"
)

// packetPath says in words how the wire is served.
func (a *Agent) packetPath() string {
	if a.devices == nil {
		return "off: traffic from outside of this node is not translated"
	}
	return fmt.Sprintf("on, by %s; ports %s for connections that get the node's address", a.datapath.WireVia(), a.cfg.SNATPorts)
}

// addDevices lists the devices of the packet path, what is on them, and what
// keeps them from being served.
func (a *Agent) addDevices(s *api.Status) (troubles []string) {
	s.Devices = []api.Device{}
	if a.devices == nil {
		return nil
	}
	var served []datapath.Device
	served, s.Devices = a.devices.current()
	troubles = a.devices.findings()
	attachments, err := datapath.DeviceAttachments(served, a.cfg.PinPath)
	if err != nil {
		return append(troubles, fmt.Sprintf("what is attached to devices cannot be told: %v", err))
	}
	s.Attachments = append(s.Attachments, attachments...)
	if s.Synced {
		troubles = append(troubles, markAttached(s.Devices, attachments)...)
	}
	s.Findings = append(s.Findings, sysctlFindings(served, readSysctl)...)
	s.Findings = append(s.Findings, forwardFindings(readChains)...)
	s.Findings = append(s.Findings, orderFindings(attachments)...)
	if s.Synced && len(served) == 0 {
		s.Findings = append(s.Findings, "no device faces other machines, so nothing comes in from outside: name one with --devices if that is wrong")
	}
	return troubles
}

// markAttached says with each device how our programs are attached to it, and
// returns those that lack one although nothing is said to be wrong with them.
func markAttached(devices []api.Device, attachments []api.Attachment) (troubles []string) {
	for i := range devices {
		d := &devices[i]
		if d.Problem != "" {
			continue
		}
		count := 0
		for _, at := range attachments {
			if at.Device == d.Name && at.Ours {
				d.Attached, _, _ = strings.Cut(at.Hook, "/")
				count++
			}
		}
		if count < datapath.DeviceHookCount {
			d.Problem = fmt.Sprintf("%d of the %d programs are attached", count, datapath.DeviceHookCount)
			troubles = append(troubles, fmt.Sprintf("device %s: %s; the others are attached at the next comparison (--compare-interval)", d.Name, d.Problem))
		}
	}
	return troubles
}

// orderFindings names the programs of others that see packets before ours on
// the way in, or after ours on the way out.
func orderFindings(attachments []api.Attachment) []string {
	var findings []string
	for i, at := range attachments {
		if at.Ours {
			continue
		}
		isIn := strings.HasSuffix(at.Hook, "/ingress")
		around := attachments[i+1:]
		if !isIn {
			around = attachments[:i]
		}
		if !hasOurs(around, at.Device, isIn) {
			continue
		}
		if isIn {
			findings = append(findings, fmt.Sprintf("on %s the program %s (%s) sees packets before Fairlead does: what it takes, Fairlead does not translate", at.Device, at.Program, at.Hook))
			continue
		}
		findings = append(findings, fmt.Sprintf("on %s the program %s (%s) sees packets after Fairlead does: it may undo what was translated", at.Device, at.Program, at.Hook))
	}
	return findings
}

func hasOurs(attachments []api.Attachment, device string, isIn bool) bool {
	for _, at := range attachments {
		if at.Ours && at.Device == device && strings.HasSuffix(at.Hook, "/ingress") == isIn {
			return true
		}
	}
	return false
}
