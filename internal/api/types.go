// SPDX-License-Identifier: Apache-2.0

// Package api holds the shapes in which Fairlead answers: the JSON of every
// command, which is also what the agent serves on its socket. These shapes are
// a contract; golden files hold each of them.
//
// Only plain data lives here, and the conversion from the model's values to
// it. Lists are never null. Addresses are strings in RFC 5952 form without
// brackets, times are RFC 3339 in UTC.
package api

import "time"

// SchemaVersion stands in the JSON of every command but `get frontends`,
// `compile` and `trace`, whose shapes are fixed.
const SchemaVersion = 1

// The statuses of a row.
const (
	StatusPending = "Pending"
	StatusDone    = "Done"
	StatusError   = "Error"
)

// Backend is one backend of a frontend row.
type Backend struct {
	Address string   `json:"address"`
	Port    uint16   `json:"port"`
	State   string   `json:"state"` // active | terminating | retained | unverified
	Local   bool     `json:"local"`
	Node    string   `json:"node"`
	Slices  []string `json:"slices"` // namespace/name
}

// Frontend is one row of `get frontends` and `compile`; their JSON is an
// array of these, sorted by address bytes, port, protocol, scope, type,
// service. Backends are exactly those that a new connection may go to.
type Frontend struct {
	Address         string    `json:"address"`
	Port            uint16    `json:"port"`
	Protocol        string    `json:"protocol"` // TCP | UDP | SCTP
	Scope           string    `json:"scope"`    // all | internal | external
	Type            string    `json:"type"`     // ClusterIP | NodePort | LoadBalancer | ExternalIP
	Service         string    `json:"service"`  // namespace/name
	PortName        string    `json:"portName"`
	Action          string    `json:"action"` // forward | reject | drop | unsupported | shadowed
	Reason          string    `json:"reason"`
	AffinitySeconds uint32    `json:"affinitySeconds"`
	SourceRanges    []string  `json:"sourceRanges"`
	Backends        []Backend `json:"backends"`
	Draining        []Backend `json:"draining"`
	// Status, Error and Since come from an agent only; `compile` leaves them out.
	Status string     `json:"status,omitempty"` // Pending | Done | Error
	Error  *string    `json:"error,omitempty"`  // "" unless Status is Error
	Since  *time.Time `json:"since,omitempty"`
}

// ObjectRef names an object at a version. ResourceVersion is empty where the
// source has none (a folder of manifests). Where no object was the cause of a
// transition, Name says in words what was, and all else is empty.
type ObjectRef struct {
	Kind            string `json:"kind"`
	Name            string `json:"name"` // namespace/name
	ResourceVersion string `json:"resourceVersion"`
	Deleted         bool   `json:"deleted,omitempty"` // as the cause of a transition
	Manager         string `json:"manager,omitempty"` // who wrote it, where a journal tells
}

// Transition is one change of a Service's rows with its cause.
type Transition struct {
	Time    time.Time   `json:"time"`
	Causes  []ObjectRef `json:"causes"`
	Changes []string    `json:"changes"` // in words, one fact each
}

// Service is one row of `get services`.
type Service struct {
	Service         string       `json:"service"` // namespace/name
	Type            string       `json:"type"`
	ResourceVersion string       `json:"resourceVersion"`
	Slices          []ObjectRef  `json:"slices"`
	Ports           []string     `json:"ports"`     // "name=80/TCP", or "80/TCP"
	Selection       string       `json:"selection"` // how packets choose a backend: random | maglev; "" without rows
	Frontends       int          `json:"frontends"` // rows
	Backends        int          `json:"backends"`  // distinct addresses and ports that take new connections
	Draining        int          `json:"draining"`
	Retained        int          `json:"retained"` // of Backends, those that the API has no more
	Status          string       `json:"status"`
	Error           string       `json:"error"`
	Since           time.Time    `json:"since"`
	Reason          string       `json:"reason"` // why there are no rows, if so (R1, R2)
	Transitions     []Transition `json:"transitions"`
}

// Services is the JSON of `get services`.
type Services struct {
	SchemaVersion int       `json:"schemaVersion"`
	Services      []Service `json:"services"`
}

