// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/adapter"
	"github.com/fairlead-io/fairlead/internal/model"
)

// rule is what matters of one line of a chain.
type rule struct {
	line        int
	to          netip.Addr // of -d, if that is one address
	toRange     bool       // -d is a range of addresses
	toLocal     bool       // for addresses of the node
	fromInside  bool       // for sources that are the node's or pods'
	protocol    model.Protocol
	port        uint16
	jump        string
	destination netip.AddrPort // of DNAT
	comment     string
	set         string // the ipset that is asked
}

// parseRule reads "-A CHAIN…".
func parseRule(line string) (string, rule, error) {
	words, err := split(line)
	if err != nil || len(words) < 2 {
		return "", rule{}, fmt.Errorf("the rule cannot be read: %q", line)
	}
	var r rule
	not := false
	for i := 2; i < len(words); i++ {
		if words[i] == "!" {
			not = true
			continue
		}
		value := ""
		if i+1 < len(words) {
			value = words[i+1]
		}
		took, err := r.option(words[i], value, not)
		if err != nil {
			return "", rule{}, fmt.Errorf("%s: %w", words[i], err)
		}
		if took {
			i++
		}
		not = false
	}
	return words[1], r, nil
}

// option notes one option, and says whether its value belonged to it. Those
// that it does not know it passes over word by word.
func (r *rule) option(name, value string, not bool) (took bool, err error) {
	switch name {
	case "-d":
		if not {
			return true, nil
		}
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return true, fmt.Errorf("%q is no range of addresses", value)
		}
		if prefix.IsSingleIP() {
			r.to = prefix.Addr()
		}
		r.toRange = !prefix.IsSingleIP()
	case "-s":
		r.fromInside = r.fromInside || !not
	case "-p":
		// Other protocols than a Service's are of no interest.
		r.protocol, _ = adapter.ParseProtocol(value)
	case "--dport":
		port, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return true, fmt.Errorf("%q is no port", value)
		}
		r.port = uint16(port)
	case "--src-type":
		r.fromInside = r.fromInside || value == "LOCAL" && !not
	case "--dst-type":
		r.toLocal = value == "LOCAL" && !not
	case "--comment":
		r.comment = value
	case "--match-set":
		r.set = value
	case "-j", "-g":
		r.jump = value
	case "--to-destination":
		r.destination, err = adapter.ParseAddress(value)
	default:
		return false, nil
	}
	return true, err
}

// service takes the comment apart that kube-proxy gives to a rule: the name of
// the Service port, and what the rule is for.
func (r *rule) service() (name model.Name, port, kind string) {
	text, purpose, _ := strings.Cut(r.comment, " ")
	name, port, _ = adapter.ParseServicePort(text)
	switch purpose {
	case "cluster IP":
		kind = "ClusterIP"
	case "loadbalancer IP":
		kind = "LoadBalancer"
	case "external IP":
		kind = "ExternalIP"
	}
	return name, port, kind
}

// split parts a line into words as iptables-save quotes them.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			quoted, inWord = !quoted, true
		case c == ' ' && !quoted:
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
