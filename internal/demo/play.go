// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// The addresses of the incident's Services, as in examples/incident-1.
var (
	kubernetesVIP = netip.MustParseAddrPort("10.96.0.1:443")
	intranetVIP   = netip.MustParseAddrPort("198.51.100.44:443")
)

// Play is the demo, inside the namespaces that Run made.
func Play(ctx context.Context, out, errOut io.Writer) error {
	// The agent is to die with the thread that started it: keep that thread.
	runtime.LockOSThread()
	s, err := newStage(out, errOut, netip.MustParseAddr("172.20.0.11"), netip.MustParseAddr("fd00:20::11"))
	if err != nil {
		return err
	}
	for _, scene := range []func(context.Context) error{s.examples, s.incident, s.farewell} {
		if ctx.Err() != nil {
			return nil
		}
		if err := scene(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (s *stage) title(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintf(s.out, "\n%s\n%s\n", text, strings.Repeat("─", len([]rune(text))))
}

// examples serves the example manifests and connects to every address in them.
func (s *stage) examples(ctx context.Context) error {
	s.title("1. An agent on a scratch cgroup, the manifests of examples/, real servers")
	if err := s.placeAll(); err != nil {
		return err
	}
	if err := s.serveExamples(); err != nil {
		return err
	}
	rows, err := s.client.Frontends(ctx)
	if err != nil {
		return err
	}
	if err := s.startServers(ctx, rows); err != nil {
		return err
	}
	if _, err := s.run("get", "frontends"); err != nil {
		return err
	}
	s.title("2. Connections through these addresses, from a process of this node")
	return s.connectAll(rows)
}

// serveExamples starts the agent of the node n1 that the examples speak of.
func (s *stage) serveExamples() error {
	return s.startAgent("--node-name", "n1", "--manifests", s.manifests, "--cluster-cidr", "10.0.0.0/16")
}

// connectAll dials every row that a process of this node can reach, three
// times, and compares what happens with what the row says.
func (s *stage) connectAll(rows []api.Frontend) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "DIAL\tSERVICE\tROW SAYS\tWHAT HAPPENED")
	wrong := 0
	for _, row := range rows {
		protocol, err := model.ParseProtocol(row.Protocol)
		if err != nil || protocol == model.SCTP || row.Scope == "external" || row.Action == "shadowed" {
			continue
		}
		to, err := dialled(row)
		if err != nil {
			return err
		}
		happened, asSaid := try(to, protocol, row)
		if !asSaid {
			wrong++
			happened += "   ← not what the row says"
		}
		fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\n", to, row.Protocol, row.Service, row.Action, happened)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d addresses did not behave as their rows say", wrong)
	}
	return nil
}

// dialled is the row's address; a NodePort is dialled on the node's own.
func dialled(row api.Frontend) (netip.AddrPort, error) {
	address := row.Address
	switch address {
	case "0.0.0.0":
		address = "172.20.0.11"
	case "::":
		address = "fd00:20::11"
	}
	return netip.ParseAddrPort(api.HostPort(address, row.Port))
}

// try dials three times, and says what happened, and whether the row said so.
func try(to netip.AddrPort, p model.Protocol, row api.Frontend) (happened string, asSaid bool) {
	var answers []string
	asSaid = true
	for range 3 {
		answer, err := ask(to, p)
		if err != nil {
			return outcome(err), refusedAs(row, err)
		}
		asSaid = asSaid && has(row.Backends, answer)
		answers = append(answers, answer)
	}
	return "answered by " + strings.Join(answers, ", "), asSaid
}

func has(backends []api.Backend, answer string) bool {
	for _, b := range backends {
		if api.HostPort(b.Address, b.Port) == answer {
			return true
		}
	}
	return false
}

// refusedAs says whether an error is the one that the row promises. A VIP with
// source ranges refuses a socket that did not choose its source.
func refusedAs(row api.Frontend, err error) bool {
	text := outcome(err)
	switch {
	case row.Action == "reject":
		return text == "connection refused"
	case row.Action == "drop", len(row.SourceRanges) > 0:
		return text == "no route to host"
	}
	return false
}

