// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/agent"
	"github.com/fairlead-io/fairlead/internal/datapath"
)

// defaultSNATPorts lie beyond those that the kernel gives to the node's own
// sockets by default, and beyond the NodePorts of most clusters.
var defaultSNATPorts = datapath.Ports{First: 61000, Last: 65535}

// packetFlags are the agent's flags for traffic on the wire.
type packetFlags struct {
	path, attach        format
	devices, podDevices list[string]
}

const (
	on, off      = "on", "off"
	attachAuto   = "auto"
	attachClsact = "clsact"
)

func addPacketFlags(cmd *cobra.Command, c *agent.Config) *packetFlags {
	p := &packetFlags{
		path:       format{value: on, allowed: []string{on, off}},
		attach:     format{value: attachAuto, allowed: []string{attachAuto, attachClsact}},
		devices:    list[string]{kind: "PATTERN", parse: parsePattern},
		podDevices: list[string]{kind: "PATTERN", parse: parsePattern},
	}
	flags := cmd.Flags()
	flags.Var(&p.path, "packet-path", "whether to translate traffic on the wire, from other machines and from --pod-devices")
	flags.Var(&p.devices, "devices", "devices that face other machines, such as eth* (quote it); those found from routes and addresses if empty; repeatable")
	flags.Var(&p.podDevices, "pod-devices", "devices of pods whose sockets this kernel does not see, of sandboxed runtimes and virtual machines, such as kata*; repeatable")
	flags.Var(&p.attach, "packet-attach", "how to attach to devices: TCX where the kernel has it, or always filters on a clsact qdisc")
	flags.TextVar(&c.SNATPorts, "snat-ports", defaultSNATPorts, "`PORTS` of the node that connections get whose backend sees the node's address, as FIRST-LAST")
	flags.DurationVar(&c.CloseWait, "conntrack-tcp-timeout-close-wait", time.Hour, "least `TIME` for which the kernel's connection tracking keeps a TCP connection that one side has ended, as kube-proxy sets it; 0 leaves the setting alone")
	return p
}

func (p *packetFlags) read(c *agent.Config) {
	c.PacketPath, c.Clsact = p.path.value == on, p.attach.value == attachClsact
	c.Devices, c.PodDevices = p.devices.values, p.podDevices.values
}

// parsePattern takes a shell pattern for the names of devices.
func parsePattern(text string) (string, error) {
	if _, err := path.Match(text, ""); err != nil || text == "" {
		return "", fmt.Errorf("%q is no pattern: * stands for any characters, ? for one, [a-c] for one of these", text)
	}
	return text, nil
}
