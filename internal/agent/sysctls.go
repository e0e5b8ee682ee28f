// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/datapath"
)

// The settings of the kernel that the packet path rests on, below /proc/sys/net.
const (
	forwarding4   = "ipv4/ip_forward"
	forwarding6   = "ipv6/conf/all/forwarding"
	reservedPorts = "ipv4/ip_local_reserved_ports"
)

// readSysctl reads a setting of the calling thread's network namespace.
func readSysctl(name string) (string, error) {
	text, err := os.ReadFile(path.Join("/proc/sys/net", name))
	return strings.TrimSpace(string(text)), err
}

// sysctlFindings says which settings keep clients of the devices from being
// served. A setting that cannot be read, as those of a family that the kernel
// lacks, is left out.
func sysctlFindings(devices []datapath.Device, read func(name string) (string, error)) []string {
	var findings []string
	outside := slices.DeleteFunc(slices.Clone(devices), func(d datapath.Device) bool { return d.Inside })
	off := func(name string) bool { value, err := read(name); return err == nil && value == "0" }
	has := func(family func(datapath.Device) bool) bool { return slices.ContainsFunc(outside, family) }
	if has(func(d datapath.Device) bool { return d.Source4.IsValid() }) && off(forwarding4) {
		findings = append(findings, "net.ipv4.ip_forward is 0: traffic from outside reaches no pod over IPv4; set it to 1, as a CNI does")
	}
	if has(func(d datapath.Device) bool { return d.Source6.IsValid() }) && off(forwarding6) {
		findings = append(findings, "net.ipv6.conf.all.forwarding is 0: traffic from outside reaches no pod over IPv6; set it to 1, as a CNI does")
	}
	if len(outside) < 2 {
		// The way back is the way in.
		return findings
	}
	for _, d := range outside {
		if d.Source4.IsValid() && strictReversePath(d.Name, read) {
			findings = append(findings, fmt.Sprintf(
				"rp_filter is strict on %s, and there are other devices: a packet that comes in by one of them while the route back leads by another is dropped; set net.ipv4.conf.%s.rp_filter to 2",
				d.Name, d.Name))
		}
	}
	return findings
}

// strictReversePath: the greater one of a device's setting and that of all is
// in force; 1 is strict, 2 is loose.
func strictReversePath(device string, read func(name string) (string, error)) bool {
	inForce := 0
	for _, of := range []string{"all", device} {
		value, err := read(path.Join("ipv4/conf", of, "rp_filter"))
		if n, bad := strconv.Atoi(value); err == nil && bad == nil {
			inForce = max(inForce, n)
		}
	}
	return inForce == 1
}

// reservePorts keeps the node's own sockets from being given ports of the
// packet path: those that lie in the range from which the kernel chooses. What
// others have reserved stays.
func reservePorts(ports datapath.Ports, log *slog.Logger) error {
	low, high := ephemeralPorts()
	both, overlap := ports.Overlap(datapath.Ports{First: low, Last: high})
	if !overlap {
		return nil
	}
	have, err := readSysctl(reservedPorts)
	if err != nil {
		return fmt.Errorf("read net.ipv4.ip_local_reserved_ports: %w", err)
	}
	merged, changed, err := addReserved(have, both)
	if err != nil || !changed {
		return err
	}
	if err := os.WriteFile(path.Join("/proc/sys/net", reservedPorts), []byte(merged), 0); err != nil {
		return fmt.Errorf("write net.ipv4.ip_local_reserved_ports: %w (set it to %s yourself, or give --snat-ports outside of %d-%d)", err, merged, low, high)
	}
	log.Info("ports of the packet path are kept from the node's own sockets", "ports", both, "net.ipv4.ip_local_reserved_ports", merged)
	return nil
}

// addReserved adds ports to a list as the kernel writes it, such as
// "8080,9000-9010". The list is not changed if it has them all.
func addReserved(list string, add datapath.Ports) (merged string, changed bool, err error) {
	var ranges []datapath.Ports
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		r, err := parseReserved(word)
		if err != nil {
			return "", false, err
		}
		ranges = append(ranges, r)
	}
	if slices.ContainsFunc(ranges, func(r datapath.Ports) bool { return r.First <= add.First && add.Last <= r.Last }) {
		return list, false, nil
	}
	words := []string{}
	for _, r := range joinPorts(append(ranges, add)) {
		if r.First == r.Last {
			words = append(words, strconv.Itoa(int(r.First)))
			continue
		}
		words = append(words, r.String())
	}
	return strings.Join(words, ","), true, nil
}

// joinPorts sorts ranges, and makes one of those that overlap or touch.
func joinPorts(ranges []datapath.Ports) []datapath.Ports {
	slices.SortFunc(ranges, func(a, b datapath.Ports) int { return int(a.First) - int(b.First) })
	var joined []datapath.Ports
	for _, r := range ranges {
		last := len(joined) - 1
		if last >= 0 && int(r.First) <= int(joined[last].Last)+1 {
			joined[last].Last = max(joined[last].Last, r.Last)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

func parseReserved(word string) (datapath.Ports, error) {
	first, last, isRange := strings.Cut(word, "-")
	if !isRange {
		last = first
	}
	low, lowErr := strconv.ParseUint(first, 10, 16)
	high, highErr := strconv.ParseUint(last, 10, 16)
	if lowErr != nil || highErr != nil || high < low {
		return datapath.Ports{}, fmt.Errorf("net.ipv4.ip_local_reserved_ports has %q, which is no port or range of ports", word)
	}
	return datapath.Ports{First: uint16(low), Last: uint16(high)}, nil
}
