// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/rig"
)

// onDevices are the programs on devices as the agent tells: "eth0 tcx/ingress
// ours", and the ids of ours.
func onDevices(s api.Status) (lines []string, ids []uint32) {
	for _, a := range s.Attachments {
		switch {
		case a.Device == "":
		case a.Ours:
			lines = append(lines, a.Device+" "+a.Hook+" ours")
			ids = append(ids, a.ID)
		default:
			lines = append(lines, a.Device+" "+a.Hook+" "+a.Program)
		}
	}
	return lines, ids
}

// bothDirections is what a device has on it that is served in this way.
func bothDirections(via string, devices ...string) (lines []string) {
	for _, d := range devices {
		lines = append(lines, d+" "+via+"/ingress ours", d+" "+via+"/egress ours")
	}
	return lines
}

// served waits until exactly these devices are, and returns the programs' ids.
func (n *node) served(t *testing.T, via string, devices ...string) (ids []uint32) {
	t.Helper()
	rig.Eventually(t, func() error {
		var lines []string
		lines, ids = onDevices(n.Status(t))
		if want := bothDirections(via, devices...); !slices.Equal(lines, want) {
			return fmt.Errorf("on the devices are %q, want %q", lines, want)
		}
		return nil
	})
	return ids
}

// cable adds a device to the node, at the other end of which is a machine.
func (n *node) cable(t *testing.T, name string, addrs ...string) {
	t.Helper()
	lab.Veth(t, lab.End{NetNS: n.NS, Link: name, Addrs: addrs}, lab.End{NetNS: lab.NewNetNS(t, "beyond "+name), Link: "eth0"})
}

// change changes a device of the node.
func (n *node) change(t *testing.T, name string, do func(netlink.Link) error) {
	t.Helper()
	n.NS.Do(func() {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = do(l)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func rename(to string) func(netlink.Link) error {
	return func(l netlink.Link) error {
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to), netlink.LinkSetUp(l))
	}
}

func TestDevicesThatComeAndGo(t *testing.T) {
	for _, c := range []struct {
		via   string
		flags []string
	}{{"tcx", nil}, {"clsact", []string{"--packet-attach", "clsact"}}} {
		t.Run(c.via, func(t *testing.T) {
			n := newNode(t)
			flags := append(c.flags, "--devices", "eth*,wan", "--pod-devices", "kata*")
			n.Start(t, flags...)
			// What is at the other end stays for as long as the whole test.
			cable := func(name string) { n.cable(t, name) }
			first := n.served(t, c.via, "eth0")
			status := n.Status(t)
			if !status.Healthy || len(status.Devices) != 1 || status.Devices[0].Attached != c.via || !strings.HasPrefix(status.PacketPath, "on, by "+c.via) {
				t.Errorf("healthy: %v, %q, devices %+v, findings %q", status.Healthy, status.PacketPath, status.Devices, status.Findings)
			}

			t.Run("a device that comes is served at once", func(t *testing.T) {
				began := time.Now()
				cable("eth1")
				cable("kata7")
				n.served(t, c.via, "eth0", "eth1", "kata7")
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %s, as if nobody had announced it", took)
				}
			})
			t.Run("one that is renamed keeps its programs, or loses them with its name", func(t *testing.T) {
				n.change(t, "eth1", rename("wan"))
				n.served(t, c.via, "eth0", "kata7", "wan")
				n.change(t, "wan", rename("other"))
				n.served(t, c.via, "eth0", "kata7")
			})
			t.Run("one that is deleted and made again gets programs at once", func(t *testing.T) {
				n.change(t, "kata7", netlink.LinkDel)
				n.served(t, c.via, "eth0")
				cable("kata7")
				n.served(t, c.via, "eth0", "kata7")
			})
			t.Run("an agent that is killed leaves them served, and the next one takes over", func(t *testing.T) {
				n.Process.Kill()
				n.Start(t, flags...)
				if again := n.served(t, c.via, "eth0", "kata7"); len(again) != 4 || slices.Equal(again[:2], first) {
					t.Errorf("programs %v after %v, want those of the new agent", again, first)
				}
			})
			t.Run("one that goes while no agent runs leaves nothing behind", func(t *testing.T) {
				n.Process.Kill()
				n.change(t, "kata7", netlink.LinkDel)
				n.Start(t, flags...)
				n.served(t, c.via, "eth0")
			})
			t.Run("--packet-path=off takes them all away, and the socket path goes on", func(t *testing.T) {
				n.Restart(t, "--packet-path", "off")
				n.served(t, c.via)
				status := n.Status(t)
				if !status.Healthy || len(status.Devices) != 0 || !strings.HasPrefix(status.PacketPath, "off") || len(status.Attachments) == 0 {
					t.Errorf("healthy: %v, %q, devices %+v, %d programs", status.Healthy, status.PacketPath, status.Devices, len(status.Attachments))
				}
			})
			t.Run("cleanup takes them all away", func(t *testing.T) {
				n.Restart(t, flags...)
				n.served(t, c.via, "eth0")
				n.Process.Kill()
				n.Run(t, 0, "cleanup")
				n.expectBare(t, "eth0")
			})
		})
	}
}

