// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// traceFlags say which flows to trace, and from whose view.
type traceFlags struct {
	from, to, flows string
	socket          *string
	objects         *objectFlags
	clusterCIDRs    list[netip.Prefix]
	serviceCIDRs    list[netip.Prefix]
	nodePorts       []string
	output          *format
}

func newTrace(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace (--from IP|POD --to ADDR:PORT[/PROTO] | --flows FILE)",
		Short: "Say what would happen to a connection, step by step",
		Long: `Say what would happen to a connection: which frontend takes it, which backends it
may meet, whether its source address is kept, and from what each step is known.

The running agent answers with what happens on its node today: what it does not
translate passes, and a step says why. With -f the answer comes from files alone,
with --journal from what was recorded up to the moment --at, and is what the rules
ask for, on a node that serves sockets and the wire. A
source inside a cluster CIDR is a pod of the node, an address of the node is the
node, and anything else is outside. With --flows the answer is a JSON array in
the order of the flows.`,
		Example: e.examples(
			"fairlead trace --from 10.0.1.7 --to 10.96.0.10:53/UDP",
			"fairlead trace --from default/client --to '[fd00::10]:80' -o json",
			"fairlead trace -f examples/clusterip.yaml --node-name n1 --cluster-cidr 10.0.0.0/16 --from 10.0.1.7 --to 10.96.0.10:80",
			"fairlead trace --journal journal.db --at 2026-11-20T10:00:05Z --from 10.0.1.7 --to 10.96.0.1:443",
			`echo '[{"from":"10.0.1.7","to":"10.96.0.10:80"}]' | fairlead trace --flows -`),
		Args: noArguments,
	}
	t := &traceFlags{
		clusterCIDRs: list[netip.Prefix]{kind: "CIDR", parse: parseCIDR},
		serviceCIDRs: list[netip.Prefix]{kind: "CIDR", parse: parseServiceCIDR},
	}
	flags := cmd.Flags()
	flags.StringVar(&t.from, "from", "", "who connects: an `IP`, or a pod as NAMESPACE/NAME")
	flags.StringVar(&t.to, "to", "", "what it dials: `ADDR:PORT[/PROTO]`, TCP unless said")
	flags.StringVar(&t.flows, "flows", "", "`FILE` with a JSON array of {\"from\",\"to\"}, or - for stdin")
	flags.Var(&t.clusterCIDRs, "cluster-cidr", "addresses of this node's pods, with -f or --journal; repeatable")
	flags.Var(&t.serviceCIDRs, "service-cidr", "addresses from which ClusterIPs are given, with -f or --journal; repeatable")
	flags.StringSliceVar(&t.nodePorts, "nodeport-addresses", nil, "`CIDR` of the node addresses that serve NodePorts, or primary, with -f or --journal; repeatable")
	t.objects, t.socket, t.output = addObjectFlags(cmd), socketFlag(cmd), outputFlag(cmd, "json", "yaml")
	t.objects.addRecorded(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return e.trace(cmd, t) }
	return cmd
}

func parseCIDR(text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	if err != nil || cidr.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR such as 10.0.0.0/16", text)
	}
	return cidr.Masked(), nil
}

// parseServiceCIDR refuses what would have the agent drop everything.
func parseServiceCIDR(text string) (netip.Prefix, error) {
	cidr, err := parseCIDR(text)
	if err == nil && cidr.Bits() == 0 {
		return netip.Prefix{}, fmt.Errorf("%q holds every address: give the range from which the API server gives ClusterIPs, such as 10.96.0.0/12", text)
	}
	return cidr, err
}

func (e *env) trace(cmd *cobra.Command, t *traceFlags) error {
	flows, err := e.readFlows(t)
	if err != nil {
		return err
	}
	if t.objects.given() {
		return e.traceOffline(cmd.Context(), t, flows)
	}
	if err := t.objects.refuseWithoutFiles(cmd, "cluster-cidr", "service-cidr", "nodeport-addresses"); err != nil {
		return err
	}
	traces, err := api.NewClient(*t.socket).Trace(cmd.Context(), flows)
	if err != nil {
		return err
	}
	return e.printTraces(t, traces)
}

