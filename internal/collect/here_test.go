// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/evidence"
)

var errNoMaps = errors.New("there are no maps")

func noKernel() (api.Kernel, error) { return api.Kernel{}, errNoMaps }

func TestRun(t *testing.T) {
	t.Run("a program that is not there says what to do", func(t *testing.T) {
		_, err := run(t.Context(), []string{"fairlead-no-such-program"})
		if !errors.Is(err, errNoProgram) || !strings.Contains(err.Error(), "install fairlead-no-such-program") {
			t.Error(err)
		}
	})
	t.Run("a program that fails keeps what it printed, and its reason is one line", func(t *testing.T) {
		out, err := run(t.Context(), []string{"sh", "-c", "echo half; echo no >&2; echo way >&2; exit 3"})
		if string(out.content) != "half\n" || err == nil || err.Error() != "exit status 3: no way" {
			t.Errorf("%q, %v", out.content, err)
		}
	})
	t.Run("output without end is cut at a line", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, err := run(ctx, []string{"sh", "-c", "yes | head -c 70000000"})
		if err != nil || !out.cut || len(out.content) > maxContent || out.content[len(out.content)-1] != '\n' {
			t.Errorf("%d bytes, cut: %v, %v", len(out.content), out.cut, err)
		}
	})
}

func TestSource(t *testing.T) {
	record := evidence.Record{Path: "objects/services.json", Resources: []string{"services"}}
	for name, given := range map[string]struct {
		out      output
		err      error
		complete bool
	}{
		"a whole list says what there is not":    {output{content: []byte("all\n")}, nil, true},
		"a list that failed does not":            {output{}, errNoMaps, false},
		"a list of which a part is left out not": {output{content: []byte("some\n"), cut: true}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := source{record, func(context.Context) (output, error) { return given.out, given.err }}.run(t.Context(), 2)
			if !ok || r.Path != "2/objects/services.json" || (len(r.Resources) > 0) != given.complete || (r.Error != "") != (given.err != nil) {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("what is not there is no record", func(t *testing.T) {
		_, ok := source{record, func(context.Context) (output, error) { return output{}, errNothing }}.run(t.Context(), 1)
		if ok {
			t.Error("there is one")
		}
	})
}

func TestUnique(t *testing.T) {
	records := []evidence.Record{{Path: "1/nodes/n/cilium-status.txt"}, {Path: "1/nodes/n/cilium-status.txt"}, {Path: "2/nodes/n/cilium-status.txt"}}
	unique(records)
	if records[0].Path != "1/nodes/n/cilium-status.txt" || records[1].Path != "1/nodes/n/cilium-status.2.txt" || records[2].Path != "2/nodes/n/cilium-status.txt" {
		t.Errorf("%+v", records)
	}
}

func TestLogFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kube-system_kube-proxy-x_123/kube-proxy/9.log", "2026-01-02T03:04:05Z stderr F old\n")
	write("kube-system_kube-proxy-x_123/kube-proxy/10.log", "2026-01-02T03:04:05.123Z stderr F one line\nno runtime's\n")
	write("shop_web-x_123/app/0.log", "2026-01-02T03:04:05Z stdout F private\n")
	group := (&Here{Node: "n1", Logs: root}).logs()
	if len(group) != 1 {
		t.Fatalf("%d logs, want that of the system's container", len(group))
	}
	r, _ := group[0].run(t.Context(), 0)
	if r.Path != "logs/n1/kube-system_kube-proxy-x_kube-proxy.log" || r.Pod != "kube-system/kube-proxy-x" || string(r.Content) != "2026-01-02T03:04:05.123Z one line\nno runtime's\n" {
		t.Errorf("%+v\n%s", r, r.Content)
	}
}

func TestOwnName(t *testing.T) {
	node := func(name, address string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
	}
	nodes := []corev1.Node{node("n1", "192.0.2.1"), node("n2", "192.0.2.2")}
	for name, given := range map[string]struct {
		host string
		own  map[string]bool
		want string
	}{
		"a node is known by its address":     {"elsewhere", map[string]bool{"192.0.2.2": true}, "n2"},
		"an address is better than a name":   {"n1", map[string]bool{"192.0.2.2": true}, "n2"},
		"a name will do where no address is": {"n1", nil, "n1"},
		"a laptop is no node":                {"laptop", map[string]bool{"198.51.100.1": true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := ownName(nodes, given.host, given.own)
			if got != given.want || found != (given.want != "") {
				t.Errorf("%q, %v", got, found)
			}
		})
	}
}

func TestEitherName(t *testing.T) {
	c := command{argv: []string{"cilium-dbg", "version"}, old: "cilium"}
	var ran []string
	out, err := eitherName(c, func(argv []string) (output, error) {
		ran = append(ran, argv[0])
		if argv[0] == "cilium" {
			return output{content: []byte("Client: 1.14.0")}, nil
		}
		return output{}, failure(errors.New(`exec: "cilium-dbg": executable file not found in $PATH`), "")
	})
	if err != nil || !slices.Equal(ran, []string{"cilium-dbg", "cilium"}) || len(out.content) == 0 {
		t.Errorf("%q, %v", ran, err)
	}
}
