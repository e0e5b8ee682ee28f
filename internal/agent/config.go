// SPDX-License-Identifier: Apache-2.0

// Package agent wires the rooms into the proxy of one node: a source of
// objects, the tables, the reconciler, the datapath, and the socket on which
// it answers the command line. It holds no Service semantics of its own.
package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/maglev"
	"github.com/fairlead-io/fairlead/internal/model"
)

// Config is what the operator asks for.
type Config struct {
	// One source: an API server (a kubeconfig, or the pod's own service
	// account if both are empty), or a folder of manifests.
	Kubeconfig  string
	ManifestDir string

	// APIServers are addresses of API servers, as --api-server takes them,
	// besides the one that the kubeconfig or the pod names.
	APIServers []string
	// StateFile remembers over restarts what leads back to the API server;
	// empty: nothing does.
	StateFile string
	// Retain are Services in front of the API server which keep their last
	// backends for a while when the API empties them, as default/kubernetes
	// always does; RetainLimit is how long, 0 for not at all.
	Retain      []model.Name
	RetainLimit time.Duration

	NodeName string
	NodeIPs  []netip.Addr // asked before the API and the interfaces

	Socket     string // the API socket
	PinPath    string
	Cgroup     string // empty: the root of the cgroup v2 mount
	SocketMode datapath.SocketMode

	PacketPath bool
	Devices    []string // patterns; empty: the rules choose
	PodDevices []string // patterns
	Clsact     bool     // even where the kernel has TCX
	SNATPorts  datapath.Ports
	// CloseWait is the least time for which the kernel's connection tracking
	// keeps a connection that one side has ended; 0 leaves it alone.
	CloseWait time.Duration

	NodePortAddresses      model.NodePortAddresses
	ClusterCIDRs           []netip.Prefix // for trace: whose addresses are pods of this node
	ServiceCIDRs           []netip.Prefix // the ranges of ClusterIPs (R38)
	DisableExternalIPs     bool
	AllowNodeAddressClaims bool
	Selection              model.Selection // of Services that say nothing of it
	MaglevTableSize        maglev.Size

	// ADDRESS:PORT; empty switches the server off.
	HealthzBindAddress string
	MetricsBindAddress string

	// Journal is the file in which a recorder notes what happens to objects of the
	// API, and JournalBounds how much of it; empty: none does.
	Journal       string
	JournalBounds journal.Options

	Sizes           datapath.Sizes
	CompareInterval time.Duration
	Version         string
}

func (c *Config) validate() error {
	if c.NodeName == "" {
		return errors.New("the node's name is not known: give --node-name (in a pod: the downward API's spec.nodeName)")
	}
	if c.ManifestDir != "" && c.Kubeconfig != "" {
		return errors.New("--manifests and --kubeconfig are two sources: give one")
	}
	if c.ManifestDir != "" && len(c.APIServers)+len(c.Retain) > 0 {
		return errors.New("--api-server and --retain are about an API server, and --manifests does without one: give one or the other")
	}
	if c.ManifestDir != "" && c.Journal != "" {
		return errors.New("--journal records an API server, and --manifests does without one: give one or the other")
	}
	if c.JournalBounds.MaxAge < 0 {
		return fmt.Errorf("--journal-max-age %s: it must not be negative", c.JournalBounds.MaxAge)
	}
	if c.RetainLimit < 0 {
		return fmt.Errorf("--retain-limit %s: it must not be negative", c.RetainLimit)
	}
	switch c.SocketMode {
	case datapath.SocketAll, datapath.SocketHost, datapath.SocketOff:
	default:
		return fmt.Errorf("--socket-path %q is none of all, host, off", c.SocketMode)
	}
	if !c.PacketPath && len(c.Devices)+len(c.PodDevices) > 0 {
		return errors.New("--devices and --pod-devices are for the packet path, which --packet-path=off leaves out: give one or the other")
	}
	if c.CloseWait < 0 {
		return fmt.Errorf("--conntrack-tcp-timeout-close-wait %s: it must not be negative", c.CloseWait)
	}
	if c.CompareInterval <= 0 {
		return fmt.Errorf("--compare-interval %s: it must be longer than nothing", c.CompareInterval)
	}
	if err := checkBindAddress("--healthz-bind-address", c.HealthzBindAddress); err != nil {
		return err
	}
	if err := checkBindAddress("--metrics-bind-address", c.MetricsBindAddress); err != nil {
		return err
	}
	return c.Sizes.Validate()
}

func checkBindAddress(flag, value string) error {
	if _, err := netip.ParseAddrPort(value); err != nil && value != "" {
		return fmt.Errorf("%s %q is no ADDRESS:PORT such as 127.0.0.1:10249 or [::]:10256: give one, or an empty value to switch it off", flag, value)
	}
	return nil
}
