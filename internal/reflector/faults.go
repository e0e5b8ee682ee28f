// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/internal/model"
)

// faults collects what is wrong with the fields of one object.
type faults struct {
	kind Kind
	name model.Name
	list []Problem
}

func (f *faults) add(field, format string, args ...any) {
	f.list = append(f.list, Problem{
		Object:  oneLine(describe(f.kind, f.name)),
		Field:   field,
		Message: fmt.Sprintf(format, args...),
	})
}

// describe names an object as a person would: "Service default/web".
func describe(kind Kind, name model.Name) string {
	switch {
	case name.Name == "":
		return kind.String()
	case name.Namespace == "":
		return kind.String() + " " + name.Name
	}
	return kind.String() + " " + name.String()
}

// quote puts a value that may be anything into a message of one line.
func quote(value string) string {
	const most = 64
	if len(value) > most {
		value = strings.ToValidUTF8(value[:most], "") + "…"
	}
	return fmt.Sprintf("%q", value)
}

// oneLine makes text of which nothing is known fit into a message.
func oneLine(s string) string {
	const most = 400
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// identity reads the name of an object. Names are checked because they become
// parts of keys that are joined with "/".
func (f *faults) identity(m *metav1.ObjectMeta, namespaced bool, check func(string) []string) {
	f.name = model.Name{Namespace: m.Namespace, Name: m.Name}
	if m.Name == "" {
		f.add("metadata.name", "the name is missing")
	} else if wrong := check(m.Name); len(wrong) > 0 {
		f.add("metadata.name", "%s is no valid name: %s", quote(m.Name), wrong[0])
	}
	if !namespaced {
		return
	}
	if m.Namespace == "" {
		f.add("metadata.namespace", "the namespace is missing")
	} else if wrong := validation.IsDNS1123Label(m.Namespace); len(wrong) > 0 {
		f.add("metadata.namespace", "%s is no valid namespace: %s", quote(m.Namespace), wrong[0])
	}
}

// address reads an address to which a connection can be made. What the API
// server once let through (leading zeros, IPv4 in IPv6 form) is refused:
// programs do not agree on what it means.
func (f *faults) address(field, value string) netip.Addr {
	a, err := netip.ParseAddr(value)
	switch {
	case err != nil:
		f.add(field, "%s is not an IP address%s", quote(value), because(err))
	case a.Is4In6():
		f.add(field, "%s is an IPv4 address in IPv6 form: write %s", quote(value), a.Unmap())
	case a.Zone() != "":
		f.add(field, "%s has a zone, which means nothing on another host: write %s", quote(value), a.WithZone(""))
	case a.IsUnspecified(), a.IsMulticast():
		f.add(field, "%s is not the address of one host", quote(value))
	}
	return a
}

// hostAddress reads an address that means the same host to everybody. A
// link-local one is let through: API servers exist whose own endpoint is one.
func (f *faults) hostAddress(field, value string) netip.Addr {
	a := f.address(field, value)
	if a.IsLoopback() && !a.Is4In6() {
		f.add(field, "%s is a loopback address, which every host has for itself", quote(value))
	}
	return a
}

// portName checks the name of a port, by which Services and slices are joined;
// it may be empty.
func (f *faults) portName(field, value string) {
	if value == "" {
		return
	}
	if wrong := validation.IsDNS1123Label(value); len(wrong) > 0 {
		f.add(field, "%s is no valid name of a port: %s", quote(value), wrong[0])
	}
}

// prefix reads a CIDR; white space around it is let through as the API server
// does (R22).
func (f *faults) prefix(field, value string) netip.Prefix {
	p, err := netip.ParsePrefix(strings.TrimSpace(value))
	switch {
	case err != nil:
		f.add(field, "%s is not a CIDR such as 192.0.2.0/24%s", quote(value), because(err))
		return p
	case p.Addr().Is4In6():
		f.add(field, "%s is an IPv4 range in IPv6 form", quote(value))
	}
	return p.Masked()
}

// because returns what an error of net/netip says beyond the name of the
// function and its argument, which the caller has already quoted.
func because(err error) string {
	_, reason, found := strings.Cut(err.Error(), "): ")
	if !found || reason == "unable to parse IP" {
		return ""
	}
	return ": " + reason
}

// port reads a port number from least to 65535.
func (f *faults) port(field string, value int32, least int32) uint16 {
	if value < least || value > 65535 {
		f.add(field, "%d is not a port number from %d to 65535", value, least)
		return 0
	}
	return uint16(value)
}

// protocol reads the name of a transport protocol.
func (f *faults) protocol(field, value string) model.Protocol {
	p, err := model.ParseProtocol(value)
	if err != nil {
		f.add(field, "%s is none of TCP, UDP, SCTP", quote(value))
	}
	return p
}

// choice reads one of several words.
func choice[T any](f *faults, field, value string, words []string, values []T) T {
	for i, word := range words {
		if value == word {
			return values[i]
		}
	}
	f.add(field, "%s is none of %s", quote(value), strings.Join(words, ", "))
	var none T
	return none
}
