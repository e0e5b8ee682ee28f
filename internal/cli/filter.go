// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/api"
)

// filter picks what a command shows: everything of a namespace, or what was
// named. The zero filter picks all.
type filter struct {
	namespace string
	names     []string // namespace/name
	targets   []string // as target writes them
	hosts     []string // ADDR:PORT of any protocol
}

// newFilter reads the arguments of a command: Services (namespace/name, or
// name with --namespace) and, where there are addresses, ADDR:PORT[/PROTO].
func newFilter(namespace string, args []string, addresses bool) (filter, error) {
	f := filter{namespace: namespace}
	for _, arg := range args {
		if addresses && looksLikeTarget(arg) {
			if err := f.addTarget(arg); err != nil {
				return filter{}, err
			}
			continue
		}
		name, err := serviceName(namespace, arg)
		if err != nil {
			return filter{}, err
		}
		f.names = append(f.names, name)
	}
	return f, nil
}

// looksLikeTarget: the name of a Service holds no colon, and no namespace is
// an address.
func looksLikeTarget(arg string) bool {
	host, _, _ := strings.Cut(arg, "/")
	_, err := netip.ParseAddr(host)
	return err == nil || strings.Contains(arg, ":")
}

func (f *filter) addTarget(arg string) error {
	addrPort, protocol, err := api.ParseTarget(arg)
	if err != nil {
		return err
	}
	if strings.Contains(arg, "/") {
		f.targets = append(f.targets, target(addrPort.Addr().String(), addrPort.Port(), protocol.String()))
		return nil
	}
	f.hosts = append(f.hosts, addrPort.String())
	return nil
}

// serviceName completes a Service's name with the namespace.
func serviceName(namespace, arg string) (string, error) {
	space, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		space, name = namespace, arg
	}
	if space == "" || name == "" || strings.Contains(space+name, "/") {
		return "", fmt.Errorf("%q names no Service: write NAMESPACE/NAME, or give --namespace", arg)
	}
	if namespace != "" && space != namespace {
		return "", fmt.Errorf("Service %s is not in the namespace %s that --namespace names", arg, namespace)
	}
	return space + "/" + name, nil
}

// named says that the user asked for something in particular, so that finding
// nothing is worth an exit status.
func (f filter) named() bool { return len(f.names)+len(f.targets)+len(f.hosts) > 0 }

func (f filter) matchesService(service string) bool {
	if f.named() {
		return slices.Contains(f.names, service)
	}
	return f.namespace == "" || strings.HasPrefix(service, f.namespace+"/")
}

func (f filter) matches(service, address string, port uint16, protocol string) bool {
	return f.matchesService(service) || f.matchesTarget(api.HostPort(address, port), protocol)
}

// matchesTarget says whether ADDR:PORT was named, of this protocol or of any.
func (f filter) matchesTarget(at, protocol string) bool {
	return slices.Contains(f.targets, at+"/"+protocol) || slices.Contains(f.hosts, at)
}

// keep returns the elements that a predicate picks; never nil.
func keep[T any](list []T, pick func(T) bool) []T {
	out := []T{}
	for _, element := range list {
		if pick(element) {
			out = append(out, element)
		}
	}
	return out
}

// canonical writes an address as the tables do.
func canonical(address string) (netip.Addr, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q is no IP address", address)
	}
	return a.Unmap(), nil
}
