// SPDX-License-Identifier: Apache-2.0

// Package model holds the semantics of Kubernetes Services as pure functions
// of plain values.
//
// Compile turns one Service, its own EndpointSlices and the Node into claims
// and backend sets. Resolve decides who holds a frontend address that several
// Services claim. Trace says what a connection would meet. None of them reads
// a clock, a file, a socket or a map in iteration order; none of them sees a
// second Service, but for Resolve, which sees only the claims on one address.
//
// The package knows neither the Kubernetes client nor the kernel. What reads
// the API converts to these types; what writes the kernel reads them.
package model

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"time"
)

// Name identifies a namespaced object. Slice and Service names repeat across
// namespaces, so nothing is ever keyed by the bare name.
type Name struct {
	Namespace string
	Name      string
}

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then name.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Protocol is the IANA number of a transport protocol.
type Protocol uint8

// The protocols a Service port may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol reads a protocol's name as the API writes it; "" is TCP.
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "TCP", "":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is none of TCP, UDP, SCTP", s)
}

// Family is an IP family; the families of a Service never mix (R26).
type Family uint8

// The IP families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// FamilyOf returns the family of a valid, unmapped address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Unspecified returns the family's address of all zeros, which stands for every
// address of the node: in the rows of NodePorts, and where a socket listens.
func (f Family) Unspecified() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// TrafficPolicy says which endpoints a kind of traffic may use.
type TrafficPolicy uint8

// PolicyCluster is the zero value, as in the API.
const (
	PolicyCluster TrafficPolicy = iota
	PolicyLocal
)

// ServiceType is the type of a Service that gets frontends.
type ServiceType uint8

// The Service types; a Service of type ExternalName never has frontends (R2).
const (
	ServiceClusterIP ServiceType = iota
	ServiceNodePort
	ServiceLoadBalancer
	ServiceExternalName
)

func (t ServiceType) String() string {
	return [...]string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}[t]
}

// ServicePort is one port of a Service.
type ServicePort struct {
	Name     string // "" for the only port of a Service
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 = none (R25)
}

// LoadBalancerIngress is one address of status.loadBalancer.
type LoadBalancerIngress struct {
	Address netip.Addr
	Proxy   bool // ipMode Proxy: not programmed (R21)
}

// Service holds what the proxy needs of a corev1.Service. Addresses are
// unmapped and valid; a Service that could not be read this way never gets
// this far. Values are shared between goroutines and must not be modified.
type Service struct {
	Name
	ResourceVersion   string
	CreationTimestamp time.Time

	ProxyName           string // label service.kubernetes.io/service-proxy-name (R1)
	HasProxyName        bool   // the label is present, whatever its value
	Headless            bool   // label service.kubernetes.io/headless is present (R2)
	Type                ServiceType
	ClusterIPs          []netip.Addr // empty for headless (R2)
	ExternalIPs         []netip.Addr
	LoadBalancerIngress []LoadBalancerIngress
	SourceRanges        []netip.Prefix // as written, trimmed, masked (R22)
	Ports               []ServicePort

	InternalTrafficPolicy TrafficPolicy
	ExternalTrafficPolicy TrafficPolicy
	HealthCheckNodePort   uint16 // 0 = none (R29)
	// AffinitySeconds is 0 for sessionAffinity None.
	AffinitySeconds uint32
	Selection       Selection // annotation fairlead.io/selection
	HasSelection    bool      // the annotation says one; else it is as Options have it
}

// Endpoint is one endpoint of a slice with its conditions defaulted (R6).
type Endpoint struct {
	Addresses   []netip.Addr
	NodeName    string // "" = not local to any node (R42)
	Zone        string
	Ready       bool
	Serving     bool
	Terminating bool
	ZoneHints   []string
	NodeHints   []string
}

// EndpointPort is one port of a slice. A slice port without a number is
// dropped on conversion, as kube-proxy does.
type EndpointPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// EndpointSlice holds what the proxy needs of a discoveryv1.EndpointSlice.
// Slices of addressType FQDN and slices labelled headless never get this far.
type EndpointSlice struct {
	Name
	ResourceVersion string
	Service         string // label kubernetes.io/service-name, in the slice's namespace (R3)
	Family          Family
	Endpoints       []Endpoint
	Ports           []EndpointPort
	// Triggered is when the change of a pod or Service happened that led to
	// this version; zero if unknown (R32).
	Triggered time.Time
}

