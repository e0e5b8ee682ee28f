// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
	"github.com/fairlead-io/fairlead/internal/reflector"
)

// zoneLabel is the node label that topology reads (R15).
const zoneLabel = "topology.kubernetes.io/zone"

// objectFlags name objects, in files or of a moment in a journal, and the node
// to look at them from.
type objectFlags struct {
	files            []string
	takesFiles       bool
	recorded         *recordedFlags // nil: the command takes none
	nodeName         string
	nodeLabels       map[string]string
	nodeIPs          list[netip.Addr]
	disableExternal  bool
	allowNodeAddress bool
	selection        model.Selection
	stateFile        string
	listening        []model.Listener // as an agent told, which alone knows
	names            []string         // of the flags, to say which one lacks -f
}

func addObjectFlags(cmd *cobra.Command) *objectFlags {
	o := addNodeFlags(cmd)
	o.takesFiles = true
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "`FILE` of Services, EndpointSlices and Nodes, YAML or JSON; a folder, or - for stdin; repeatable")
	return o
}

// addNodeFlags are those that do not say where the objects come from.
func addNodeFlags(cmd *cobra.Command) *objectFlags {
	o := &objectFlags{nodeIPs: list[netip.Addr]{kind: "IP", parse: canonical}}
	flags := cmd.Flags()
	flags.StringVar(&o.nodeName, "node-name", "", "`NAME` of the node to look from")
	flags.StringToStringVar(&o.nodeLabels, "node-label", nil, "label of the node, `KEY=VALUE`; "+zoneLabel+" matters; repeatable")
	flags.Var(&o.nodeIPs, "node-ip", "address of the node; repeatable")
	addPolicyFlags(cmd, &o.disableExternal, &o.allowNodeAddress, &o.selection)
	o.names = []string{"node-name", "node-label", "node-ip", "disable-external-ips", "allow-node-address-claims", "selection"}
	return o
}

// addStateFile lets the objects be compiled as an agent would that has this
// memory.
func (o *objectFlags) addStateFile(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.stateFile, "state-file", "", "state `FILE` of an agent; what it remembers is kept for emptied Services in front of the API server")
	o.names = append(o.names, "state-file")
}

// given says whether the objects come from files, or a journal.
func (o *objectFlags) given() bool { return len(o.files) > 0 || o.fromJournal() }

func (o *objectFlags) fromJournal() bool { return o.recorded != nil && o.recorded.journal != "" }

// refuseWithoutFiles keeps a flag from having no effect in silence.
func (o *objectFlags) refuseWithoutFiles(cmd *cobra.Command, more ...string) error {
	for _, name := range slices.Concat(o.names, more) {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s is for objects from %s too", name, o.sources())
		}
	}
	return nil
}

// sources are the flags by which a command takes objects, in words.
func (o *objectFlags) sources() string {
	if o.recorded == nil {
		return "files: give -f"
	}
	if !o.takesFiles {
		return "a journal: give --journal"
	}
	return "files or a journal: give -f or --journal"
}

func (o *objectFlags) options() model.Options {
	return model.Options{
		ProxyName:              model.DefaultProxyName,
		DisableExternalIPs:     o.disableExternal,
		AllowNodeAddressClaims: o.allowNodeAddress,
		Selection:              o.selection,
	}
}

// world is what objects ask for on a node.
type world struct {
	node     model.Node
	resolved []model.Candidate
	problems []reflector.Problem
}

// read compiles the files for the node that the flags name, or replays the
// journal.
func (o *objectFlags) read(ctx context.Context, e *env) (world, error) {
	if o.fromJournal() {
		return o.readRecorded(ctx, e)
	}
	if !o.given() {
		return world{}, errors.New("no objects: name files with -f (- is stdin), or a recording with --journal")
	}
	if err := o.needNode(); err != nil {
		return world{}, err
	}
	objects, problems, err := reflector.ReadFiles(o.files, e.in)
	if err != nil {
		return world{}, err
	}
	return o.compile(objects, problems)
}

func (o *objectFlags) needNode() error {
	if o.nodeName == "" {
		return errors.New("no node: give --node-name, since what a Service asks for depends on the node")
	}
	return nil
}

// compile says what objects ask for on the node that the flags name.
func (o *objectFlags) compile(objects reflector.Objects, problems []reflector.Problem) (world, error) {
	node, err := o.node(objects.Nodes)
	if err != nil {
		return world{}, err
	}
	options := o.options()
	w := world{node, model.CompileAll(objects.Services, objects.Slices, &node, &options), problems}
	return w, o.keep(&w, objects.Services)
}

// node joins what the flags say of the node with its object, if the files hold
// it. What the flags say holds.
func (o *objectFlags) node(known []*reflector.Node) (model.Node, error) {
	node := model.Node{Name: o.nodeName, Zone: o.nodeLabels[zoneLabel], Addresses: o.nodeIPs.values, Listening: o.listening}
	i := slices.IndexFunc(known, func(n *reflector.Node) bool { return n.Name == o.nodeName })
	if i < 0 {
		return node, nil
	}
	if _, given := o.nodeLabels[zoneLabel]; !given {
		node.Zone = known[i].Zone
	}
	if len(node.Addresses) > 0 {
		return node, nil
	}
	for _, text := range known[i].Addresses {
		address, err := canonical(text)
		if err != nil {
			return model.Node{}, fmt.Errorf("Node %s: status.addresses: %w", o.nodeName, err)
		}
		node.Addresses = append(node.Addresses, address)
	}
	return node, nil
}

// frontends returns the rows of the world in the order of the contract.
func (w world) frontends() []api.Frontend {
	rows := []api.Frontend{}
	for i := range w.resolved {
		rows = append(rows, api.Frontends(w.resolved[i].Service, &w.resolved[i].Compiled)...)
	}
	api.SortFrontends(rows)
	return rows
}

// report tells what could not be read, one line each, which is a finding.
func (e *env) report(problems []reflector.Problem) error {
	for _, problem := range problems {
		e.warn("%s", oneLine(problem))
	}
	if len(problems) > 0 {
		return errFindings
	}
	return nil
}
