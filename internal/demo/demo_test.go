// SPDX-License-Identifier: Apache-2.0

package demo_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/cgroup"
)

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fairlead")
	out, err := exec.Command("go", "build", "-o", binary, "github.com/fairlead-io/fairlead/cmd/fairlead").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// traces are what a demo could leave behind: cgroups, folders, processes.
func traces(t *testing.T, temp string) []string {
	t.Helper()
	root, err := cgroup.Root()
	if err != nil {
		t.Fatal(err)
	}
	cgroups, _ := filepath.Glob(filepath.Join(root, "fairlead-demo-*"))
	folders, _ := filepath.Glob(filepath.Join(temp, "*"))
	return append(cgroups, folders...)
}

func command(t *testing.T, binary string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	// A socket's path must be short.
	temp, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(temp) })
	cmd := exec.Command(binary, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	return cmd, temp
}

func TestDemo(t *testing.T) {
	binary := build(t)

	t.Run("everything goes as the rows say, and the incident fails no connection", func(t *testing.T) {
		cmd, temp := command(t, binary)
		before := traces(t, temp)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("demo: %v\n%s", err, out)
		}
		for _, want := range []string{
			`10\.96\.0\.80:80/TCP +shop/web +forward +answered by 10\.0\.[12]\.7:8080`,
			`10\.96\.0\.10:53/UDP +kube-system/kube-dns +forward +answered by 10\.0\.[12]\.53:53`,
			`10\.96\.0\.95:80/TCP +shop/idle +reject +connection refused`,
			`port https: backend 100\.64\.7\.21:60443 went`,
			`no drift: api = tables = kernel`,
			`kubernetes-intranet during the incident: [1-9]\d* connections succeeded, 0 failed`,
			`198\.51\.100\.44:443 answered by 100\.64\.7\.21:60443`,
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
		// Any moment will do; this one is in the middle of the first scene.
		interrupted(t, binary, 300*time.Millisecond)
	})
}

// interrupted runs a demo and stops it amid what it does.
func interrupted(t *testing.T, binary string, after time.Duration, args ...string) {
	t.Helper()
	cmd, temp := command(t, binary, args...)
	before := traces(t, temp)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "interrupted") {
		t.Errorf("demo ended with %v, output:\n%s", err, out.String())
	}
	if after := traces(t, temp); !slices.Equal(before, after) {
		t.Errorf("left behind: %v, before: %v", after, before)
	}
}
