// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	type row struct {
		service, address string
		port             uint16
		protocol         string
	}
	web := row{"shop/web", "10.96.0.80", 80, "TCP"}
	tests := []struct {
		name      string
		namespace string
		args      []string
		matches   bool
	}{
		{"without arguments everything matches", "", nil, true},
		{"the namespace alone", "shop", nil, true},
		{"another namespace", "sho", nil, false},
		{"the full name", "", []string{"shop/web"}, true},
		{"the name in its namespace", "shop", []string{"web"}, true},
		{"a name that is a prefix (cilium#43619)", "", []string{"shop/we"}, false},
		{"one of several names", "", []string{"shop/api", "shop/web"}, true},
		{"the address of any protocol", "", []string{"10.96.0.80:80"}, true},
		{"the address and its protocol", "", []string{"10.96.0.80:80/tcp"}, true},
		{"the address and another protocol (R27)", "", []string{"10.96.0.80:80/UDP"}, false},
		{"another port", "", []string{"10.96.0.80:8"}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := newFilter(test.namespace, test.args, true)
			if err != nil {
				t.Fatal(err)
			}
			if got := f.matches(web.service, web.address, web.port, web.protocol); got != test.matches {
				t.Errorf("matches %v, want %v", got, test.matches)
			}
		})
	}
}

// FuzzArguments: whatever a user writes where a Service or an address is
// expected is taken, or refused in one line.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{"shop/web", "web", "10.96.0.80:80/UDP", "[fd00::1]:80", "a/b/c", "/", ":", "10.0.0.1", "x:y/z"} {
		f.Add("", seed)
		f.Add("shop", seed)
		f.Add("shop/", seed)
	}
	f.Fuzz(func(t *testing.T, namespace, arg string) {
		filter, err := newFilter(namespace, []string{arg}, true)
		if err != nil {
			if strings.Contains(oneLine(err), "\n") {
				t.Errorf("%q is refused in several lines: %v", arg, err)
			}
			return
		}
		if !filter.named() {
			t.Errorf("%q is taken for nothing", arg)
		}
		for _, name := range filter.names {
			if strings.Count(name, "/") != 1 {
				t.Errorf("%q is taken for the Service %q", arg, name)
			}
		}
	})
}

// FuzzCompile: no input makes the program panic, or print what is no answer.
func FuzzCompile(f *testing.F) {
	f.Add("")
	f.Add("apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: b}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n")
	f.Add(`{"apiVersion":"v1","kind":"List","items":[{"kind":"Service","apiVersion":"v1"},null,7]}`)
	f.Add("kind: [\n---\n\x00")
	f.Fuzz(func(t *testing.T, manifest string) {
		status, out, errOut := fairlead(t, manifest, "compile", "-f", "-", "--node-name", "n1", "-o", "json")
		if status == exitFailed || !strings.HasPrefix(out, "[") {
			t.Errorf("exit status %d, stdout %q, stderr %q", status, out, errOut)
		}
		lines := strings.Split(strings.TrimSuffix(errOut, "\n"), "\n")
		if errOut != "" && slices.ContainsFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "fairlead: ") }) {
			t.Errorf("a problem takes more than one line: %q", errOut)
		}
	})
}