// BackendRow is one row of `get backends`: a backend of one Service port.
type BackendRow struct {
	Service  string `json:"service"`
	PortName string `json:"portName"`
	Protocol string `json:"protocol"`
	Backend
	// Roles are the backend sets that hold it for new connections (see the
	// architecture page); empty while it is only draining.
	Roles    []string `json:"roles"`
	Draining bool     `json:"draining"`
}

// Backends is the JSON of `get backends`.
type Backends struct {
	SchemaVersion int          `json:"schemaVersion"`
	Backends      []BackendRow `json:"backends"`
}

// KernelBackend is one slot of a set in the kernel.
type KernelBackend struct {
	Address string `json:"address"`
	Port    uint16 `json:"port"`
}

// KernelEntry is one frontend as the kernel's maps hold it, joined with its
// backend set. Service, PortName and Role come from the names the agent wrote
// beside the set.
type KernelEntry struct {
	Address         string          `json:"address"`
	Port            uint16          `json:"port"`
	Protocol        string          `json:"protocol"`
	Scope           string          `json:"scope"` // internal (serves "all" rows too) | external
	Service         string          `json:"service"`
	PortName        string          `json:"portName"`
	Role            string          `json:"role"`
	Set             uint32          `json:"set"`
	Owner           uint32          `json:"owner"`
	Generation      uint32          `json:"generation"`
	Base            uint32          `json:"base"`   // first slot of the extent
	Action          string          `json:"action"` // forward | reject | drop
	AffinitySeconds uint32          `json:"affinitySeconds"`
	MaglevEntries   uint32          `json:"maglevEntries"` // of the table by which packets choose; 0: at random
	SourceRanges    []string        `json:"sourceRanges"`
	Backends        []KernelBackend `json:"backends"`
	Draining        []KernelBackend `json:"draining"`
	// Problem says what is wrong with the entry itself: an owner that does
	// not match, a set out of range. Empty when all is well.
	Problem string `json:"problem"`
}

// Kernel is the JSON of `get kernel`.
type Kernel struct {
	SchemaVersion int           `json:"schemaVersion"`
	PinPath       string        `json:"pinPath"`
	Layout        uint32        `json:"layout"`
	Entries       []KernelEntry `json:"entries"`
	// UnusedSets are sets in use to which no frontend points.
	UnusedSets []KernelEntry `json:"unusedSets"`
}

