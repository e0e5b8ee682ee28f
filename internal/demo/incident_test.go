// SPDX-License-Identifier: Apache-2.0

package demo_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/demo"
)

func TestIncident(t *testing.T) {
	binary := build(t)

	t.Run("retention and a way of its own keep everybody connected; without retention one Service is refused", func(t *testing.T) {
		cmd, temp := command(t, binary, "incident-1")
		before := traces(t, temp)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("demo: %v\n%s", err, out)
		}
		for _, want := range []string{
			`service/kubernetes-intranet +LoadBalancer +192\.168\.60\.179 +10\.15\.1\.8 +443:30965/TCP`,
			`endpoints: null`,
			`192\.168\.0\.1:443/TCP +ClusterIP +all +default/kubernetes +https +forward +100\.64\.128\.7:60002\(retained\)`,
			`192\.168\.0\.1:443/TCP +ClusterIP +all +default/kubernetes +https +reject +<none>`,
			`service\.cloud\.tencent\.com/sync-begin-time=`,
			`no drift: api = tables = kernel \(4 frontends\)`,
			`pod +10\.15\.1\.8:443 +[1-9]\d* +0 +held`,
			`kubelet +192\.168\.0\.1:443 +[1-9]\d* +0 +held`,
			`pod +192\.168\.0\.1:443 +[1-9]\d* +[1-9]\d* +connection refused`,
			`pod\[\d+\] +netns \d+ +192\.168\.0\.1:443/TCP +default/kubernetes:https +reject`,
			`All went as told`,
		} {
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("nothing in the output matches %s", want)
			}
		}
		if after := traces(t, temp); !slices.Equal(before, after) {
			t.Errorf("left behind: %v, before: %v", after, before)
		}
		if t.Failed() {
			t.Logf("output:\n%s", out)
		}
	})

	t.Run("after Ctrl-C nothing is left behind", func(t *testing.T) {
		interrupted(t, binary, time.Second, "incident-1")
	})

	t.Run("what does not go as told is a finding", func(t *testing.T) {
		// Its API server ends at once.
		dir := t.TempDir()
		for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
			if err := os.Symlink("/bin/false", filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		cmd, _ := command(t, binary, "incident-1", "--components", dir)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("demo ended with %v, want status 1", err)
		}
		if !strings.Contains(string(out), "kube-apiserver-1 ended at its start") {
			t.Errorf("the output does not say why:\n%s", out)
		}
	})
}

func TestFindComponents(t *testing.T) {
	// complete is a folder with all programs, partial one that lacks some.
	complete := func(t *testing.T, dir string) string {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	partial := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(complete(t, dir), "kubectl")); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("the newest folder that has all of them is taken", func(t *testing.T) {
		cache := t.TempDir()
		t.Setenv("FAIRLEAD_TEST_CACHE", cache)
		complete(t, filepath.Join(cache, "kubernetes-v1.35.4"))
		want := complete(t, filepath.Join(cache, "kubernetes-v1.35.10"))
		partial(t, filepath.Join(cache, "kubernetes-v1.36.0"))
		if got, err := demo.FindComponents(""); err != nil || got != want {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	})

	t.Run("a folder that is named is taken and no other", func(t *testing.T) {
		t.Setenv("FAIRLEAD_TEST_CACHE", t.TempDir())
		want := complete(t, t.TempDir())
		if got, err := demo.FindComponents(want); err != nil || got != want {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	})

	for name, dir := range map[string]func(*testing.T) string{
		"where nothing was built the error says how": func(*testing.T) string { return "" },
		"where a program is missing the error says how to build it": func(t *testing.T) string {
			dir := t.TempDir()
			partial(t, dir)
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAIRLEAD_TEST_CACHE", t.TempDir())
			_, err := demo.FindComponents(dir(t))
			if err == nil || !strings.Contains(err.Error(), "`make components`") || !strings.Contains(err.Error(), "--components") {
				t.Errorf("error %v, want one that names the make target and the flag", err)
			}
		})
	}
}
