// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// reasons are the words for enum reason of bpf/select.h.
var reasons = map[uint8]string{
	1: "no endpoint is usable",
	2: "the traffic policy is Local and no endpoint on this node is usable",
	3: "the source address is in none of loadBalancerSourceRanges",
	4: "loadBalancerSourceRanges apply and the socket is not bound to a source address",
	5: "the address was changing hands between Services",
	6: "the ClusterIP has no such port",
	7: "no Service has this ClusterIP",
	8: "the ports by which the backend could see the client are all in use",
	9: "the packet belongs to a connection that is not known here",
}

func reasonText(reason uint8) string {
	if s, ok := reasons[reason]; ok {
		return s
	}
	return fmt.Sprintf("reason %d", reason)
}

// refusal is struct refusal of bpf/maps.h.
type refusal struct {
	Time     uint64
	NetNS    uint64
	PID      uint32
	Owner    uint32
	Set      uint32
	Address  address
	Port     port
	Protocol uint8
	Reason   uint8
	Dropped  uint8
	Host     uint8
	SrcPort  port
	Command  [16]byte
	Source   address
	Device   uint32
}

// refusalKey is struct refusal_key.
type refusalKey struct {
	Address  address
	Port     port
	Protocol uint8
	Reason   uint8
}

// ReadRefusals calls f for each refused connection until ctx ends. There can
// be one reader at a time; what happens while there is none, or comes faster
// than refusalPace, is dropped once the ring buffer is full, and counted. Safe
// beside all other methods.
func (d *Datapath) ReadRefusals(ctx context.Context, f func(api.Refusal)) error {
	reader, err := ringbuf.NewReader(d.current.maps[mapEvents])
	if err != nil {
		return fmt.Errorf("open the ring buffer of refusals: %w", err)
	}
	defer reader.Close()
	defer context.AfterFunc(ctx, func() { reader.Close() })()
	names, pace := d.current.names, refusalPace()
	for {
		pace.next(ctx)
		record, err := reader.Read()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the ring buffer of refusals: %w", err)
		}
		if r, ok := decodeRefusal(record.RawSample, names, d.deviceName); ok {
			f(r)
		}
	}
}

// decodeRefusal reads a sample; ok is false if it is too short to be one.
func decodeRefusal(sample []byte, names []name, deviceName func(uint32) string) (api.Refusal, bool) {
	var r refusal
	if _, err := binary.Decode(sample, binary.NativeEndian, &r); err != nil {
		return api.Refusal{}, false
	}
	out := api.Refusal{
		SchemaVersion: api.SchemaVersion,
		Time:          sinceBoot(r.Time),
		Path:          model.PathSocket.String(),
		PID:           r.PID,
		Command:       unix.ByteSliceToString(r.Command[:]),
		NetNS:         r.NetNS,
		Host:          r.Host != 0,
		Address:       r.Address.addr().String(),
		Port:          r.Port.uint16(),
		Protocol:      protocolName(r.Protocol),
		Action:        model.ActionReject.String(),
		Reason:        reasonText(r.Reason),
	}
	if r.Device != 0 {
		out.Path, out.Device = model.PathPacket.String(), deviceName(r.Device)
		out.From = netip.AddrPortFrom(r.Source.addr(), r.SrcPort.uint16()).String()
	}
	if r.Dropped != 0 {
		out.Action = model.ActionDrop.String()
	}
	if int(r.Set) < len(names) {
		n := names[r.Set]
		if k, ok := n.key(); ok && n.Owner == r.Owner {
			out.Service, out.PortName = k.Service.String(), k.PortName
		}
	}
	return out, true
}

// deviceName names a device that the programs are on.
func (d *Datapath) deviceName(index uint32) string {
	d.wire.mu.Lock()
	defer d.wire.mu.Unlock()
	for _, dev := range d.wire.devices {
		if uint32(dev.Index) == index {
			return dev.Name
		}
	}
	return fmt.Sprintf("device %d", index)
}

// sinceBoot turns nanoseconds of CLOCK_MONOTONIC into a time of day.
func sinceBoot(ns uint64) time.Time {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Now().UTC()
	}
	return time.Now().Add(time.Duration(ns) - time.Duration(now.Nano())).UTC()
}

// Refusals reads the counters of refused connections, most first.
func (r *Reader) Refusals() ([]api.RefusalCount, error) {
	owners := map[frontendKey]string{}
	err := readFrontends(r.maps.maps[mapFrontends], func(k frontendKey, f frontend) {
		if int(f.Set) < len(r.maps.names) {
			n := r.maps.names[f.Set]
			if key, ok := n.key(); ok {
				owners[k] = key.Service.String()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	counts := []api.RefusalCount{}
	var k refusalKey
	var n uint64
	entries := r.maps.maps[mapRefused].Iterate()
	for entries.Next(&k, &n) {
		counts = append(counts, api.RefusalCount{
			Address: k.Address.addr().String(), Port: k.Port.uint16(), Protocol: protocolName(k.Protocol),
			Service: ownerOf(owners, k), Reason: reasonText(k.Reason), Count: n,
		})
	}
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("read the refusal counters: %w", err)
	}
	slices.SortFunc(counts, func(a, b api.RefusalCount) int { return int(b.Count) - int(a.Count) })
	return counts, nil
}

// ownerOf names the Service whose frontend was dialled: that of the address
// itself, or else of the NodePort, as the programs look them up.
func ownerOf(owners map[frontendKey]string, k refusalKey) string {
	key := frontendKey{Address: k.Address, Port: k.Port, Protocol: k.Protocol, Scope: scopeInternal}
	if service, ok := owners[key]; ok {
		return service
	}
	key.Address = addressOf(model.FamilyOf(k.Address.addr()).Unspecified())
	return owners[key]
}
