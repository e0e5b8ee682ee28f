// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

const nodePort = 30080

// family is the node, and its backends, as one IP family knows them.
type family struct {
	model.Family
	client, node, uplink, local, remote netip.Addr
}

var families = []family{
	{model.IPv4, addr("192.0.2.9"), addr("192.0.2.1"), addr("198.51.100.1"), addr("10.0.1.7"), addr("10.0.2.7")},
	{model.IPv6, addr("2001:db8::9"), addr("2001:db8::1"), addr("2001:db8:1::1"), addr("fd00:1::7"), addr("fd00:2::7")},
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// wire is a client, a node with a pod, and another machine with a pod, all
// cabled to the node.
type wire struct {
	client, node, pod, other *lab.NetNS

	flows int // opened by datagrams so far
}

func newWire(b *testing.B) *wire {
	w := &wire{client: lab.NewNetNS(b, "client"), node: lab.NewNetNS(b, "node"), other: lab.NewNetNS(b, "other")}
	lab.Veth(b, lab.End{NetNS: w.client, Link: "eth0", Addrs: []string{"192.0.2.9/24", "2001:db8::9/64"}},
		lab.End{NetNS: w.node, Link: "eth0", Addrs: []string{"192.0.2.1/24", "2001:db8::1/64"}})
	lab.Veth(b, lab.End{NetNS: w.other, Link: "eth0", Addrs: []string{"198.51.100.2/24", "2001:db8:1::2/64"}},
		lab.End{NetNS: w.node, Link: "eth1", Addrs: []string{"198.51.100.1/24", "2001:db8:1::1/64"}})
	w.pod = w.node.Pod(b, "pod", families[0].local, families[1].local)
	for i, f := range families {
		bits := f.remote.BitLen()
		next := []string{"198.51.100.2", "2001:db8:1::2"}[i]
		w.other.Addr(b, "lo", netip.PrefixFrom(f.remote, bits).String())
		w.node.Route(b, netip.PrefixFrom(f.remote, bits), addr(next), "eth1")
		// The way past the Service, to compare with.
		for _, to := range []netip.Addr{f.remote, f.local} {
			w.client.Route(b, netip.PrefixFrom(to, bits), f.node, "eth0")
		}
		everything := netip.PrefixFrom(f.client, bits)
		w.other.Route(b, everything, f.uplink, "eth0")
	}
	w.node.Forward(b)
	return w
}

// serveWire puts a NodePort of each family and protocol, with one backend, on
// the node's devices.
func (w *wire) serve(b *testing.B, local bool) {
	d, err := datapath.Open(datapath.Config{
		PinPath: filepath.Join(lab.NewBPFFS(b), "fairlead"), SocketMode: datapath.SocketOff, Sizes: datapath.DefaultSizes(),
		Wire: datapath.Wire{On: true, SNATPorts: datapath.Ports{First: 1024, Last: 65535}},
	}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.node.Do(func() { d.Close() }) })
	own := []netip.Addr{}
	for _, f := range families {
		own = append(own, f.node, f.uplink)
		to := f.remote
		if local {
			to = f.local
		}
		for _, p := range []model.Protocol{model.TCP, model.UDP} {
			w.frontend(b, d, f, p, to)
		}
	}
	if err := d.SetNodeAddresses(own, own); err != nil {
		b.Fatal(err)
	}
	w.node.Do(func() {
		if err := d.Attach(); err != nil {
			b.Error(err)
		}
		for _, err := range d.SetDevices([]datapath.Device{
			{Name: "eth0", Index: index(b, "eth0"), Source4: families[0].node, Source6: families[1].node},
			{Name: "eth1", Index: index(b, "eth1"), Source4: families[0].uplink, Source6: families[1].uplink},
		}) {
			if err != nil {
				b.Error(err)
			}
		}
	})
}

func index(b *testing.B, name string) int {
	i, err := net.InterfaceByName(name)
	if err != nil {
		b.Fatal(err)
	}
	return i.Index
}

func (w *wire) frontend(b *testing.B, d *datapath.Datapath, f family, p model.Protocol, to netip.Addr) {
	set := model.Set{
		Key:      model.SetKey{Service: model.Name{Namespace: "shop", Name: "web"}, Protocol: p, Family: f.Family, Role: model.RoleInternal},
		Backends: []model.Backend{{AddrPort: netip.AddrPortFrom(to, backend.Port())}},
	}
	id, err := d.CreateSet(set.Key, d.NewOwner())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := d.Publish(id, &set); err != nil {
		b.Fatal(err)
	}
	key := model.FrontendKey{Address: f.Unspecified(), Port: nodePort, Protocol: p}
	if errs := d.InsertFrontends([]datapath.Frontend{{Key: key, Set: id}}); errs != nil {
		b.Fatal(errs)
	}
}