// ServiceName is the Service the slice belongs to.
func (s *EndpointSlice) ServiceName() Name { return Name{s.Namespace, s.Service} }

// Node is what semantics need to know of the node the agent runs on.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone
	// Addresses are unmapped, loopback left out; the first of a family is the
	// node's primary address of that family.
	Addresses []netip.Addr
	// Listening are the addresses and ports on which the node itself listens.
	// An unspecified address stands for every address of the node. Claims on
	// them are refused (design: the class of CVE-2020-8554).
	Listening []Listener
}

// Listener is a socket of the node that accepts connections or datagrams.
type Listener struct {
	AddrPort netip.AddrPort
	Protocol Protocol
}

// DefaultProxyName is the value of the proxy-name label that means this proxy (R1).
const DefaultProxyName = "fairlead"

// Options are the operator's choices that semantics depend on.
type Options struct {
	ProxyName              string // own value of the proxy-name label; "" is DefaultProxyName
	DisableExternalIPs     bool   // R23
	AllowNodeAddressClaims bool   // a VIP may take a port on which the node listens
	Selection              Selection
}

// Scope tells traffic from inside (this node and its pods) from traffic that
// arrives on the wire. It follows from a Service's spec alone.
type Scope uint8

// Rows of scope All serve both; Internal and External come in pairs.
const (
	ScopeAll Scope = iota
	ScopeInternal
	ScopeExternal
)

func (s Scope) String() string { return [...]string{"all", "internal", "external"}[s] }

// FrontendType says which field of a Service gave a frontend its address.
type FrontendType uint8

// The frontend types, in order of precedence within one Service.
const (
	TypeClusterIP FrontendType = iota
	TypeLoadBalancer
	TypeExternalIP
	TypeNodePort
)

func (t FrontendType) String() string {
	return [...]string{"ClusterIP", "LoadBalancer", "ExternalIP", "NodePort"}[t]
}

// Action is what happens to a new connection to a frontend.
type Action uint8

// The actions of the output contract.
const (
	ActionForward     Action = iota
	ActionReject             // RST, ICMP port unreachable, ECONNREFUSED (R13)
	ActionDrop               // silence on the wire, EHOSTUNREACH at a socket (R10, R11)
	ActionUnsupported        // compiled, not served by this datapath (R28)
	ActionShadowed           // another claim holds the key (R27)
)

func (a Action) String() string {
	return [...]string{"forward", "reject", "drop", "unsupported", "shadowed"}[a]
}

// BackendState says why a backend may take, or may keep, connections.
type BackendState uint8

// The backend states of the output contract.
const (
	StateActive BackendState = iota
	StateTerminating
	StateRetained
	StateUnverified
)

func (s BackendState) String() string {
	return [...]string{"active", "terminating", "retained", "unverified"}[s]
}

// Backend is one address that stands behind a frontend.
type Backend struct {
	AddrPort netip.AddrPort
	State    BackendState
	Local    bool // on this node, by nodeName (R42)
	Node     string
	Slices   []Name // every slice that holds it, sorted
}

// Role separates the backend sets of one Service port and family. A frontend
// keeps its role, and so its set, for life: a change of policy changes what is
// in a set, never which set a frontend points to.
type Role uint8

// Traffic to a VIP has sets of its own because source ranges hold there only
// (R22); external addresses have two where the policies differ (R12, R14).
const (
	RoleClusterIP   Role = iota // internalTrafficPolicy
	RoleExternal                // NodePort and externalIP from outside, when scopes differ
	RoleInternal                // NodePort and externalIP: scope all or internal
	RoleVIPExternal             // VIP from outside, when scopes differ
	RoleVIPInternal             // VIP: scope all or internal
)

func (r Role) String() string {
	return [...]string{"cluster-ip", "external", "internal", "vip-external", "vip-internal"}[r]
}

// ParseRole reads a role as it writes itself.
func ParseRole(text string) (Role, bool) {
	for r := RoleClusterIP; r <= RoleVIPInternal; r++ {
		if text == r.String() {
			return r, true
		}
	}
	return 0, false
}

