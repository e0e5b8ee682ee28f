// SPDX-License-Identifier: Apache-2.0

package adapter

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"strings"

	"github.com/fairlead-io/fairlead/internal/model"
)

// maxLine bounds a line of text. No proxy writes one that is nearly as long.
const maxLine = 1 << 20

// Lines yields the lines of a text with their numbers, from 1, without what
// ends them. It stops at a line that is too long, which is a problem of the
// dump, and at an error of the reader.
func (d *Dump) Lines(r io.Reader) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
		n := 0
		for scanner.Scan() {
			n++
			if !yield(n, scanner.Text()) {
				return
			}
		}
		if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
			d.Cut(n+1, "the line is longer than %d bytes", maxLine)
		} else if err != nil {
			d.Cut(n+1, "%v", err)
		}
	}
}

// ParseAddress reads ADDRESS:PORT, with the address in brackets if it is of
// IPv6.
func ParseAddress(text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no ADDRESS:PORT", text)
	}
	if a.Addr().Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%q has a zone", text)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// ParseProtocol reads a protocol in upper or lower case. Of a protocol that the
// source leaves open it returns 0.
func ParseProtocol(text string) (model.Protocol, error) {
	switch upper := strings.ToUpper(text); upper {
	case "", "ANY", "NONE":
		return 0, nil
	default:
		return model.ParseProtocol(upper)
	}
}

// ParseName reads NAMESPACE/NAME. What has a colon as well is no Service: Cilium
// names host ports so.
func ParseName(text string) (model.Name, bool) {
	namespace, name, found := strings.Cut(text, "/")
	if !found || namespace == "" || name == "" || strings.ContainsAny(name, "/:") {
		return model.Name{}, false
	}
	return model.Name{Namespace: namespace, Name: name}, true
}

// ParseServicePort reads NAMESPACE/NAME or NAMESPACE/NAME:PORTNAME, as
// kube-proxy writes it.
func ParseServicePort(text string) (name model.Name, port string, ok bool) {
	text, port, _ = strings.Cut(text, ":")
	name, ok = ParseName(text)
	return name, port, ok
}