// expectBare fails if a program or filter is on the device. It looks by itself:
// no agent runs.
func (n *node) expectBare(t *testing.T, name string) {
	t.Helper()
	n.change(t, name, func(l netlink.Link) error {
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(l, parent)
			if err != nil {
				return err
			}
			if len(filters) > 0 {
				t.Errorf("filters %v are left on %s", filters, name)
			}
		}
		for _, attach := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			there, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: attach})
			if err != nil {
				return err
			}
			if len(there.Programs) > 0 {
				t.Errorf("programs %v are left on %s", there.Programs, name)
			}
		}
		return nil
	})
}

func TestSomeoneElseTakesProgramsOffADevice(t *testing.T) {
	n := newNode(t)
	n.Start(t, "--compare-interval", "1s", "--packet-attach", "clsact")
	n.served(t, "clsact", "eth0")
	n.change(t, "eth0", func(l netlink.Link) error {
		return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_CLSACT}})
	})
	n.served(t, "clsact", "eth0")
	if s := n.Status(t); !s.Healthy || s.Repaired == 0 {
		t.Errorf("healthy: %v, repaired %d, findings %q", s.Healthy, s.Repaired, s.Findings)
	}
}

func TestRoutesMakeADeviceOneOfThePacketPath(t *testing.T) {
	n := newNode(t)
	n.cable(t, "up1", "198.51.100.1/24")
	n.Start(t)
	n.served(t, "tcx", "eth0")
	n.NS.Route(t, netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("198.51.100.2"), "up1")
	n.served(t, "tcx", "eth0", "up1")
	if s := n.Status(t); len(s.Devices) != 2 || s.Devices[1].Name != "up1" || !strings.Contains(s.Devices[1].Why, "gateway") {
		t.Errorf("devices %+v", s.Devices)
	}
}

func TestSettingsOfTheKernelAreTold(t *testing.T) {
	n := newNode(t)
	n.Start(t, "--snat-ports", "50000-50999")
	finding := func(words string) bool {
		return slices.ContainsFunc(n.Status(t).Findings, func(f string) bool { return strings.Contains(f, words) })
	}
	if !finding("net.ipv4.ip_forward is 0") || !finding("net.ipv6.conf.all.forwarding is 0") {
		t.Errorf("findings %q", n.Status(t).Findings)
	}
	n.NS.Sysctl(t, "net.ipv4.ip_forward", "1")
	n.NS.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	if finding("forward") {
		t.Errorf("findings %q", n.Status(t).Findings)
	}
	if reserved := strings.TrimSpace(n.Place().Run(t, "cat", "/proc/sys/net/ipv4/ip_local_reserved_ports")); reserved != "50000-50999" {
		t.Errorf("reserved are %q", reserved)
	}
}
