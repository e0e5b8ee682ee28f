// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/test/lab"
)

func TestSettingsThatKeepClientsOutAreFound(t *testing.T) {
	v4 := datapath.Device{Name: "eth0", Source4: parse("192.0.2.1")[0]}
	both := datapath.Device{Name: "eth1", Source4: parse("192.0.2.2")[0], Source6: parse("2001:db8::2")[0]}
	inside := datapath.Device{Name: "tap0", Inside: true}
	well := map[string]string{forwarding4: "1", forwarding6: "1", "ipv4/conf/all/rp_filter": "0"}
	for _, c := range []struct {
		name    string
		devices []datapath.Device
		set     map[string]string
		want    []string // words of each finding
	}{
		{"all is well", []datapath.Device{v4, both, inside}, nil, nil},
		{"a node that does not forward", []datapath.Device{v4, both}, map[string]string{forwarding4: "0", forwarding6: "0"}, []string{"net.ipv4.ip_forward is 0", "net.ipv6.conf.all.forwarding is 0"}},
		{"a family that no device has", []datapath.Device{v4}, map[string]string{forwarding6: "0"}, nil},
		{"no device at all", []datapath.Device{inside}, map[string]string{forwarding4: "0", forwarding6: "0"}, nil},
		{"a family that the kernel lacks", []datapath.Device{both}, map[string]string{forwarding6: ""}, nil},
		{"one device, strict: the way back is the way in", []datapath.Device{v4, inside}, map[string]string{"ipv4/conf/eth0/rp_filter": "1"}, nil},
		{"several devices, one of them strict", []datapath.Device{v4, both}, map[string]string{"ipv4/conf/eth1/rp_filter": "1"}, []string{"rp_filter is strict on eth1"}},
		{"several devices, all strict", []datapath.Device{v4, both}, map[string]string{"ipv4/conf/all/rp_filter": "1"}, []string{"strict on eth0", "strict on eth1"}},
		{"strict for all, loose on the device: the greater is in force", []datapath.Device{v4, both},
			map[string]string{"ipv4/conf/all/rp_filter": "1", "ipv4/conf/eth0/rp_filter": "2", "ipv4/conf/eth1/rp_filter": "2"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sysctlFindings(c.devices, func(name string) (string, error) {
				value, given := c.set[name]
				if !given {
					value = well[name]
				}
				if value == "" {
					return "", os.ErrNotExist
				}
				return value, nil
			})
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %d findings", got, len(c.want))
			}
			for i, words := range c.want {
				if !strings.Contains(got[i], words) {
					t.Errorf("%q does not say %q", got[i], words)
				}
			}
		})
	}
}

func TestPortsAreAddedToThoseThatOthersReserved(t *testing.T) {
	for _, c := range []struct {
		list    string
		add     datapath.Ports
		want    string
		changed bool
	}{
		{"", datapath.Ports{First: 60000, Last: 60999}, "60000-60999", true},
		{"", datapath.Ports{First: 60000, Last: 60000}, "60000", true},
		{"8080,9000-9010", datapath.Ports{First: 60000, Last: 60999}, "8080,9000-9010,60000-60999", true},
		{"60000-60999", datapath.Ports{First: 60000, Last: 60999}, "60000-60999", false},
		{"50000-65535", datapath.Ports{First: 60000, Last: 60999}, "50000-65535", false},
		{"59999,60500,61000", datapath.Ports{First: 60000, Last: 60999}, "59999-61000", true},
		{"60990-65535", datapath.Ports{First: 60000, Last: 60999}, "60000-65535", true},
	} {
		if got, changed, err := addReserved(c.list, c.add); err != nil || got != c.want || changed != c.changed {
			t.Errorf("%q and %v make %q, changed: %v, %v; want %q, %v", c.list, c.add, got, changed, err, c.want, c.changed)
		}
	}
	for _, list := range []string{"x", "1-x", "70000", "1--2", "9-3"} {
		if _, _, err := addReserved(list, datapath.Ports{First: 60000, Last: 60999}); err == nil {
			t.Errorf("%q is taken for a list of ports", list)
		}
	}
}

// Every port of the list and of what is added is in the result, and no other.
func TestReservedPortsAreJoinedWithoutLossOrGain(t *testing.T) {
	port := rapid.Uint16Range(1, 40)
	rapid.Check(t, func(t *rapid.T) {
		var ranges []datapath.Ports
		want := map[uint16]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "ranges") {
			a, b := port.Draw(t, "a"), port.Draw(t, "b")
			r := datapath.Ports{First: min(a, b), Last: max(a, b)}
			ranges = append(ranges, r)
			for p := r.First; p <= r.Last; p++ {
				want[p] = true
			}
		}
		joined := joinPorts(slices.Clone(ranges))
		have := map[uint16]bool{}
		for i, r := range joined {
			if i > 0 && r.First <= joined[i-1].Last+1 {
				t.Fatalf("%v are not apart", joined)
			}
			for p := r.First; p <= r.Last; p++ {
				have[p] = true
			}
		}
		for p := range uint16(50) {
			if want[p] != have[p] {
				t.Fatalf("port %d of %v: %v in %v", p, ranges, have[p], joined)
			}
		}
	})
}

func TestThePortsOfTheWireAreReservedWhereTheyMeetThoseOfSockets(t *testing.T) {
	ns := lab.NewNetNS(t, "n1")
	log := slog.New(slog.DiscardHandler)
	ns.Sysctl(t, "net.ipv4.ip_local_port_range", "32768 60999")
	ns.Sysctl(t, "net.ipv4.ip_local_reserved_ports", "40000,60990-60995")
	for _, c := range []struct {
		ports datapath.Ports
		want  string
	}{
		{datapath.Ports{First: 61000, Last: 65535}, "40000,60990-60995"},
		{datapath.Ports{First: 60900, Last: 65535}, "40000,60900-60999"},
		{datapath.Ports{First: 60950, Last: 60960}, "40000,60900-60999"},
	} {
		ns.Do(func() {
			if err := reservePorts(c.ports, log); err != nil {
				t.Fatal(err)
			}
			if got, err := readSysctl(reservedPorts); err != nil || got != c.want {
				t.Errorf("after %v reserved are %q, %v; want %q", c.ports, got, err, c.want)
			}
		})
	}
}

func FuzzReservedPorts(f *testing.F) {
	for _, list := range []string{"", "8080", "8080,9000-9010", "60000-60999", ",", "1-", "70000"} {
		f.Add(list, uint16(60000), uint16(60999))
	}
	f.Fuzz(func(t *testing.T, list string, first, last uint16) {
		add := datapath.Ports{First: min(first, last), Last: max(first, last)}
		merged, changed, err := addReserved(list, add)
		if err != nil {
			return
		}
		if again, more, err := addReserved(merged, add); err != nil || more || again != merged {
			t.Errorf("%q and %v make %q (changed: %v), and once more %q, %v", list, add, merged, changed, again, err)
		}
	})
}
