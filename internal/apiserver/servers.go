// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// parseServer reads the value of --api-server. A value that may hold a password
// is not repeated in the error.
func parseServer(value string) (url.URL, error) {
	u, err := readServer(value)
	if err == nil {
		return u, nil
	}
	if strings.Contains(value, "@") {
		value = "(not shown)"
	}
	return url.URL{}, fmt.Errorf("--api-server %q: %w: give https://HOST[:PORT][/PATH] or ADDRESS:PORT", value, err)
}

func readServer(value string) (url.URL, error) {
	if !strings.Contains(value, "://") {
		at, err := netip.ParseAddrPort(value)
		if err != nil {
			return url.URL{}, errors.New("this is neither a URL nor an address and a port")
		}
		if !usable(at) {
			return url.URL{}, errors.New("no API server can have this address and port")
		}
		return atAddress(at), nil
	}
	u, err := url.Parse(value)
	if err != nil {
		// The whole error repeats the URL.
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return url.URL{}, err
	}
	if u.Scheme != "https" {
		return url.URL{}, errors.New("only https shows who answers")
	}
	return canonical(u)
}

// canonical gives one form to URLs that mean the same place: a lower-case host,
// a port, no slash at the end. A URL with more than that is refused.
func canonical(u *url.URL) (url.URL, error) {
	if u.User != nil {
		return url.URL{}, errors.New("credentials have no place in a URL")
	}
	if u.Opaque != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return url.URL{}, errors.New("a server's URL has no query and no fragment")
	}
	host, err := canonicalHost(u)
	if err != nil {
		return url.URL{}, err
	}
	prefix := strings.TrimRight(u.Path, "/")
	if prefix != "" && (path.Clean(prefix) != prefix || u.RawPath != "") {
		return url.URL{}, fmt.Errorf("the path %q is not a plain one", u.EscapedPath())
	}
	return url.URL{Scheme: u.Scheme, Host: host, Path: prefix}, nil
}

func canonicalHost(u *url.URL) (string, error) {
	port, err := portOf(u)
	if err != nil {
		return "", err
	}
	name := strings.ToLower(u.Hostname())
	if addr, err := netip.ParseAddr(name); err == nil {
		at := netip.AddrPortFrom(addr.Unmap(), port)
		if !usable(at) {
			return "", errors.New("no API server can have this address")
		}
		return at.String(), nil
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("%q is no name of a host", name)
	}
	return net.JoinHostPort(name, strconv.Itoa(int(port))), nil
}

func portOf(u *url.URL) (uint16, error) {
	text := u.Port()
	if text == "" && strings.HasSuffix(u.Host, ":") {
		return 0, errors.New("the port is missing")
	}
	if text == "" && u.Scheme == "http" {
		return 80, nil
	}
	if text == "" {
		return 443, nil
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%s is no port", text)
	}
	return uint16(port), nil
}