// Drift is one difference between two layers.
type Drift struct {
	Address  string `json:"address"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Scope    string `json:"scope"`
	Service  string `json:"service"`
	Left     string `json:"left"`  // layer: api | tables
	Right    string `json:"right"` // layer: tables | kernel
	Field    string `json:"field"` // frontend | action | backends | draining | affinitySeconds | sourceRanges | service | selection
	Want     string `json:"want"`  // as the left layer has it
	Have     string `json:"have"`  // as the right layer has it
}

// Diff is the JSON of `diff`.
type Diff struct {
	SchemaVersion int      `json:"schemaVersion"`
	Layers        []string `json:"layers"` // those compared, in order
	Drift         []Drift  `json:"drift"`
}

// Step is one step of a trace: what was looked at, what was found, and where
// that is known from.
type Step struct {
	Stage  string `json:"stage"`
	Fact   string `json:"fact"`
	Source string `json:"source"`
}

// Trace is the JSON of `trace`; with --flows it is an array of these. From files
// it says what the rules ask for; from an agent, what happens there today.
type Trace struct {
	Verdict  string    `json:"verdict"`  // forward | reject | drop | pass
	Frontend *Frontend `json:"frontend"` // null when the target is no Service address; verdict pass has one that is not served
	Backends []Backend `json:"backends"` // the candidates
	SNAT     bool      `json:"snat"`     // as the packet path would do it
	Path     string    `json:"path"`     // socket | packet
	Steps    []Step    `json:"steps"`
}

// ExplainedFrontend is a row, what the kernel holds for it, and what follows.
type ExplainedFrontend struct {
	Frontend
	Kernel  *KernelEntry `json:"kernel"`  // null if the kernel has no such entry
	Verdict string       `json:"verdict"` // in words
}

// Explain is the JSON of `explain`.
type Explain struct {
	SchemaVersion int                 `json:"schemaVersion"`
	Service       string              `json:"service"`
	Reason        string              `json:"reason"`    // why there are no frontends, if so (R1, R2)
	Selection     string              `json:"selection"` // as Service has it
	Objects       []ObjectRef         `json:"objects"`
	Frontends     []ExplainedFrontend `json:"frontends"`
	Retained      []Retention         `json:"retained"`
	Transitions   []Transition        `json:"transitions"`
}

// Flow is one connection, or exchange of datagrams, that the packet path
// translates.
type Flow struct {
	Service   string `json:"service"` // "" if it is gone
	PortName  string `json:"portName"`
	Protocol  string `json:"protocol"`
	Client    string `json:"client"`   // ADDR:PORT, as the other fields below
	Frontend  string `json:"frontend"` // as dialled
	Backend   string `json:"backend"`
	Source    string `json:"source"`    // what the backend sees; the client itself unless it is rewritten
	Path      string `json:"path"`      // stack | redirect: through the node's stack, or past it
	State     string `json:"state"`     // new | open | half-closed | closed | reset
	Confirmed bool   `json:"confirmed"` // the client has shown that it got an answer
	// IdleSeconds is since the last packet, to about a second.
	IdleSeconds uint64 `json:"idleSeconds"`
}

// Flows is the JSON of `get flows`.
type Flows struct {
	SchemaVersion int    `json:"schemaVersion"`
	Flows         []Flow `json:"flows"`
}

// Refusal is one refused connection.
type Refusal struct {
	SchemaVersion int       `json:"schemaVersion"`
	Time          time.Time `json:"time"`
	Path          string    `json:"path"`   // socket | packet
	From          string    `json:"from"`   // ADDR:PORT of a packet's sender; "" at a socket
	Device        string    `json:"device"` // where the packet arrived; "" at a socket
	PID           uint32    `json:"pid"`
	Command       string    `json:"command"`
	NetNS         uint64    `json:"netnsCookie"`
	Host          bool      `json:"host"` // the caller is in the node's own network namespace
	Address       string    `json:"address"`
	Port          uint16    `json:"port"`
	Protocol      string    `json:"protocol"`
	Service       string    `json:"service"`
	PortName      string    `json:"portName"`
	Action        string    `json:"action"` // reject | drop
	Reason        string    `json:"reason"`
}

// MapUse says how full a map is.
type MapUse struct {
	Name        string `json:"name"`
	Used        uint64 `json:"used"`
	Capacity    uint64 `json:"capacity"`
	LargestFree uint64 `json:"largestFree"` // largest free run; equals the free room where runs do not matter
	Bytes       uint64 `json:"bytes"`
	Evictions   uint64 `json:"evictions"`
}

// SourceStatus is the state of one kind of object at the source.
type SourceStatus struct {
	Kind    string    `json:"kind"`
	Synced  bool      `json:"synced"`
	Objects int       `json:"objects"`
	Stale   bool      `json:"stale"`
	Since   time.Time `json:"since"` // when Synced or Stale last changed
	// Reason is why it is stale, in a word: Forbidden, Unauthorized, Expired,
	// Unavailable, Refused, Timeout, Unreachable, Untrusted or Broken; "" if it
	// is not, or if the source is a folder.
	Reason  string `json:"reason"`
	Missing string `json:"missing"` // the permission that is, such as "list services"
	Error   string `json:"error"`
}

// Attachment is a program on the socket path of a cgroup, or on a device.
type Attachment struct {
	Device  string `json:"device"` // "" on the socket path
	Hook    string `json:"hook"`
	Program string `json:"program"`
	ID      uint32 `json:"id"`
	Ours    bool   `json:"ours"`
}

// Device is a device of the packet path, or one that would be if it could.
type Device struct {
	Name     string `json:"name"`
	Index    int    `json:"index"`
	Side     string `json:"side"`     // outside | inside
	Why      string `json:"why"`      // it is one
	Attached string `json:"attached"` // how our programs are: tcx | clsact; "" if they are not
	Problem  string `json:"problem"`  // why it is not served; "" if it is
}

// Feature is a probed kernel feature and what its absence costs.
type Feature struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	Cost    string `json:"cost"` // "" when present
}

// PacketCount is how many packets the packet path met that were neither plainly
// translated nor refused.
type PacketCount struct {
	What  string `json:"what"`
	Count uint64 `json:"count"`
}

// RefusalCount counts refused connections to one frontend.
type RefusalCount struct {
	Address  string `json:"address"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Service  string `json:"service"`
	Reason   string `json:"reason"`
	Count    uint64 `json:"count"`
}

