// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/test/lab"
	"github.com/fairlead-io/fairlead/test/lab/packet"
)

// family holds the addresses of one family that a node of the tests knows.
type family struct {
	name       string
	client     netip.Addr // beyond the gateway of eth0
	gateway    netip.Addr
	node       netip.Addr // of eth0, the primary one
	second     netip.Addr // of eth1, whose MTU is small
	router     netip.Addr // behind eth1, to the pods of other nodes
	pod        netip.Addr // of this node
	remote     netip.Addr // a pod of another node
	vip        netip.Addr
	clusterIP  netip.Addr
	everything netip.Prefix
	pods       netip.Prefix // of the other node
}

var ipv4 = family{
	name:       "IPv4",
	client:     netip.MustParseAddr("198.51.100.7"),
	gateway:    netip.MustParseAddr("192.0.2.1"),
	node:       netip.MustParseAddr("192.0.2.10"),
	second:     netip.MustParseAddr("172.16.0.10"),
	router:     netip.MustParseAddr("172.16.0.20"),
	pod:        netip.MustParseAddr("10.0.1.5"),
	remote:     netip.MustParseAddr("10.0.2.5"),
	vip:        netip.MustParseAddr("203.0.113.1"),
	clusterIP:  netip.MustParseAddr("10.96.0.10"),
	everything: netip.MustParsePrefix("0.0.0.0/0"),
	pods:       netip.MustParsePrefix("10.0.2.0/24"),
}

var ipv6 = family{
	name:       "IPv6",
	client:     netip.MustParseAddr("2001:db8:c::7"),
	gateway:    netip.MustParseAddr("2001:db8:1::1"),
	node:       netip.MustParseAddr("2001:db8:1::10"),
	second:     netip.MustParseAddr("fd00:16::10"),
	router:     netip.MustParseAddr("fd00:16::20"),
	pod:        netip.MustParseAddr("fd00:1::5"),
	remote:     netip.MustParseAddr("fd00:2::5"),
	vip:        netip.MustParseAddr("2001:db8:f::1"),
	clusterIP:  netip.MustParseAddr("fd00:96::10"),
	everything: netip.MustParsePrefix("::/0"),
	pods:       netip.MustParsePrefix("fd00:2::/64"),
}

var families = []family{ipv4, ipv6}

func (f family) unspecified() netip.Addr { return model.FamilyOf(f.client).Unspecified() }

// The machines that the node meets on its devices.
var (
	gatewayMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	routerMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	podMAC     = net.HardwareAddr{2, 0, 0, 0, 0, 3}
)

// smallMTU is that of eth1.
const smallMTU = 1400

// wireDevice is a device of the node, as packets meet it.
type wireDevice struct {
	index     uint32
	mac       net.HardwareAddr
	neighbour net.HardwareAddr // on whose behalf packets come
	inside    bool
}

// node is a machine through whose programs packets are run. It has eth0 and
// eth1 to the outside, and a pod of its own.
type node struct {
	*rig
	ns, outside     *lab.NetNS
	eth0, eth1, pod wireDevice
	jobs            chan func() // run in the node's namespace
	sets            int
}

func newNode(t testing.TB) *node { return newNodeWith(t, Config{}) }

func newNodeWith(t testing.TB, cfg Config) *node {
	t.Helper()
	cfg.Sizes = Sizes{Frontends: 256, Sets: 64, Backends: 1 << 16, Affinity: 1024, Flows: 4096, UDP: 64, Ranges: 64}
	cfg.Wire.On = true
	cfg.Wire.SNATPorts = cmp.Or(cfg.Wire.SNATPorts, Ports{61000, 65535})
	n := &node{rig: newRigWith(t, cfg), ns: lab.NewNetNS(t, "node"), jobs: make(chan func())}
	n.attach()
	go n.ns.Do(func() {
		for job := range n.jobs {
			job()
		}
	})
	t.Cleanup(func() { close(n.jobs) })
	n.connect()
	n.tell()
	return n
}

