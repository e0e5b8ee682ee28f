// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/agent"
	"github.com/fairlead-io/fairlead/internal/datapath"
	"github.com/fairlead-io/fairlead/internal/maglev"
	"github.com/fairlead-io/fairlead/internal/model"
)

// defaultCompareInterval is how often the agent reads the maps back: often
// enough that drift made by others does not last, seldom enough not to show in
// a profile.
const defaultCompareInterval = time.Minute

// Where people look for the health and the metrics of a proxy. Load balancers
// ask from outside; metrics are for this node alone unless told otherwise.
const (
	defaultHealthzAddress = "0.0.0.0:10256"
	defaultMetricsAddress = "127.0.0.1:10249"
)

// defaultStateFile outlives a reboot, as what is below /run does not.
const defaultStateFile = "/var/lib/fairlead/state.json"

// defaultRetainLimit is ample for an API server that puts its address back,
// which takes ten seconds, and for one that is replaced.
const defaultRetainLimit = 10 * time.Minute

// agentFlags are those that the agent's configuration cannot hold as they are
// written.
type agentFlags struct {
	config       agent.Config
	nodeIPs      list[netip.Addr]
	clusterCIDRs list[netip.Prefix]
	serviceCIDRs list[netip.Prefix]
	retain       list[model.Name]
	nodePorts    []string
	socket       *string
	pinPath      *string
	socketPath   format
	packet       *packetFlags
	logLevel     slog.Level
	journalSize  byteSize
}

func newAgent(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent --node-name NAME",
		Short: "Run the Service proxy of this node",
		Long: `Run the Service proxy of this node. It follows an API server (--kubeconfig, or the
service account of the pod it runs in), or a folder of manifests, and needs root.

It reaches the API server past every Service: at the address of the kubeconfig, at those
of --api-server, and at those that it has learned from the EndpointSlices of
default/kubernetes and keeps in --state-file; where none of them is known, it ends with
status 2. When the API empties default/kubernetes, or a Service named by --retain, its
last backends stay for --retain-limit; every other Service is empty at once.

When it stops, what it wrote to the kernel stays in force, and the next agent
takes it over without touching what is right. Two agents never write at once: the
second waits until the first has ended.

The maps take kernel memory for all the entries they have room for, used or not;
the flags that set their sizes say how much.`,
		Example: e.examples(
			"fairlead agent --node-name n1 --manifests examples",
			"fairlead agent --node-name n1 --kubeconfig /etc/fairlead/kubeconfig --cluster-cidr 10.0.0.0/16",
			"fairlead agent --node-name n1 --api-server 192.0.2.1:6443 --api-server 192.0.2.2:6443   # in a pod"),
		Args: noArguments,
	}
	a := addAgentFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := a.read()
		if err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(e.err, &slog.HandlerOptions{Level: a.logLevel}))
		return agent.Run(cmd.Context(), config, log)
	}
	return cmd
}

func addAgentFlags(cmd *cobra.Command) *agentFlags {
	a := &agentFlags{
		config:       agent.Config{Sizes: datapath.DefaultSizes(), Version: buildVersion()},
		nodeIPs:      list[netip.Addr]{kind: "IP", parse: canonical},
		clusterCIDRs: list[netip.Prefix]{kind: "CIDR", parse: parseCIDR},
		serviceCIDRs: list[netip.Prefix]{kind: "CIDR", parse: parseServiceCIDR},
		retain:       list[model.Name]{kind: "NAMESPACE/NAME", parse: parseService},
		socketPath: format{
			value:   string(datapath.SocketAll),
			allowed: []string{string(datapath.SocketAll), string(datapath.SocketHost), string(datapath.SocketOff)},
		},
	}
	c, flags := &a.config, cmd.Flags()
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the API server")
	flags.StringVar(&c.ManifestDir, "manifests", "", "`FOLDER` of manifests to follow instead of an API server")
	cmd.MarkFlagsMutuallyExclusive("kubeconfig", "manifests")
	flags.StringArrayVar(&c.APIServers, "api-server", nil, "`URL`, or ADDRESS:PORT, of an API server itself rather than of a Service in front of it; the agent learns of others; repeatable")
	flags.StringVar(&c.StateFile, "state-file", defaultStateFile, "`FILE` that remembers over a reboot where the API server is; an empty value switches it off")
	addRetentionFlags(cmd, &a.retain, &c.RetainLimit)
	flags.StringVar(&c.NodeName, "node-name", "", "`NAME` of this node; in a pod take it from spec.nodeName")
	flags.Var(&a.nodeIPs, "node-ip", "address of this node, if not the one the API or the interfaces give; repeatable")
	a.socket, a.pinPath = socketFlag(cmd), pinPathFlag(cmd)
	flags.StringVar(&c.Cgroup, "cgroup", "", "`FOLDER` of the cgroup (version 2) whose processes are served; the root of the hierarchy if empty")
	flags.Var(&a.socketPath, "socket-path", "whose connections to translate at the socket: all, the host's only, or none")
	a.packet = addPacketFlags(cmd, c)
	flags.StringSliceVar(&a.nodePorts, "nodeport-addresses", nil, "`CIDR` of the node addresses that serve NodePorts, or primary; all of them if empty; repeatable")
	flags.Var(&a.clusterCIDRs, "cluster-cidr", "addresses of pods, which trace tells from strangers; repeatable")
	flags.Var(&a.serviceCIDRs, "service-cidr", "addresses from which ClusterIPs are given: what no Service has of them is dropped; repeatable")
	addPolicyFlags(cmd, &c.DisableExternalIPs, &c.AllowNodeAddressClaims, &c.Selection)
	flags.TextVar(&c.MaglevTableSize, "maglev-table-size", maglev.DefaultSize,
		"`ENTRIES` of a Maglev table, the same on all nodes, at least one for each backend: "+maglev.SizeList()+"; more move fewer flows needlessly, and take an eighth as many slots in each backend set")
	flags.DurationVar(&c.CompareInterval, "compare-interval", defaultCompareInterval, "how often to compare the kernel's maps with the tables and repair them")
	flags.StringVar(&c.HealthzBindAddress, "healthz-bind-address", defaultHealthzAddress, "`ADDRESS:PORT` of /healthz and /livez; 0.0.0.0 is all addresses of both families, an empty value switches them off")
	flags.StringVar(&c.MetricsBindAddress, "metrics-bind-address", defaultMetricsAddress, "`ADDRESS:PORT` of /metrics; an empty value switches it off")
	flags.StringVar(&c.Journal, "journal", "", "`FILE` of a journal in which to record what happens to objects of the API, as the command record does; off if empty")
	addJournalBounds(cmd, "journal-", &a.journalSize, &c.JournalBounds.MaxAge)
	flags.TextVar(&a.logLevel, "log-level", slog.LevelInfo, "least `LEVEL` to log: debug, info, warn, error")
	addSizeFlags(cmd, &c.Sizes)
	return a
}

