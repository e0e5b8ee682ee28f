// SPDX-License-Identifier: Apache-2.0

// Package ipvs reads what ipvsadm prints: the rules that `ipvsadm -Sn` saves,
// and the table of `ipvsadm -Ln`.
//
// IPVS knows addresses only: which Service one belongs to is not known here.
package ipvs

import (
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

const (
	saveSource = "ipvsadm -Sn"
	listSource = "ipvsadm -Ln"
)

// Formats are the texts that this package reads.
func Formats() []adapter.Format {
	return []adapter.Format{
		{Source: saveSource, Begins: saveLine.MatchString, Alike: true, Parse: ParseSave},
		{Source: listSource, Begins: listLine.MatchString, Parse: ParseList},
	}
}

var (
	saveLine = regexp.MustCompile(`^-[Aa] (-[tuf]|--(tcp|udp|sctp|fwmark)-service) `)
	listLine = regexp.MustCompile(`^IP Virtual Server version `)
)

// services collects virtual services in their order. Real servers come after
// the service that they belong to, or name it.
type services struct {
	d  *adapter.Dump
	at map[key]int
}

type key struct {
	address  netip.AddrPort
	protocol model.Protocol
}

func (s *services) open(line int, k key, scheduler string) {
	if _, known := s.at[k]; known {
		return
	}
	s.at[k] = len(s.d.Frontends)
	fe := adapter.Frontend{Address: k.address, Protocol: k.protocol, Line: line}
	if scheduler != "" {
		fe.Flags = []string{scheduler}
	}
	s.d.Frontends = append(s.d.Frontends, fe)
}

func (s *services) server(k key, b adapter.Backend) error {
	i, known := s.at[k]
	if !known {
		return fmt.Errorf("the server %s belongs to no service", b.Address)
	}
	s.d.Frontends[i].Backends = append(s.d.Frontends[i].Backends, b)
	return nil
}

// backend gives a server of weight 0 its state: it gets nothing new.
// kube-proxy sets that while connections to a removed endpoint last.
func backend(address netip.AddrPort, weight int) adapter.Backend {
	b := adapter.Backend{Address: address, Weight: weight, State: adapter.Active}
	if weight == 0 {
		b.State = adapter.Unusable
	}
	return b
}

// ParseSave reads `ipvsadm -Sn`: the commands that would make the table anew.
func ParseSave(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: saveSource}
	s := services{&d, map[key]int{}}
	for n, line := range d.Lines(r) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.command(n, words); err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	return d
}

// command reads "-A -t ADDRESS:PORT -s SCHEDULER…" or "-a -t ADDRESS:PORT -r
// ADDRESS:PORT -m -w WEIGHT".
func (s *services) command(line int, words []string) error {
	if words[0] != "-A" && words[0] != "-a" {
		return fmt.Errorf("%q is no command of ipvsadm", strings.Join(words, " "))
	}
	var k key
	var server netip.AddrPort
	weight, scheduler := 1, ""
	for i := 1; i+1 < len(words); i++ {
		var err error
		switch value := words[i+1]; words[i] {
		case "-t", "--tcp-service":
			k, err = serviceKey(value, model.TCP)
		case "-u", "--udp-service":
			k, err = serviceKey(value, model.UDP)
		case "--sctp-service":
			k, err = serviceKey(value, model.SCTP)
		case "-f", "--fwmark-service":
			return nil // a mark is no address: not kube-proxy's
		case "-r", "--real-server":
			server, err = adapter.ParseAddress(value)
		case "-w", "--weight":
			weight, err = parseWeight(value)
		case "-s", "--scheduler":
			scheduler = value
		}
		if err != nil {
			return err
		}
	}
	if !k.address.IsValid() {
		return fmt.Errorf("no service in %q", strings.Join(words, " "))
	}
	if words[0] == "-A" {
		s.open(line, k, scheduler)
		return nil
	}
	if !server.IsValid() {
		return fmt.Errorf("no server in %q", strings.Join(words, " "))
	}
	return s.server(k, backend(server, weight))
}

func serviceKey(text string, protocol model.Protocol) (key, error) {
	address, err := adapter.ParseAddress(text)
	return key{address, protocol}, err
}

func parseWeight(text string) (int, error) {
	weight, err := strconv.Atoi(text)
	if err != nil || weight < 0 {
		return 0, fmt.Errorf("%q is no weight", text)
	}
	return weight, nil
}

// ParseList reads the table of `ipvsadm -Ln`: a line per service, and an arrow
// before each of its servers.
func ParseList(r io.Reader) adapter.Dump {
	d := adapter.Dump{Source: listSource}
	s := services{&d, map[key]int{}}
	var current key
	for n, line := range d.Lines(r) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		var err error
		switch words[0] {
		case "IP", "Prot", "FWM":
			current = key{}
		case "TCP", "UDP", "SCTP":
			protocol, _ := model.ParseProtocol(words[0])
			if current, err = serviceKey(words[1], protocol); err == nil {
				s.open(n, current, strings.Join(words[2:min(len(words), 3)], ""))
			}
		case "->":
			if words[1] != "RemoteAddress:Port" && current.address.IsValid() {
				err = s.row(current, words)
			}
		default:
			err = fmt.Errorf("%q is no line of ipvsadm", line)
		}
		if err != nil {
			d.Problemf(n, "%v", err)
		}
	}
	return d
}

// row reads "-> ADDRESS:PORT FORWARD WEIGHT ACTIVE INACTIVE".
func (s *services) row(k key, words []string) error {
	if len(words) < 4 {
		return fmt.Errorf("the server %s has no weight", words[1])
	}
	address, err := adapter.ParseAddress(words[1])
	if err != nil {
		return err
	}
	weight, err := parseWeight(words[3])
	if err != nil {
		return err
	}
	return s.server(k, backend(address, weight))
}