// connect gives the node its devices, routes and neighbours.
func (n *node) connect() {
	n.outside = lab.NewNetNS(n.t, "outside")
	within := func(a netip.Addr) string { return netip.PrefixFrom(a, network(a).Bits()).String() }
	lab.Veth(n.t, lab.End{NetNS: n.ns, Link: "eth0", Addrs: []string{within(ipv4.node), within(ipv6.node)}},
		lab.End{NetNS: n.outside, Link: "eth0"})
	lab.Veth(n.t, lab.End{NetNS: n.ns, Link: "eth1", Addrs: []string{within(ipv4.second), within(ipv6.second)}},
		lab.End{NetNS: n.outside, Link: "eth1"})
	n.ns.Pod(n.t, "pod", ipv4.pod, ipv6.pod)
	n.ns.MTU(n.t, "eth1", smallMTU)
	n.eth0, n.eth1, n.pod = n.device("eth0", gatewayMAC), n.device("eth1", routerMAC), n.device("pod", podMAC)
	n.pod.inside = true
	for _, f := range families {
		n.ns.Route(n.t, f.everything, f.gateway, "eth0")
		n.ns.Route(n.t, f.pods, f.router, "eth1")
		n.ns.Route(n.t, network(f.pod), netip.Addr{}, "pod")
		n.neighbour(n.eth0, f.gateway)
		n.neighbour(n.eth1, f.router)
		n.neighbour(n.pod, f.pod)
	}
}

// network is the one that an address lies in.
func network(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()*3/4).Masked() }

// devices are those that face other machines, as the agent names them.
func (n *node) devices() []Device {
	return []Device{
		{Name: "eth0", Index: int(n.eth0.index), Source4: ipv4.node, Source6: ipv6.node},
		{Name: "eth1", Index: int(n.eth1.index), Source4: ipv4.second, Source6: ipv6.second},
	}
}

// tell fills the maps with what the agent knows of the node.
func (n *node) tell() {
	own := []netip.Addr{ipv4.node, ipv6.node, ipv4.second, ipv6.second}
	if err := n.SetNodeAddresses(own, []netip.Addr{ipv4.node, ipv6.node}); err != nil {
		n.t.Fatal(err)
	}
	for _, dev := range n.devices() {
		if _, err := n.putSource(dev); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) device(name string, neighbour net.HardwareAddr) wireDevice {
	n.t.Helper()
	var d wireDevice
	n.do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		d = wireDevice{index: uint32(link.Attrs().Index), mac: link.Attrs().HardwareAddr, neighbour: neighbour}
		return nil
	})
	return d
}

func (n *node) neighbour(d wireDevice, address netip.Addr) {
	n.t.Helper()
	n.do(func() error {
		return netlink.NeighSet(&netlink.Neigh{
			LinkIndex: int(d.index), State: netlink.NUD_PERMANENT, IP: address.AsSlice(), HardwareAddr: d.neighbour,
		})
	})
}

// do runs a job in the node's namespace.
func (n *node) do(job func() error) {
	n.t.Helper()
	failed := make(chan error)
	n.jobs <- func() { failed <- job() }
	if err := <-failed; err != nil {
		n.t.Fatal(err)
	}
}

// What a program may say of a packet.
const (
	verdictNext     = -1
	verdictDrop     = 2
	verdictRedirect = 7
)

// skBuff is the part of struct __sk_buff of the kernel that a test may set.
type skBuff struct {
	_              [36]byte
	IngressIfindex uint32
	Ifindex        uint32
	_              [132]byte
	GSOSize        uint32
	_              [12]byte
}

// meeting is how a packet meets a program.
type meeting struct {
	program string // of wire.c
	device  wireDevice
	gso     uint32
}

// outcome is what became of a frame.
type outcome struct {
	meeting
	t       testing.TB
	verdict int
	before  []byte
	frame   []byte
}

const ethernetLength = 14

// frame puts a packet behind the header of the neighbour's device.
func (d wireDevice) frame(to net.HardwareAddr, ip []byte) []byte {
	kind := uint16(0x0800)
	if len(ip) > 0 && ip[0]>>4 == 6 {
		kind = 0x86dd
	}
	return slices.Concat(to, d.neighbour, binary.BigEndian.AppendUint16(nil, kind), ip)
}