// incident plays the first incident: two Services share one endpoint, the name
// of one is a prefix of the other's; the first loses the endpoint, the second
// is touched, and the agent is killed in between.
func (s *stage) incident(ctx context.Context) error {
	s.title("3. The incident: default/kubernetes and default/kubernetes-intranet share one endpoint")
	for _, file := range []string{"incident-1/kubernetes.yaml", "incident-1/kubernetes-intranet.yaml"} {
		if err := s.place(file); err != nil {
			return err
		}
	}
	if err := s.reached("default/kubernetes-intranet", 3); err != nil {
		return err
	}
	rows, err := s.client.Frontends(ctx)
	if err != nil {
		return err
	}
	if err := s.startServers(ctx, rows); err != nil {
		return err
	}
	if err := s.tables("before"); err != nil {
		return err
	}
	clients := startStream(ctx, intranetVIP, model.TCP)
	defer clients.stop()
	if err := s.steps(); err != nil {
		return err
	}
	clients.stop()
	if err := s.tables("after"); err != nil {
		return err
	}
	return s.verdict(clients)
}

func (s *stage) tables(when string) error {
	fmt.Fprintf(s.out, "\nTables %s:\n", when)
	if _, err := s.run("get", "frontends", "default/kubernetes", "default/kubernetes-intranet"); err != nil {
		return err
	}
	_, err := s.run("get", "kernel", "default/kubernetes", "default/kubernetes-intranet")
	return err
}

// reached waits until the Service has so many rows, all written.
func (s *stage) reached(service string, frontends int) error {
	return s.until(service+" to be written", func() (bool, error) {
		services, err := s.client.Services(context.Background())
		if err != nil {
			return false, err
		}
		for _, row := range services.Services {
			if row.Service == service {
				return row.Frontends == frontends && row.Status == api.StatusDone, nil
			}
		}
		return false, nil
	})
}

func (s *stage) steps() error {
	fmt.Fprintln(s.out, "\nA client opens connections to the VIP of kubernetes-intranet all the while.")
	fmt.Fprintln(s.out, "→ an API server stops and empties default/kubernetes")
	if err := s.place("incident-1/steps/1-endpoint-leaves.yaml"); err != nil {
		return err
	}
	err := s.until("default/kubernetes to be empty", func() (bool, error) {
		_, err := ask(kubernetesVIP, model.TCP)
		return err != nil && outcome(err) == "connection refused", err
	})
	if err != nil {
		return err
	}
	if _, err := s.run("explain", "default/kubernetes"); err != nil {
		return err
	}
	before, err := s.kernelDump()
	if err != nil {
		return err
	}
	fmt.Fprintln(s.out, "\n→ the agent is killed, and started again")
	if err := s.killAgent(); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	if err := s.serveExamples(); err != nil {
		return err
	}
	after, err := s.kernelDump()
	if err != nil {
		return err
	}
	if before != after {
		return errors.New("the restarted agent changed entries in the kernel that were right")
	}
	fmt.Fprintln(s.out, "→ a controller touches an annotation of kubernetes-intranet")
	if err := s.place("incident-1/steps/2-annotation.yaml"); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	return nil
}

func (s *stage) verdict(clients *stream) error {
	findings, err := s.run("diff")
	if err != nil {
		return err
	}
	good, bad := clients.good.Load(), clients.bad.Load()
	fmt.Fprintf(s.out, "\nkubernetes-intranet during the incident: %d connections succeeded, %d failed.\n", good, bad)
	_, err = ask(kubernetesVIP, model.TCP)
	fmt.Fprintf(s.out, "default/kubernetes, which has no endpoint: %s.\n", outcome(err))
	switch {
	case bad > 0:
		return fmt.Errorf("%d connections failed, the first with: %s", bad, *clients.firstBad.Load())
	case good == 0:
		return errors.New("no connection was made during the incident")
	case findings:
		return errors.New("the layers differ")
	}
	return nil
}

// farewell stops the agent; the kernel goes on alone.
func (s *stage) farewell(context.Context) error {
	s.title("4. The agent is gone; what it wrote to the kernel goes on")
	if err := s.killAgent(); err != nil {
		return err
	}
	answer, err := ask(intranetVIP, model.TCP)
	if err != nil {
		return fmt.Errorf("connect without an agent: %w", err)
	}
	fmt.Fprintf(s.out, "%s answered by %s\n", intranetVIP, answer)
	fmt.Fprintf(s.out, "\nThe demo is over; its namespaces, its cgroup and %s are removed.\n", s.work)
	return nil
}