// SetKey names a backend set for as long as the Service port exists.
type SetKey struct {
	Service  Name
	PortName string
	Protocol Protocol
	Family   Family
	Role     Role
}

func (k SetKey) String() string {
	return fmt.Sprintf("%s:%s/%s/%s/%s", k.Service, k.PortName, k.Protocol, k.Family, k.Role)
}

// Compare orders set keys by Service, port name, protocol, family, role.
func (k SetKey) Compare(o SetKey) int {
	return cmp.Or(
		k.Service.Compare(o.Service),
		cmp.Compare(k.PortName, o.PortName),
		cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.Family, o.Family),
		cmp.Compare(k.Role, o.Role))
}

// Set is a backend set: all that decides about a new connection to any
// frontend that points to it. Backends and Draining are each sorted by address
// bytes and port, without repeats, and disjoint.
type Set struct {
	Key      SetKey
	Action   Action // ActionForward iff len(Backends) > 0, or ActionUnsupported for SCTP
	Reason   string // why, in words, unless Action is ActionForward
	Backends []Backend
	Draining []Backend
	// AffinitySeconds is 0 without session affinity.
	AffinitySeconds uint32
	Selection       Selection
	// SourceRanges are those of the set's own family; empty means open to all.
	SourceRanges []netip.Prefix
}

// FrontendKey is an address a client can dial, for one kind of traffic.
// NodePorts have the unspecified address of their family.
type FrontendKey struct {
	Address  netip.Addr
	Port     uint16
	Protocol Protocol
	Scope    Scope
}

func (k FrontendKey) String() string { return k.Spot().String() }

// CompareAddr orders addresses as bytes.Compare orders what AsSlice returns,
// without the allocation: 0.0.0.0 comes before ::, and :: before 10.0.0.1.
func CompareAddr(a, b netip.Addr) int {
	if a.BitLen() == b.BitLen() || !a.IsValid() || !b.IsValid() {
		return a.Compare(b)
	}
	if a.Is4() {
		a4, b16 := a.As4(), b.As16()
		return bytes.Compare(a4[:], b16[:])
	}
	return -CompareAddr(b, a)
}

// CompareAddrPort orders by address bytes, then port.
func CompareAddrPort(a, b netip.AddrPort) int {
	return cmp.Or(CompareAddr(a.Addr(), b.Addr()), cmp.Compare(a.Port(), b.Port()))
}

// Compare orders keys by address bytes, port, protocol number, scope.
func (k FrontendKey) Compare(o FrontendKey) int {
	return cmp.Or(k.Spot().Compare(o.Spot()), cmp.Compare(k.Scope, o.Scope))
}

// Spot is what claims compete for: one address, port and protocol, both
// scopes together. Precedence does not depend on the scope, so one Service
// holds all of a spot.
type Spot struct {
	Address  netip.Addr
	Port     uint16
	Protocol Protocol
}

// Compare orders spots by address bytes, port, protocol number.
func (s Spot) Compare(o Spot) int {
	return cmp.Or(
		CompareAddr(s.Address, o.Address),
		cmp.Compare(s.Port, o.Port),
		cmp.Compare(s.Protocol, o.Protocol))
}

func (s Spot) String() string {
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(s.Address, s.Port), s.Protocol)
}

// Spot returns the spot the key lies on.
func (k FrontendKey) Spot() Spot { return Spot{k.Address, k.Port, k.Protocol} }

// Claim is one frontend that a Service wants. Set indexes Compiled.Sets.
type Claim struct {
	Key      FrontendKey
	Type     FrontendType
	PortName string
	Set      int
	// Shadowed, if not empty, says who holds the key instead of this claim, in
	// words that follow "held by". Compile fills it for claims that the
	// Service itself or the node shadows, Resolve for those that another
	// Service shadows.
	Shadowed string
}

// Compiled is the whole of what one Service asks of the proxy. It is a value:
// two Compiled are Equal iff the proxy would do the same for both.
type Compiled struct {
	Sets   []Set   // sorted by SetKey fields: PortName, Protocol, Family, Role
	Claims []Claim // sorted by FrontendKey, then Type, then PortName
}
