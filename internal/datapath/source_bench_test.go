// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
)

// BenchmarkSourceCheck measures what a program on each packet costs where there
// are source ranges, by the kernel's run-time statistics under real datagrams;
// the clock of these, about 20 ns, is in the numbers.
//
// Budget: 60 ns for a socket that never talked to a Service and for one that
// was checked, 250 ns for a packet that is checked.
func BenchmarkSourceCheck(b *testing.B) {
	dialled, backend := netip.MustParseAddrPort("198.51.100.1:80"), netip.MustParseAddrPort("10.0.0.1:8080")
	for _, c := range []struct {
		name   string
		to     netip.AddrPort
		anew   bool // each datagram dials
		budget float64
	}{
		{"no-peer", backend, false, 60},
		{"checked-peer", dialled, false, 60},
		{"each-checked", dialled, true, 250},
	} {
		b.Run(c.name, func(b *testing.B) {
			node, cgroup := lab.NewNetNS(b, "node"), lab.NewCgroup(b)
			node.Addr(b, "lo", backend.Addr().String()+"/32")
			sink := listenSink(b, node, backend)
			defer sink.Close()
			r := newRig(b, smallSizes())
			r.cfg.Cgroup, r.cfg.SocketMode, r.cfg.HostNetNS = cgroup.Path(), SocketAll, 1 // the node's namespace counts as a pod's
			r.reopen()
			k := vip("web")
			k.Protocol = model.UDP
			id := r.create(k)
			r.publish(id, withRanges(forward(k, backend.String()), "10.0.0.0/8"))
			r.insert(Frontend{Key: model.FrontendKey{Address: dialled.Addr(), Port: dialled.Port(), Protocol: model.UDP}, Set: id})
			r.attach()
			program, err := ebpf.NewProgramFromID(ebpf.ProgramID(r.sourceCheck.Load()))
			if err != nil {
				b.Fatal(err)
			}
			defer program.Close()
			enabled, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			if err != nil {
				b.Fatal(err)
			}
			defer enabled.Close()
			mode := "connected"
			if c.anew {
				mode = "unconnected"
			}
			process := lab.Place{NetNS: node, Cgroup: cgroup}.StartRole(b, "flood", c.to.String(), mode)
			process.ReadLine() // warm
			before, err := program.Stats()
			if err != nil {
				b.Fatal(err)
			}
			process.WriteLine("go")
			if err := process.Wait(); err != nil {
				b.Fatalf("%v: %s", err, process.Stderr())
			}
			after, err := program.Stats()
			if err != nil {
				b.Fatal(err)
			}
			runs := after.RunCount - before.RunCount
			if runs < floodDatagrams {
				b.Fatalf("the program saw %d of %d datagrams", runs, floodDatagrams)
			}
			each := float64((after.Runtime - before.Runtime).Nanoseconds()) / float64(runs)
			b.ReportMetric(each, "ns/packet")
			b.ReportMetric(c.budget, "budget-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// listenSink is a socket that nobody reads: what does not fit is dropped.
func listenSink(b *testing.B, ns *lab.NetNS, at netip.AddrPort) (sink net.PacketConn) {
	b.Helper()
	var err error
	ns.Do(func() { sink, err = net.ListenPacket("udp", at.String()) })
	if err != nil {
		b.Fatal(err)
	}
	return sink
}

const floodDatagrams = 500000

// floodRole sends datagrams to an address, some before it is told to go on.
func floodRole(args []string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	to := sockaddr(args[0])
	if args[1] == "connected" {
		if err := unix.Connect(fd, to); err != nil {
			return err
		}
	}
	send := func(n int) error {
		payload := []byte("x")
		for range n {
			if args[1] == "connected" {
				_, err = unix.Write(fd, payload)
			} else {
				err = unix.Sendto(fd, payload, 0, to)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(1000); err != nil {
		return err
	}
	fmt.Println("warm")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	return send(floodDatagrams)
}