func (e *env) printTraces(t *traceFlags, traces []api.Trace) error {
	if t.flows != "" {
		return e.printData(t.output, traces)
	}
	if t.output.data() {
		return e.printData(t.output, traces[0])
	}
	return e.print(traceText(traces[0], e.colour))
}

// readFlows takes one flow from the flags, or many from a file.
func (e *env) readFlows(t *traceFlags) ([]api.FlowRequest, error) {
	if t.flows == "" {
		if t.from == "" || t.to == "" {
			return nil, errors.New("no flow: give --from and --to, or --flows FILE")
		}
		return []api.FlowRequest{{From: t.from, To: t.to}}, nil
	}
	if t.from != "" || t.to != "" {
		return nil, errors.New("--flows stands in for --from and --to: give one or the other")
	}
	text, err := e.readInput(t.flows)
	if err != nil {
		return nil, fmt.Errorf("read the flows: %w", err)
	}
	flows := []api.FlowRequest{}
	if err := json.Unmarshal(text, &flows); err != nil {
		return nil, fmt.Errorf("the flows in %s are no JSON array of {\"from\",\"to\"}: %w", t.flows, err)
	}
	return flows, nil
}

func (e *env) readInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(e.in)
	}
	return os.ReadFile(path)
}

// traceOffline answers from files what the rules ask for, on a node that serves
// the wire too.
func (e *env) traceOffline(ctx context.Context, t *traceFlags, requests []api.FlowRequest) error {
	nodePorts, err := model.ParseNodePortAddresses(t.nodePorts)
	if err != nil {
		return err
	}
	flows := make([]model.Flow, len(requests))
	for i, request := range requests {
		if flows[i], err = parseFlow(request); err != nil {
			return fmt.Errorf("flow %d: %w", i+1, err)
		}
	}
	w, err := t.objects.read(ctx, e)
	if err != nil {
		return err
	}
	view := model.View{
		Index:        model.NewIndex(w.resolved),
		Node:         &w.node,
		ClusterCIDRs: t.clusterCIDRs.values,
		ServiceCIDRs: t.serviceCIDRs.values,
		NodePorts:    nodePorts,
		Packets:      model.AllPackets,
	}
	traces := make([]api.Trace, len(flows))
	for i, flow := range flows {
		traces[i] = api.NewTrace(model.Trace(view, flow))
	}
	if err := e.printTraces(t, traces); err != nil {
		return err
	}
	return e.report(w.problems)
}

func parseFlow(request api.FlowRequest) (model.Flow, error) {
	to, protocol, err := api.ParseTarget(request.To)
	if err != nil {
		return model.Flow{}, err
	}
	from, err := canonical(request.From)
	if err != nil {
		return model.Flow{}, fmt.Errorf("%q is no IP address, and files do not tell which pod has which: give the pod's address", request.From)
	}
	return model.Flow{From: from, To: to, Protocol: protocol}, nil
}

// traceText is a numbered list of the steps, and the verdict under it.
func traceText(trace api.Trace, colour bool) string {
	steps := &table{columns: columns("", "", ""), headless: true}
	for i, step := range trace.Steps {
		fact := step.Fact
		if step.Source != "" {
			fact += " (" + step.Source + ")"
		}
		steps.add(fmt.Sprintf("%d.", i+1), step.Stage, fact)
	}
	return steps.text(false, false) + "\n" + verdictText(trace, colour) + "\n"
}

func verdictText(trace api.Trace, colour bool) string {
	verdict := paint(trace.Verdict, colour)
	if trace.Verdict != "forward" {
		return verdict
	}
	return fmt.Sprintf("%s to %s, translated %s", verdict, strings.Join(backendWords(trace.Backends), " or "), translationText(trace))
}

// translationText says where a flow is translated. The socket has no source
// address to rewrite yet.
func translationText(trace api.Trace) string {
	if trace.Path == model.PathSocket.String() {
		return "at the client's socket"
	}
	if trace.SNAT {
		return "on the wire, and the source address becomes this node's"
	}
	return "on the wire, and the source address is kept"
}