// pass runs a frame through a program.
func (n *node) pass(p meeting, frame []byte) outcome {
	n.t.Helper()
	programs, err := n.wirePrograms(p.device.inside)
	if err != nil {
		n.t.Fatal(err)
	}
	o := outcome{meeting: p, t: n.t, before: frame}
	run := ebpf.RunOptions{
		Data: frame, DataOut: make([]byte, len(frame)+512),
		Context: skBuff{IngressIfindex: p.device.index, Ifindex: p.device.index, GSOSize: p.gso},
	}
	n.do(func() error {
		verdict, err := programs.Programs[p.program].Run(&run)
		o.verdict, o.frame = int(int32(verdict)), run.DataOut
		return err
	})
	return o
}

// in lets a packet arrive at a device, and out lets it leave by eth0.
func (n *node) in(d wireDevice, ip []byte) outcome {
	n.t.Helper()
	return n.pass(meeting{program: "fairlead_ingress", device: d}, d.frame(d.mac, ip))
}

func (n *node) out(ip []byte) outcome {
	n.t.Helper()
	return n.outBy(n.eth0, ip)
}

func (n *node) outBy(d wireDevice, ip []byte) outcome {
	n.t.Helper()
	return n.pass(meeting{program: "fairlead_egress", device: d}, d.frame(d.mac, ip))
}

// untouched expects that the packet goes on as it came.
func (o outcome) untouched() {
	o.t.Helper()
	if o.verdict != verdictNext || !bytes.Equal(o.before, o.frame) {
		o.t.Errorf("verdict %d for %s, want it untouched as %s", o.verdict, show(o.frame), show(o.before))
	}
}

// becomes expects that the packet goes on through the stack as another one.
func (o outcome) becomes(want []byte) {
	o.t.Helper()
	o.is(verdictNext, slices.Concat(o.before[:ethernetLength], want))
}

// leaves expects that the packet leaves past the stack. Which device that is,
// and whose address on the link, the kernel does after the program.
func (o outcome) leaves(want []byte) {
	o.t.Helper()
	o.is(verdictRedirect, slices.Concat(o.before[:ethernetLength], want))
}

// isAnswer says that a packet goes back to where the one before came from.
func (o outcome) isAnswer() bool {
	return o.verdict == verdictRedirect && bytes.Equal(o.frame[:6], o.before[6:12])
}

// answered expects a packet back to where the one before came from.
func (o outcome) answered(want []byte) {
	o.t.Helper()
	o.is(verdictRedirect, slices.Concat(o.before[6:12], o.before[:6], o.before[12:ethernetLength], want))
}

func (o outcome) dropped() {
	o.t.Helper()
	if o.verdict != verdictDrop {
		o.t.Errorf("verdict %d for %s, want a drop", o.verdict, show(o.before))
	}
}

func (o outcome) is(verdict int, want []byte) {
	o.t.Helper()
	if o.verdict != verdict || !bytes.Equal(o.frame, want) {
		o.t.Errorf("%s has verdict %d and is\n%s, want verdict %d and\n%s", show(o.before), o.verdict, show(o.frame), verdict, show(want))
	}
	if p, err := packet.Parse(want[ethernetLength:]); err != nil || p.Checksum == packet.Wrong {
		o.t.Errorf("what is wanted is no right packet: %s, %v", p, err)
	}
}

// packet reads what became of the frame.
func (o outcome) packet() packet.Packet {
	o.t.Helper()
	p, err := packet.Parse(o.frame[ethernetLength:])
	if err != nil {
		o.t.Fatalf("%s became % x: %v", show(o.before), o.frame, err)
	}
	return p
}

// show writes a frame for people.
func show(frame []byte) string {
	p, err := packet.Parse(frame[ethernetLength:])
	if err != nil {
		return fmt.Sprintf("[% x] (%v)", frame, err)
	}
	return fmt.Sprintf("%s → %s %s [% x]", net.HardwareAddr(frame[6:12]), net.HardwareAddr(frame[:6]), p, frame[ethernetLength:])
}

// backendSet is the key of a set of a Service of its own.
func (n *node) backendSet(role model.Role, protocol model.Protocol, f family) model.SetKey {
	n.sets++
	return model.SetKey{
		Service: model.Name{Namespace: "default", Name: fmt.Sprintf("s%d", n.sets)}, PortName: "p",
		Protocol: protocol, Family: model.FamilyOf(f.client), Role: role,
	}
}