// Healthz is what the agent answers about itself over HTTP, and where.
type Healthz struct {
	Address      string `json:"address"` // where it listens; "" if nowhere
	Healthz      int    `json:"healthz"` // HTTP status: 200 | 503
	Livez        int    `json:"livez"`   // the same
	NodeEligible bool   `json:"nodeEligible"`
	Error        string `json:"error"` // why it does not listen
}

// HealthCheck is what the agent answers on a Service's healthCheckNodePort,
// and where.
type HealthCheck struct {
	Service        string   `json:"service"` // namespace/name
	Port           uint16   `json:"port"`
	LocalEndpoints int      `json:"localEndpoints"` // ready ones on this node
	Status         int      `json:"status"`         // HTTP status: 200 | 503
	Listening      []string `json:"listening"`      // ADDR:PORT, sorted; 0.0.0.0 is all of both families
	Error          string   `json:"error"`          // why not everywhere
}

// Recording is what the recorder within an agent has written.
type Recording struct {
	Journal     string   `json:"journal"`
	Kinds       int      `json:"kinds"`
	Objects     int64    `json:"objects"`
	Events      int64    `json:"events"` // since it began
	Gaps        int64    `json:"gaps"`
	NotFollowed []string `json:"notFollowed"` // kinds, and why
	Error       string   `json:"error,omitempty"`
}

// Status is the JSON of `status`.
type Status struct {
	SchemaVersion int       `json:"schemaVersion"`
	Healthy       bool      `json:"healthy"`
	Findings      []string  `json:"findings"` // why not healthy, or what to know, one sentence each
	Version       string    `json:"version"`
	PID           int       `json:"pid"`
	Started       time.Time `json:"started"`
	Node          string    `json:"node"`
	Zone          string    `json:"zone"`
	NodeAddresses []string  `json:"nodeAddresses"`
	// NodePortAddresses are those on which NodePorts are served (R24).
	NodePortAddresses []string `json:"nodePortAddresses"`
	// What Services ask for depends on these too: diff compiles with them.
	DisableExternalIPs     bool     `json:"disableExternalIPs"`
	AllowNodeAddressClaims bool     `json:"allowNodeAddressClaims"`
	Listening              []string `json:"listening"` // on the node: ADDR:PORT/PROTO, sorted

	Source       string         `json:"source"` // API server URL, or the folder
	SourceState  []SourceStatus `json:"sourceState"`
	Synced       bool           `json:"synced"`
	Problems     []string       `json:"problems"` // objects that could not be read, one line each
	Services     int            `json:"services"`
	Frontends    int            `json:"frontends"`
	Pending      int            `json:"pending"`
	Errors       int            `json:"errors"`
	LastWrite    time.Time      `json:"lastWrite"`
	LastCompared time.Time      `json:"lastCompared"`
	Repaired     uint64         `json:"repaired"` // entries that someone else had changed

	APIServer *APIServer  `json:"apiServer"` // null where the source is a folder
	Retained  []Retention `json:"retained"`
	Recording *Recording  `json:"recording,omitempty"` // absent where nothing is to be recorded

	Healthz        Healthz       `json:"healthz"`
	HealthChecks   []HealthCheck `json:"healthChecks"`
	MetricsAddress string        `json:"metricsAddress"` // where /metrics is served; "" if nowhere

	PinPath     string         `json:"pinPath"`
	Cgroup      string         `json:"cgroup"`
	SocketPath  string         `json:"socketPath"` // all | host | off
	PacketPath  string         `json:"packetPath"`
	Devices     []Device       `json:"devices"` // of the packet path
	Attachments []Attachment   `json:"attachments"`
	Features    []Feature      `json:"features"`
	Maps        []MapUse       `json:"maps"`
	Refusals    []RefusalCount `json:"refusals"`
	EventsLost  uint64         `json:"eventsLost"` // refusals that monitor could not be told
	Packets     []PacketCount  `json:"packets"`

	// Connected UDP sockets whose backend is gone (R35): destroyed since the
	// start, and those of now in namespaces that the agent cannot enter.
	SocketsReleased uint64 `json:"socketsReleased"`
	SocketsStranded uint64 `json:"socketsStranded"`
}
