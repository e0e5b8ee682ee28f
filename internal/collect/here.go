// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// sources are what this node's data planes and its kernel hold.
func (h *Here) sources(ctx context.Context, proxyMeant bool) []group {
	kernel := group{h.source("conntrack.txt", evidence.Conntrack, conntrackCommand, h.conntrack)}
	groups := []group{h.fairlead(), h.kubeProxy(ctx, proxyMeant), kernel}
	for _, pid := range h.processes("cilium-agent") {
		groups = append(groups, h.cilium(pid))
	}
	return groups
}

func (h *Here) source(name string, kind evidence.Kind, command []string, read func(context.Context) (output, error)) source {
	return source{evidence.Record{
		Path: "nodes/" + h.Node + "/" + name, Kind: kind, Node: h.Node, Command: printable.Command(command...),
	}, read}
}

// command is a source that is what a program of the node prints.
func (h *Here) command(c command) source {
	return h.source(c.file, c.kind, c.argv, func(ctx context.Context) (output, error) { return run(ctx, c.argv) })
}

// fairlead reads Fairlead's agent, and its maps, which need none.
func (h *Here) fairlead() group {
	client := api.NewClient(h.Socket)
	if missing(h.Socket) && missing(h.Pins) {
		return nil
	}
	socket := defaulted("--socket", h.Socket, api.DefaultSocket)
	var silent error // why the agent is not asked again
	return group{
		h.source("fairlead-status.json", evidence.FairleadStatus, append([]string{"fairlead", "status", "-o", "json"}, socket...), func(ctx context.Context) (output, error) {
			ctx, cancel := context.WithTimeout(ctx, agentTime)
			defer cancel()
			var status api.Status
			status, silent = client.Status(ctx)
			return inJSON(status, silent)
		}),
		h.source("fairlead-frontends.json", evidence.FairleadFrontends, append([]string{"fairlead", "get", "frontends", "-o", "json"}, socket...), func(ctx context.Context) (output, error) {
			if silent != nil {
				return output{}, silent
			}
			return inJSON(client.Frontends(ctx))
		}),
		h.source("fairlead-kernel.json", evidence.FairleadKernel, append([]string{"fairlead", "get", "kernel", "-o", "json"}, defaulted("--pin-path", h.Pins, DefaultPins)...), func(context.Context) (output, error) {
			return inJSON(h.Kernel())
		}),
	}
}

// agentTime bounds how long an agent is waited for that is on this node: one that
// hangs must not hold up who looks for what is wrong with it.
const agentTime = 3 * time.Second

// dials is what comes of connections that are tried on the node.
func (h *Here) dials(sample []evidence.Record) group {
	command := append([]string{"fairlead", "doctor", "--probe"}, defaulted("--pin-path", h.Pins, DefaultPins)...)
	return group{h.source("probes.json", evidence.Probes, command, func(ctx context.Context) (output, error) {
		results, err := h.Dial(ctx, h.Node, sample)
		if err == nil && len(results) == 0 {
			return output{}, errNothing
		}
		return inJSON(results, err)
	})}
}

// DefaultPins is where an agent pins its maps unless told otherwise.
const DefaultPins = "/sys/fs/bpf/fairlead"

// defaulted is a flag as a person has to write it: not at all where it is as it
// would be.
func defaulted(flag, value, usual string) []string {
	if value == usual {
		return nil
	}
	return []string{flag, value}
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// proxyModeURL is where a kube-proxy says which mode it is in, on its own node
// only.
const proxyModeURL = "http://127.0.0.1:10249/proxyMode"

// kubeProxy reads the rules of a kube-proxy, if one is or was here. A mode that
// is known is the only one that is read: another one may have left rules behind.
func (h *Here) kubeProxy(ctx context.Context, meant bool) group {
	mode := h.source("kube-proxy-mode.txt", evidence.KubeProxyMode, []string{"curl", "-s", proxyModeURL}, proxyMode)
	if len(h.processes("kube-proxy")) == 0 {
		mode.read = absent(mode.read)
	} else {
		meant = true
	}
	said, _ := proxyMode(ctx)
	rules := rules{mode: string(said.content), meant: meant || len(said.content) > 0, source: h.command}
	return append(group{mode}, rules.group()...)
}

// absent has a source that fails not be there.
func absent(read reader) reader {
	return func(ctx context.Context) (output, error) {
		out, err := read(ctx)
		if err != nil {
			return output{}, errNothing
		}
		return out, nil
	}
}

func proxyMode(ctx context.Context) (output, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, proxyModeURL, nil)
	if err != nil {
		return output{}, err
	}
	// The answer is that of this node: no proxy may stand in the way.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return output{}, err
	}
	defer response.Body.Close()
	const longest = 64
	text, err := io.ReadAll(io.LimitReader(response.Body, longest))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", proxyModeURL, response.Status)
	}
	return output{content: text}, err
}

// cilium runs the tools in the agent's container, where they are.
func (h *Here) cilium(pid int) group {
	var all group
	for _, c := range ciliumCommands() {
		all = append(all, h.source(c.file, c.kind, c.argv, func(ctx context.Context) (output, error) {
			enter := []string{"nsenter", "--target", strconv.Itoa(pid), "--mount", "--net", "--"}
			return eitherName(c, func(argv []string) (output, error) { return run(ctx, slices.Concat(enter, argv)) })
		}))
	}
	return all
}

// processes are those of this node with a name, the lowest number first.
func (h *Here) processes(name string) []int {
	files, err := filepath.Glob(h.Proc + "/[0-9]*/comm")
	if err != nil {
		return nil
	}
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(text)) != name {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && h.sameNetwork(pid) {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found
}

// sameNetwork says whether a process is in the node's network: what is not
// serves something else, as a cluster in containers does.
func (h *Here) sameNetwork(pid int) bool {
	own, err := os.Readlink(h.Proc + "/self/ns/net")
	if err != nil {
		return false
	}
	other, err := os.Readlink(filepath.Join(h.Proc, strconv.Itoa(pid), "ns/net"))
	return err == nil && own == other
}

var conntrackCommand = []string{"cat", "/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max"}

// conntrack reads how full connection tracking is. A kernel without it has none.
func (h *Here) conntrack(context.Context) (output, error) {
	var all []byte
	for _, name := range []string{"nf_conntrack_count", "nf_conntrack_max"} {
		text, err := os.ReadFile(h.Proc + "/sys/net/netfilter/" + name)
		if errors.Is(err, os.ErrNotExist) {
			return output{}, errNothing
		}
		if err != nil {
			return output{}, err
		}
		all = append(all, text...)
	}
	return conntrackNumbers(string(all))
}

// conntrackNumbers names the numbers that the command prints.
func conntrackNumbers(text string) (output, error) {
	numbers := strings.Fields(text)
	if len(numbers) != 2 {
		return output{}, fmt.Errorf("two numbers are expected, not %q", text)
	}
	return output{content: fmt.Appendf(nil, "nf_conntrack_count=%s\nnf_conntrack_max=%s\n", numbers[0], numbers[1])}, nil
}
