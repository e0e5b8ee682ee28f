// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: here
contexts:
- name: here
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster: {server: "https://192.0.2.1:6443", certificate-authority: ca.crt}
users:
- name: u
  user: {token: secret}
`

func TestRESTConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		write(t, filepath.Join(dir, name), text)
		return filepath.Join(dir, name)
	}
	file("ca.crt", "the file only has to be there")
	config, err := RESTConfig(file("config", kubeconfigText))
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://192.0.2.1:6443" || config.BearerToken != "secret" || config.CAFile != filepath.Join(dir, "ca.crt") {
		t.Errorf("got %+v", config)
	}
	if config.QPS >= 0 || !strings.HasPrefix(config.UserAgent, "fairlead/") {
		t.Errorf("requests are limited to %v a second, from %q", config.QPS, config.UserAgent)
	}
	for _, tc := range []struct {
		name string
		path string
		want string
	}{
		{"no such file", dir + "/none", "reading the kubeconfig " + dir + "/none: "},
		{"not a kubeconfig", file("junk", "\x00"), "reading the kubeconfig " + dir + "/junk: "},
		{"no current context", file("empty", "apiVersion: v1\nkind: Config\n"), "the kubeconfig " + dir + "/empty has no current-context: set one with kubectl config use-context"},
		{"a context that is not there", file("other", strings.Replace(kubeconfigText, "current-context: here", "current-context: there", 1)),
			`using the context "there" of the kubeconfig ` + dir + "/other: "},
	} {
		t.Run("a kubeconfig is refused for "+tc.name, func(t *testing.T) {
			_, err := RESTConfig(tc.path)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	t.Run("outside a cluster the flag is named", func(t *testing.T) {
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		if err := os.Unsetenv("KUBERNETES_SERVICE_HOST"); err != nil {
			t.Fatal(err)
		}
		_, err := RESTConfig("")
		if err == nil || !strings.Contains(err.Error(), "give --kubeconfig") {
			t.Errorf("got %v", err)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
