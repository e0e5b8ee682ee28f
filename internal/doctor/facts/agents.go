// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter/fairlead"
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/journal"
)

func (n *Node) fairlead() *Fairlead {
	if n.Fairlead == nil {
		n.Fairlead = &Fairlead{}
	}
	return n.Fairlead
}

func readFairleadStatus(_ *Case, s *Sample, r *evidence.Record) error {
	var status api.Status
	if err := decode(r, &status); err != nil {
		return err
	}
	if status.SchemaVersion == 0 {
		return errors.New("it is no JSON of fairlead status")
	}
	f := s.node(cmp.Or(r.Node, status.Node)).fairlead()
	f.Status, f.StatusRecord = &status, r
	return nil
}

func readFairleadFrontends(_ *Case, s *Sample, r *evidence.Record) error {
	var rows []api.Frontend
	if err := decode(r, &rows); err != nil {
		return err
	}
	f := s.node(r.Node).fairlead()
	f.Frontends, f.FrontendsRecord = rows, r
	return s.node(r.Node).take(r, PlaneFairlead, Frontends, fairlead.ParseFrontends(bytes.NewReader(r.Content)))
}

func readFairleadKernel(_ *Case, s *Sample, r *evidence.Record) error {
	var kernel api.Kernel
	if err := decode(r, &kernel); err != nil {
		return err
	}
	if kernel.SchemaVersion == 0 {
		return errors.New("it is no JSON of fairlead get kernel")
	}
	f := s.node(r.Node).fairlead()
	f.Kernel, f.KernelRecord = &kernel, r
	return s.node(r.Node).take(r, PlaneFairlead, Kernel, fairlead.ParseKernel(bytes.NewReader(r.Content)))
}

// decode reads one JSON value and nothing behind it.
func decode(r *evidence.Record, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(r.Content))
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("read its JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind its JSON")
	}
	return nil
}

// release is the number of a version of Kubernetes.
var release = regexp.MustCompile(`\bv(\d+\.\d+\.\d+[-+.\w]*)`)

func (n *Node) kubeProxy() *KubeProxy {
	if n.KubeProxy == nil {
		n.KubeProxy = &KubeProxy{}
	}
	return n.KubeProxy
}

func readKubeProxyVersion(_ *Case, s *Sample, r *evidence.Record) error {
	found := release.FindSubmatch(r.Content)
	if found == nil {
		return errors.New("it names no version")
	}
	k := s.node(r.Node).kubeProxy()
	k.Version, k.Record = string(found[1]), r
	return nil
}

func readKubeProxyMode(_ *Case, s *Sample, r *evidence.Record) error {
	mode := strings.TrimSpace(string(r.Content))
	if !slices.Contains([]string{"iptables", "nftables", "ipvs"}, mode) {
		return errors.New("it names none of the modes iptables, nftables and ipvs")
	}
	k := s.node(r.Node).kubeProxy()
	k.Mode = mode
	if k.Record == nil {
		k.Record = r
	}
	return nil
}

// readVersion reads what GET /version or kubectl version say.
func readVersion(_ *Case, s *Sample, r *evidence.Record) error {
	var said struct {
		GitVersion    string
		ServerVersion struct{ GitVersion string }
	}
	// The text of kubectl names the server's on a line of its own.
	if json.Unmarshal(r.Content, &said) != nil {
		_, text, _ := strings.Cut(string(r.Content), "Server Version:")
		said.GitVersion, _, _ = strings.Cut(text, "\n")
	}
	found := release.FindStringSubmatch(cmp.Or(said.ServerVersion.GitVersion, said.GitVersion))
	if found == nil {
		return errors.New("it names no version of an API server")
	}
	s.Version = found[1]
	return nil
}

// readConntrack reads lines KEY=NUMBER, as sysctl and grep print them.
func readConntrack(_ *Case, s *Sample, r *evidence.Record) error {
	values := map[string]int{}
	for line := range strings.Lines(string(r.Content)) {
		key, text, _ := strings.Cut(line, "=")
		key = strings.TrimPrefix(strings.TrimSpace(key), "net.netfilter.")
		if value, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && value >= 0 {
			values[key] = value
		}
	}
	count, counted := values["nf_conntrack_count"]
	most, bounded := values["nf_conntrack_max"]
	if !counted || !bounded {
		return errors.New("it does not say both nf_conntrack_count and nf_conntrack_max")
	}
	s.node(r.Node).Conntrack = &Conntrack{Count: count, Max: most, Record: r}
	return nil
}

// readEvents reads events of a journal, one JSON value after another. Those
// before a broken one stand.
// journalPath is the path of a journal in the command that reads its events, if
// it needs no quotes.
var journalPath = regexp.MustCompile(`^fairlead events ([A-Za-z0-9_./][A-Za-z0-9_./-]*)( |$)`)

func readEvents(c *Case, _ *Sample, r *evidence.Record) error {
	if m := journalPath.FindStringSubmatch(r.Command); m != nil {
		c.Journal = m[1]
	}
	decoder := json.NewDecoder(bytes.NewReader(r.Content))
	var err error
	for {
		var e journal.Event
		if err = decoder.Decode(&e); err != nil {
			break
		}
		c.Events = append(c.Events, e)
	}
	slices.SortStableFunc(c.Events, func(a, b journal.Event) int { return a.Time.Compare(b.Time) })
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the event at byte %d is broken: %w", errPartial, decoder.InputOffset(), err)
	}
	return nil
}