func parseService(text string) (model.Name, error) {
	namespace, name, _ := strings.Cut(text, "/")
	if namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.Name{}, fmt.Errorf("%q names no Service: write NAMESPACE/NAME", text)
	}
	return model.Name{Namespace: namespace, Name: name}, nil
}

// addRetentionFlags adds what is kept of Services that the API empties.
func addRetentionFlags(cmd *cobra.Command, services *list[model.Name], limit *time.Duration) {
	cmd.Flags().Var(services, "retain", "Service in front of the API server that keeps its last backends while the API has none, as default/kubernetes does; repeatable")
	cmd.Flags().DurationVar(limit, "retain-limit", defaultRetainLimit, "how long they are kept at most; 0 for not at all")
}

// addPolicyFlags adds the operator's choices that semantics depend on.
func addPolicyFlags(cmd *cobra.Command, disableExternalIPs, allowNodeAddressClaims *bool, selection *model.Selection) {
	cmd.Flags().BoolVar(disableExternalIPs, "disable-external-ips", false, "leave externalIPs out")
	cmd.Flags().BoolVar(allowNodeAddressClaims, "allow-node-address-claims", false, "let a VIP or externalIP take a port on which the node listens")
	cmd.Flags().TextVar(selection, "selection", model.SelectionRandom,
		"`HOW` packets choose a backend, random or maglev, of Services without the annotation fairlead.io/selection; sockets always choose at random")
	// It fails for a flag that does not exist only.
	_ = cmd.RegisterFlagCompletionFunc("selection", cobra.FixedCompletions([]string{
		model.SelectionRandom.String(), model.SelectionMaglev.String()}, cobra.ShellCompDirectiveNoFileComp))
}

// addSizeFlags says with each size what one more entry costs: some maps have
// room for a fixed number besides.
func addSizeFlags(cmd *cobra.Command, sizes *datapath.Sizes) {
	add := func(size *uint32, name, what string) {
		n, before := *size, sizes.Total()
		*size = 2 * n
		each := (sizes.Total() - before) / uint64(n)
		*size = n
		cmd.Flags().Uint32Var(size, name, n, fmt.Sprintf("room for `N` %s; N × %d bytes of kernel memory, %s by default",
			what, each, bytesText(uint64(n)*each)))
	}
	add(&sizes.Frontends, "max-frontends", "frontends: addresses × ports × protocols, twice where policies differ")
	add(&sizes.Sets, "max-sets", "backend sets: Service ports × families × roles")
	add(&sizes.Backends, "max-backends", "slots: the backends of each set and one more, an eighth of --maglev-table-size where it has a table, and room to publish")
	add(&sizes.Affinity, "max-affinity", "clients with session affinity")
	add(&sizes.Flows, "max-flows", "connections on the wire through Services")
	add(&sizes.UDP, "max-udp-pairs", "pairs of an unconnected UDP socket and a Service")
	add(&sizes.Ranges, "max-source-ranges", "loadBalancerSourceRanges")
}

func (a *agentFlags) read() (agent.Config, error) {
	config := a.config
	nodePorts, err := model.ParseNodePortAddresses(a.nodePorts)
	if err != nil {
		return agent.Config{}, err
	}
	config.NodePortAddresses = nodePorts
	config.NodeIPs, config.ClusterCIDRs, config.ServiceCIDRs = a.nodeIPs.values, a.clusterCIDRs.values, a.serviceCIDRs.values
	config.Retain = a.retain.values
	config.JournalBounds.MaxBytes = int64(a.journalSize)
	config.Socket, config.PinPath = *a.socket, *a.pinPath
	config.SocketMode = datapath.SocketMode(a.socketPath.value)
	a.packet.read(&config)
	return config, nil
}
