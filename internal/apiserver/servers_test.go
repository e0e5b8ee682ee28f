// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseServer(t *testing.T) {
	for _, tc := range []struct{ value, want string }{
		{"https://API.Example.com", "https://api.example.com:443"},
		{"https://api.example.com:6443/", "https://api.example.com:6443"},
		{"https://rancher.example/k8s/clusters/c-1", "https://rancher.example:443/k8s/clusters/c-1"},
		{"https://192.0.2.1", "https://192.0.2.1:443"},
		{"https://[2001:DB8::1]:6443", "https://[2001:db8::1]:6443"},
		{"https://[::ffff:192.0.2.1]:6443", "https://192.0.2.1:6443"},
		{"192.0.2.1:6443", "https://192.0.2.1:6443"},
		{"[2001:db8:0:0::1]:6443", "https://[2001:db8::1]:6443"},
		{"169.254.20.1:443", "https://169.254.20.1:443"},
	} {
		t.Run("a server is read from "+tc.value, func(t *testing.T) {
			if u, err := parseServer(tc.value); err != nil || u.String() != tc.want {
				t.Errorf("got %s, %v; want %s", u.String(), err, tc.want)
			}
		})
	}
	const help = ": give https://HOST[:PORT][/PATH] or ADDRESS:PORT"
	for _, tc := range []struct{ value, want string }{
		{"", `--api-server "": this is neither a URL nor an address and a port`},
		{"192.0.2.1", `--api-server "192.0.2.1": this is neither a URL nor an address and a port`},
		{"api.example.com:6443", `--api-server "api.example.com:6443": this is neither a URL nor an address and a port`},
		{"192.0.2.1:0", `--api-server "192.0.2.1:0": no API server can have this address and port`},
		{"0.0.0.0:6443", `--api-server "0.0.0.0:6443": no API server can have this address and port`},
		{"[fe80::1%eth0]:6443", `--api-server "[fe80::1%eth0]:6443": no API server can have this address and port`},
		{"http://192.0.2.1:8080", `--api-server "http://192.0.2.1:8080": only https shows who answers`},
		{"https://", `--api-server "https://": "" is no name of a host`},
		{"https://under_score:1", `--api-server "https://under_score:1": "under_score" is no name of a host`},
		{"https://h:", `--api-server "https://h:": the port is missing`},
		{"https://h:0", `--api-server "https://h:0": 0 is no port`},
		{"https://h:70000", `--api-server "https://h:70000": 70000 is no port`},
		{"https://h/../x", `--api-server "https://h/../x": the path "/../x" is not a plain one`},
		{"https://h/a%2fb", `--api-server "https://h/a%2fb": the path "/a%2fb" is not a plain one`},
		{"https://h?a=b", `--api-server "https://h?a=b": a server's URL has no query and no fragment`},
		{"https://224.0.0.1", `--api-server "https://224.0.0.1": no API server can have this address`},
		{"https://me:hunter2@h", `--api-server "(not shown)": credentials have no place in a URL`},
		{"https://me:hunter2@h:x", `--api-server "(not shown)": invalid port ":x" after host`},
		{"me:hunter2@192.0.2.1:1", `--api-server "(not shown)": this is neither a URL nor an address and a port`},
	} {
		t.Run("a server is refused for "+tc.value, func(t *testing.T) {
			_, err := parseServer(tc.value)
			if err == nil || err.Error() != tc.want+help {
				t.Errorf("got %v\nwant %s%s", err, tc.want, help)
			}
		})
	}
}

func TestParseServerProperties(t *testing.T) {
	t.Run("every address and port has one URL, and comes back from it", rapid.MakeCheck(func(t *rapid.T) {
		var addr netip.Addr
		if b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address"); rapid.Bool().Draw(t, "IPv4") {
			addr = netip.AddrFrom4([4]byte(b[:4]))
		} else {
			addr = netip.AddrFrom16([16]byte(b)).Unmap()
		}
		want := netip.AddrPortFrom(addr, rapid.Uint16().Draw(t, "port"))
		short, err := parseServer(want.String())
		if (err == nil) != usable(want) {
			t.Fatalf("%s: %v", want, err)
		}
		if err != nil {
			return
		}
		long, err := parseServer("https://" + want.String() + "/")
		if err != nil || long != short {
			t.Fatalf("%s and %s, %v", short.String(), long.String(), err)
		}
		if got, ok := (endpoint{url: short}).address(); !ok || got != want {
			t.Fatalf("%s became %s", want, got)
		}
	}))
}

func FuzzParseServer(f *testing.F) {
	for _, seed := range []string{"", "https://h", "[::1]:1", "https://[::1%25x]:1/a/b", "https://a@b", "https://h:1/%2f", "https:////", "1.2.3.4:5", "https://h\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		u, err := parseServer(value)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") || !strings.HasPrefix(err.Error(), "--api-server ") {
				t.Errorf("%q: %q", value, err)
			}
			return
		}
		again, err := parseServer(u.String())
		if err != nil || again != u {
			t.Errorf("%q became %q, and that %q, %v", value, u.String(), again.String(), err)
		}
		if u.Scheme != "https" || u.User != nil || u.Hostname() == "" || u.Port() == "" {
			t.Errorf("%q became %#v", value, u)
		}
	})
}

func TestKubeconfigServer(t *testing.T) {
	for _, tc := range []struct{ server, want string }{
		{"https://me:hunter2@192.0.2.1", "credentials have no place in a URL"},
		{"https://me:hunter2@192.0.2.1:x", "it is no URL"},
		{"https://192.0.2.1?token=hunter2", "a server's URL has no query and no fragment"},
	} {
		t.Run("a kubeconfig's server is refused, and no secret shown: "+tc.want, func(t *testing.T) {
			cfg := newAuthority(t).withKubeconfig(quick(), tc.server)
			_, err := New(cfg)
			want := fmt.Sprintf("reading the server's URL in the kubeconfig %s: %s", cfg.Kubeconfig, tc.want)
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sources []Source
		own     string
		want    string
	}{
		{"the kubeconfig's own server must have its host", []Source{kubeconfig}, "h", "[h]"},
		{"the kubeconfig's own server must have its tls-server-name", []Source{kubeconfig}, "n", "[n]"},
		{"a Service address in a pod must have that address", []Source{pod}, "h", "[h]"},
		{"a flag's server has its host, the name that all have, or that of the kubeconfig's", []Source{flag}, "own", "[h kubernetes.default.svc own]"},
		{"a learned one has a name that nobody but API servers has", []Source{Slices, Kernel, File}, "own", "[kubernetes.default.svc own]"},
		{"a server that several sources name may have any of their names", []Source{kubeconfig, Slices}, "h", "[h kubernetes.default.svc]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := endpoint{url: url.URL{Scheme: "https", Host: "h:443"}, sources: tc.sources}
			if got := fmt.Sprint(e.names(tc.own)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