// withPort makes backends of addresses.
func withPort(port uint16, addrs ...netip.Addr) []model.Backend {
	backends := []model.Backend{}
	for _, a := range addrs {
		backends = append(backends, model.Backend{AddrPort: netip.AddrPortFrom(a, port)})
	}
	slices.SortFunc(backends, func(a, b model.Backend) int { return a.AddrPort.Compare(b.AddrPort) })
	return backends
}

// serve publishes a set at a frontend for both scopes.
func (n *node) serve(front netip.AddrPort, s *model.Set) SetID {
	n.t.Helper()
	return n.serveIn(model.ScopeAll, front, s)
}

func (n *node) serveIn(scope model.Scope, front netip.AddrPort, s *model.Set) SetID {
	n.t.Helper()
	id := n.create(s.Key)
	n.publish(id, s)
	n.insert(Frontend{Key: model.FrontendKey{Address: front.Addr(), Port: front.Port(), Protocol: s.Key.Protocol, Scope: scope}, Set: id})
	return id
}

// counter is what a counter of the programs says.
func (n *node) counter(which uint32) uint64 {
	n.t.Helper()
	sum, err := sumCounter(n.current.maps[mapCounters], which)
	if err != nil {
		n.t.Fatal(err)
	}
	return sum
}

// flowsIn reads a map of flows.
func (n *node) flowsIn(name string) map[flowKey]flow {
	n.t.Helper()
	flows := map[flowKey]flow{}
	if err := readFlows(n.current.maps[name], func(k flowKey, f flow) { flows[k] = f }); err != nil {
		n.t.Fatal(err)
	}
	return flows
}

// confirmed are the flows of both protocols that are.
func (n *node) confirmed() map[flowKey]flow {
	n.t.Helper()
	flows := n.flowsIn(mapFlows)
	maps.Copy(flows, n.flowsIn(mapDatagrams))
	return flows
}

// confirmedBy names the map of them.
var confirmedBy = map[model.Protocol]string{model.TCP: mapFlows, model.UDP: mapDatagrams}

// expectFlows expects so many elements of each kind.
func (n *node) expectFlows(embryos, confirmed int) {
	n.t.Helper()
	if e, c := len(n.flowsIn(mapEmbryos)), len(n.confirmed()); e != embryos || c != confirmed {
		n.t.Errorf("%d elements of embryos and %d of confirmed flows, want %d and %d", e, c, embryos, confirmed)
	}
}

// age makes all flows as old as if nothing had come for so long.
func (n *node) age(by time.Duration) {
	n.t.Helper()
	for _, name := range []string{mapFlows, mapDatagrams, mapEmbryos} {
		for k, f := range n.flowsIn(name) {
			f.Used -= uint64(by)
			if err := n.current.maps[name].Update(k, f, ebpf.UpdateExist); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// forgetFlows empties the maps that packets have filled.
func (n *node) forgetFlows() {
	n.t.Helper()
	for _, name := range []string{mapFlows, mapDatagrams, mapEmbryos} {
		for k := range n.flowsIn(name) {
			if err := ignoreMissing(n.current.maps[name].Delete(k)); err != nil {
				n.t.Fatal(err)
			}
		}
	}
}

// refusals reads the counters of refusals.
func (n *node) refusals() map[refusalKey]uint64 {
	n.t.Helper()
	refusals := map[refusalKey]uint64{}
	var k refusalKey
	var count uint64
	entries := n.current.maps[mapRefused].Iterate()
	for entries.Next(&k, &count) {
		refusals[k] = count
	}
	if err := entries.Err(); err != nil {
		n.t.Fatal(err)
	}
	return refusals
}

// expectRefused expects one refusal at a frontend, for a reason of select.h.
func (n *node) expectRefused(front netip.AddrPort, protocol model.Protocol, reason uint8) {
	n.t.Helper()
	k := refusalKey{Address: addressOf(front.Addr()), Port: portOf(front.Port()), Protocol: uint8(protocol), Reason: reason}
	if got := n.refusals()[k]; got != 1 {
		n.t.Errorf("%d refusals for %q at %s, want one of %v", got, reasonText(reason), front, n.refusals())
	}
}
