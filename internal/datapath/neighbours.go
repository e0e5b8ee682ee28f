// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
)

// DeviceAttachments lists the programs on the devices, ours and those of
// others: what meets a packet on its way in and then on its way out, in the
// order in which it runs. TCX comes before the filters of a clsact qdisc in
// both directions.
func DeviceAttachments(devices []Device, pinPath string) ([]api.Attachment, error) {
	links, err := openTCX(pinPath)
	if err != nil {
		return nil, err
	}
	defer links.close()
	attachments := []api.Attachment{}
	for _, dev := range devices {
		for i := range wireHooks {
			at := point{dev.Index, direction(i)}
			tcx, err := tcxAttachments(dev.Name, at, links)
			if err != nil {
				return nil, err
			}
			filters, err := filterAttachments(dev.Name, at)
			if err != nil {
				return nil, err
			}
			attachments = append(append(attachments, tcx...), filters...)
		}
	}
	return attachments, nil
}

// tcxAttachments has none on a kernel without TCX, and of a device that is gone.
func tcxAttachments(device string, at point, links *tcx) ([]api.Attachment, error) {
	there, err := link.QueryPrograms(link.QueryOptions{Target: at.index, Attach: wireHooks[at.direction].tcx})
	if errors.Is(err, unix.ENODEV) || haveTCX() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the programs of %s: %w", device, err)
	}
	own, isOn := links.at(at)
	var attachments []api.Attachment
	for _, p := range there.Programs {
		attachments = append(attachments, api.Attachment{
			Device: device, Hook: "tcx/" + wireHooks[at.direction].name, Program: programName(p.ID), ID: uint32(p.ID), Ours: isOn && p.ID == own,
		})
	}
	return attachments, nil
}

func filterAttachments(device string, at point) ([]api.Attachment, error) {
	filters, err := listFilters(at)
	if err != nil {
		return nil, err
	}
	var attachments []api.Attachment
	for _, f := range filters {
		a := api.Attachment{Device: device, Hook: "clsact/" + wireHooks[at.direction].name, Program: f.Type()}
		if b, ok := f.(*netlink.BpfFilter); ok {
			a.ID, a.Program, a.Ours = uint32(b.Id), programName(ebpf.ProgramID(b.Id)), ours(f, at.direction)
		}
		attachments = append(attachments, a)
	}
	return attachments, nil
}
