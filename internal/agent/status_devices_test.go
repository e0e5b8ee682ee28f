// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
)

// attachment reads "DEVICE HOOK PROGRAM", where the program ours is Fairlead's.
func attachment(text string) api.Attachment {
	fields := strings.Fields(text)
	return api.Attachment{Device: fields[0], Hook: fields[1], Program: fields[2], Ours: fields[2] == "ours"}
}

func attachments(texts ...string) []api.Attachment {
	var list []api.Attachment
	for _, text := range texts {
		list = append(list, attachment(text))
	}
	return list
}

func TestADeviceSaysHowItIsAttached(t *testing.T) {
	for _, c := range []struct {
		name     string
		on       []api.Attachment
		problem  string // known before
		attached string
		troubles int
	}{
		{"by links", attachments("eth0 tcx/ingress ours", "eth0 tcx/egress ours"), "", "tcx", 0},
		{"by filters, among others", attachments("eth0 tcx/ingress x", "eth0 clsact/ingress ours", "eth0 clsact/egress ours"), "", "clsact", 0},
		{"one that someone took away is missed", attachments("eth0 tcx/ingress ours", "eth1 tcx/egress ours"), "", "tcx", 1},
		{"none is missed where it is known why", nil, "no room", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices := []api.Device{{Name: "eth0", Problem: c.problem}}
			troubles := markAttached(devices, c.on)
			if len(troubles) != c.troubles || devices[0].Attached != c.attached || (devices[0].Problem != "") != (c.troubles > 0 || c.problem != "") {
				t.Errorf("got %q of %+v", troubles, devices[0])
			}
		})
	}
}

func TestProgramsThatComeBetweenTheWireAndOursAreFound(t *testing.T) {
	for _, c := range []struct {
		name string
		on   []api.Attachment
		want []string // beginnings of findings
	}{
		{"first on the way in and last on the way out is right", attachments(
			"eth0 tcx/ingress ours", "eth0 tcx/ingress x", "eth0 clsact/ingress y", "eth0 tcx/egress x", "eth0 tcx/egress ours"), nil},
		{"someone is before ours on the way in", attachments("eth0 tcx/ingress x", "eth0 tcx/ingress ours", "eth0 tcx/egress ours"),
			[]string{"on eth0 the program x (tcx/ingress) sees packets before"}},
		{"and someone after ours on the way out", attachments("eth0 tcx/ingress ours", "eth0 tcx/egress ours", "eth0 tcx/egress x", "eth0 clsact/egress y"),
			[]string{"on eth0 the program x (tcx/egress) sees packets after", "on eth0 the program y (clsact/egress) sees packets after"}},
		{"on another device", attachments("eth0 tcx/ingress x", "eth1 tcx/ingress ours", "eth1 tcx/egress ours", "eth2 tcx/egress x"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := orderFindings(c.on)
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestProgramsOnDevicesAreNotCountedAmongThoseOfTheCgroup(t *testing.T) {
	s := api.Status{Healthy: true, Synced: true, SocketPath: "all", Attachments: attachments("eth0 tcx/ingress ours")}
	judge(&s, 1, nil)
	if s.Healthy || len(s.Findings) != 1 || !strings.HasPrefix(s.Findings[0], "0 of the 1 programs") {
		t.Errorf("healthy: %v, findings %q", s.Healthy, s.Findings)
	}
}