// Clock: the kernel's own run-time statistics of the programs, under real
// traffic; they include one reading of the clock per program. An established
// flow is a TCP connection with some segments under way both ways; "alone" is
// one that asks and answers in turn, so that everything has left the caches
// between two packets. New flows are datagrams of a client that uses a port
// once, and whom nobody answers. What both programs of a packet take is added
// up: for a local backend one, for a remote one ingress and, on the device by
// which the packet leaves, egress.
//
// Budget: 250 ns a packet of an established flow, either way; 1 µs for the
// first packet of a flow.
func BenchmarkPacket(b *testing.B) {
	for _, local := range []bool{true, false} {
		for _, f := range families {
			name := fmt.Sprintf("remote/%s", f.Family)
			to := f.remote
			if local {
				name, to = fmt.Sprintf("local/%s", f.Family), f.local
			}
			w := newWire(b)
			w.serve(b, local)
			at := lab.Place{NetNS: w.pod}
			if !local {
				at.NetNS = w.other
			}
			server := at.StartRole(b, "echo", netip.AddrPortFrom(to, backend.Port()).String())
			server.ReadLine()
			target := netip.AddrPortFrom(f.node, nodePort).String()
			b.Run(name+"/established", func(b *testing.B) {
				w.measure(b, local, func() { w.ask(b, target, 64) })
			})
			b.Run(name+"/alone", func(b *testing.B) {
				w.measure(b, local, func() { w.ask(b, target, 1) })
			})
			b.Run(name+"/new", func(b *testing.B) {
				datagrams := w.datagrams(b, f)
				w.measure(b, local, func() { packet.SendOn(b, w.client, "eth0", w.node.MAC(b, "eth0"), datagrams...) })
			})
			server.Kill()
		}
	}
}

// measure says what the programs took for each of the packets that something
// causes.
func (w *wire) measure(b *testing.B, local bool, cause func()) {
	before := w.stats(b)
	cause()
	after := w.stats(b)
	total, packets := time.Duration(0), uint64(0)
	for name, s := range after {
		runs, took := s.RunCount-before[name].RunCount, s.Runtime-before[name].Runtime
		total += took
		if local || name == "ingress" {
			packets += runs
		}
		b.ReportMetric(float64(took)/max(float64(runs), 1), name+"-ns/run")
	}
	b.ReportMetric(float64(total)/max(float64(packets), 1), "ns/packet")
	b.ReportMetric(0, "ns/op")
}

// ask runs a client that has this many questions under way.
func (w *wire) ask(b *testing.B, target string, window int) {
	client := lab.Place{NetNS: w.client}.StartRole(b, "ask", target, strconv.Itoa(b.N), strconv.Itoa(window))
	if err := client.Wait(); err != nil {
		b.Fatalf("%v: %s", err, client.Stderr())
	}
}

// clientPorts is how many ports one client uses.
const clientPorts = 50000

// datagrams are the first ones of as many flows, none of which was there before,
// of one client after the other.
func (w *wire) datagrams(b *testing.B, f family) []packet.Packet {
	list := make([]packet.Packet, b.N)
	for i := range list {
		client := f.client
		for range w.flows / clientPorts {
			client = client.Next()
		}
		list[i] = packet.Packet{
			Source: netip.AddrPortFrom(client, uint16(1024+w.flows%clientPorts)), Target: netip.AddrPortFrom(f.node, nodePort),
			Protocol: uint8(model.UDP), TTL: 64, Payload: []byte{0},
		}
		w.flows++
	}
	return list
}

// stats are those of the programs on the node's devices.
func (w *wire) stats(b *testing.B) map[string]ebpf.ProgramStats {
	enabled, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { enabled.Close() })
	stats := map[string]ebpf.ProgramStats{}
	w.node.Do(func() {
		for name, attach := range map[string]ebpf.AttachType{"ingress": ebpf.AttachTCXIngress, "egress": ebpf.AttachTCXEgress} {
			on, err := link.QueryPrograms(link.QueryOptions{Target: index(b, "eth0"), Attach: attach})
			if err != nil || len(on.Programs) != 1 {
				b.Errorf("the %s programs of eth0 are %v: %v", name, on, err)
				continue
			}
			p, err := ebpf.NewProgramFromID(on.Programs[0].ID)
			if err != nil {
				b.Error(err)
				continue
			}
			s, err := p.Stats()
			p.Close()
			if err != nil {
				b.Error(err)
				continue
			}
			stats[name] = *s
		}
	})
	return stats
}

// echoRole answers each byte with one, and takes datagrams in silence.
func echoRole(args []string) error {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	datagrams, err := net.ListenPacket("udp", args[0])
	if err != nil {
		return err
	}
	defer datagrams.Close()
	fmt.Println("ready")
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go io.Copy(conn, conn)
	}
}

// askRole sends bytes that come back, this many in all and so many of them under
// way, each in a segment of its own.
func askRole(args []string) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	window, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	b := make([]byte, window)
	for under, asked, answered := 0, 0, 0; answered < count; {
		for ; under < window && asked < count; under++ {
			if _, err := conn.Write(b[:1]); err != nil {
				return err
			}
			asked++
		}
		n, err := conn.Read(b)
		if err != nil {
			return err
		}
		under, answered = under-n, answered+n
	}
	return nil
}
