// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// followed starts to follow a folder with these files and waits for the first
// list.
func followed(t *testing.T, files map[string]string) (string, *recorder) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "manifests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	r := newRecorder()
	r.run(t, NewFolder(dir, "n1", discard()))
	r.awaitListed(t)
	return dir, r
}

// replace writes a file as careful editors do: beside it, then renamed over it.
func replace(t *testing.T, path, text string) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	write(t, temporary, text)
	rename(t, temporary, path)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// pass lets the folder become quiet, for tests that expect nothing to happen.
func pass() { time.Sleep(5 * quiet) }

func TestFolderListsOnce(t *testing.T) {
	_, r := followed(t, map[string]string{
		"a.yaml": service("a", 80) + "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n2}\n",
		"b.yaml": service("b", 81),
	})
	r.awaitPorts(t, "default/a:80 default/b:81")
	if len(r.batches) != 1 || len(r.batches[0]) != 3 {
		t.Errorf("the first list came in %d calls: %v", len(r.batches), r.batches)
	}
	if got := fmt.Sprint(r.listed); got != "[Service EndpointSlice Node]" {
		t.Errorf("listed %s", got)
	}
	if got := r.batches[0][2]; got.Node == nil || got.Name.Name != "n1" {
		t.Errorf("another node than this one: %v", r.batches[0])
	}
}

func TestFolderIsEmpty(t *testing.T) {
	_, r := followed(t, nil)
	if len(r.batches) != 0 {
		t.Errorf("got %v", r.batches)
	}
}

func TestFolderFollows(t *testing.T) {
	// Each step changes the folder; after it the services are as told, and the
	// deletions so far are exactly those told.
	type step struct {
		do      func(t *testing.T, dir string)
		want    string
		problem string // "" = none at all
		deleted []string
	}
	in := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { write(t, filepath.Join(dir, name), text) }
	}
	over := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { replace(t, filepath.Join(dir, name), text) }
	}
	gone := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { remove(t, filepath.Join(dir, name)) }
	}
	for _, tc := range []struct {
		name  string
		start map[string]string
		steps []step
	}{
		{"a file that is written, renamed over, and deleted", nil, []step{
			{do: in("a.yaml", service("a", 80)), want: "default/a:80"},
			{do: in("a.yaml", service("a", 81)), want: "default/a:81"},
			{do: over("a.yaml", service("a", 82)), want: "default/a:82"},
			{do: gone("a.yaml"), want: "", deleted: []string{"Service default/a"}},
		}},
		{"a document that is taken out", map[string]string{"a.yaml": service("a", 80) + "---\n" + service("b", 81)}, []step{
			{do: over("a.yaml", service("b", 81)), want: "default/b:81", deleted: []string{"Service default/a"}},
		}},
		{"a broken file keeps its last good content until it is whole again",
			map[string]string{"a.yaml": service("a", 80) + "---\n" + service("b", 81), "c.yaml": service("c", 82)}, []step{
				{do: in("a.yaml", service("a", 90)+"---\nb: :\n  - ]"), want: "default/a:80 default/b:81 default/c:82", problem: "a.yaml:10: document 2: is not valid YAML"},
				{do: in("c.yaml", service("c", 83)), want: "default/a:80 default/b:81 default/c:83", problem: "a.yaml:10: document 2: is not valid YAML"},
				{do: in("a.yaml", service("a", 91)), want: "default/a:91 default/c:83", deleted: []string{"Service default/b"}},
			}},
		{"an object that is refused keeps its last good content, and its file works on",
			map[string]string{"a.yaml": service("a", 80) + "---\n" + service("b", 81)}, []step{
				{do: in("a.yaml", service("a", 70000)+"---\n"+service("b", 91)), want: "default/a:80 default/b:91", problem: "a.yaml:8: document 1: Service default/a: spec.ports[0].port"},
				{do: in("a.yaml", service("a", 70000)+"---\nb: :\n  - ]"), want: "default/a:80 default/b:91", problem: "is not valid YAML"},
				{do: in("a.yaml", service("a", 92)+"---\n"+service("b", 91)), want: "default/a:92 default/b:91"},
			}},
		{"an object whose type or name cannot be read keeps its last good content",
			map[string]string{"a.yaml": service("a", 80)}, []step{
				{do: in("a.yaml", strings.Replace(service("a", 80), "port: 80", "port: web", 1)), want: "default/a:80", problem: "a string stands where a whole number is expected"},
				{do: in("a.yaml", strings.Replace(service("a", 80), "name: a", "nmae: a", 1)), want: "default/a:80", problem: "the name is missing"},
				{do: in("a.yaml", strings.Replace(service("a", 80), "kind: Service", "kind: Servcie", 1)), want: "default/a:80", problem: `"Servcie" is no kind of v1`},
				{do: in("a.yaml", service("a", 81)), want: "default/a:81"},
			}},
		{"a file that is broken from the start gives what can be read, and loses nothing by more errors", nil, []step{
			{do: in("a.yaml", service("a", 80)+"---\nb: :\n  - ]"), want: "default/a:80", problem: "document 2: is not valid YAML"},
			{do: in("a.yaml", "a: :\n  - ]\n---\n"+service("b", 81)), want: "default/a:80 default/b:81", problem: "document 1: is not valid YAML"},
			{do: in("a.yaml", service("b", 82)), want: "default/b:82", deleted: []string{"Service default/a"}},
		}},
		{"the first file by name holds an object, and the next one takes over",
			map[string]string{"a.yaml": service("x", 80), "b.yaml": service("x", 81)}, []step{
				{do: func(*testing.T, string) {}, want: "default/x:80", problem: "b.yaml:1: document 1: Service default/x: ignored: the one of "},
				{do: gone("a.yaml"), want: "default/x:81"},
				{do: in("a.yaml", service("x", 82)), want: "default/x:82", problem: "b.yaml:1: document 1"},
			}},
		{"another kind of the same name elsewhere does not keep an object alive",
			map[string]string{"a.yaml": "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: x}\n", "b.yaml": service("x", 81)}, []step{
				{do: gone("b.yaml"), want: "", problem: "another kind of object", deleted: []string{"Service default/x"}},
			}},
		{"a file that becomes unreadable keeps its last good content",
			map[string]string{"a.yaml": service("a", 80)}, []step{
				{do: over("a.yaml", "\x00\x01\x02"), want: "default/a:80", problem: "a.yaml: is not text: byte 0x00 at offset 0"},
				{do: over("a.yaml", service("a", 81)), want: "default/a:81"},
			}},
		{"a file that cannot be opened keeps its last good content",
			map[string]string{"a.yaml": service("a", 80)}, []step{
				{do: func(t *testing.T, dir string) {
					if err := os.Symlink("a.yaml", filepath.Join(dir, ".loop")); err != nil {
						t.Fatal(err)
					}
					rename(t, filepath.Join(dir, ".loop"), filepath.Join(dir, "a.yaml"))
				}, want: "default/a:80", problem: "a.yaml: cannot be read: too many levels of symbolic links"},
				{do: over("a.yaml", service("a", 81)), want: "default/a:81"},
			}},
		{"a file that stays empty is believed in the end", map[string]string{"a.yaml": service("a", 80)}, []step{
			{do: in("a.yaml", ""), want: "", deleted: []string{"Service default/a"}},
		}},
		{"a folder of the name of a manifest holds nothing", nil, []step{
			{do: func(t *testing.T, dir string) {
				if err := syscall.Mkfifo(filepath.Join(dir, "p.yaml"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700); err != nil {
					t.Fatal(err)
				}
			}, want: ""},
			{do: in("a.yaml", service("a", 80)), want: "default/a:80"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, r := followed(t, tc.start)
			for _, s := range tc.steps {
				s.do(t, dir)
				r.await(t, fmt.Sprintf("services %q with problem %q", s.want, s.problem), func() bool {
					if s.problem == "" && len(r.problems) > 0 {
						return false
					}
					return r.ports() == s.want && (s.problem == "" || r.saysProblem(s.problem))
				})
				if s.deleted != nil {
					r.wantDeleted(t, s.deleted...)
				}
			}
			if last := tc.steps[len(tc.steps)-1]; last.deleted == nil {
				r.wantDeleted(t)
			}
		})
	}
}

func TestFolderNeverPassesThroughAbsent(t *testing.T) {
	for _, tc := range []struct {
		name   string
		within time.Duration
		start  map[string]string
		do     func(t *testing.T, dir string)
		want   string
	}{
		{"a file that is truncated and written after a while", emptyGrace, map[string]string{"a.yaml": service("a", 80)},
			func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "a.yaml"), "")
				time.Sleep(emptyGrace / 2)
				write(t, filepath.Join(dir, "a.yaml"), service("a", 81))
			}, "default/a:81"},
		{"a file that is written piece by piece", quiet, map[string]string{"a.yaml": service("a", 80) + "---\n" + service("b", 80)},
			func(t *testing.T, dir string) {
				f, err := os.Create(filepath.Join(dir, "a.yaml"))
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				for _, piece := range []string{service("a", 81), "---\n", service("b", 81)} {
					if _, err := f.WriteString(piece); err != nil {
						t.Fatal(err)
					}
					time.Sleep(quiet / 10)
				}
			}, "default/a:81 default/b:81"},
		{"a file that is moved away and written anew", quiet, map[string]string{"a.yaml": service("a", 80)},
			func(t *testing.T, dir string) {
				rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "a.yaml~"))
				write(t, filepath.Join(dir, "a.yaml"), service("a", 81))
				remove(t, filepath.Join(dir, "a.yaml~"))
			}, "default/a:81"},
		{"an object that moves from one file to another, both renamed over", quiet,
			map[string]string{"a.yaml": service("a", 80) + "---\n" + service("x", 80), "b.yaml": service("b", 80)},
			func(t *testing.T, dir string) {
				replace(t, filepath.Join(dir, "a.yaml"), service("a", 80))
				replace(t, filepath.Join(dir, "b.yaml"), service("b", 80)+"---\n"+service("x", 81))
			}, "default/a:80 default/b:80 default/x:81"},
		{"an object that moves to a file of another name", quiet, map[string]string{"a.yaml": service("x", 80)},
			func(t *testing.T, dir string) {
				rename(t, filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"))
				write(t, filepath.Join(dir, "b.yaml"), service("x", 81))
			}, "default/x:81"},
	} {
		t.Run(tc.name+" (R4)", func(t *testing.T) {
			t.Parallel()
			// On a busy machine a change may take longer than the folder waits
			// for it; that says nothing, and is tried again.
			for range 20 {
				dir, r := followed(t, tc.start)
				began := time.Now()
				tc.do(t, dir)
				took := time.Since(began)
				r.awaitPorts(t, tc.want)
				if took >= tc.within {
					continue
				}
				pass()
				r.wantDeleted(t)
				return
			}
			t.Fatalf("this machine never made the change within %s", tc.within)
		})
	}
}

func TestFolderActsAtOnceOnReplacedFiles(t *testing.T) {
	dir, r := followed(t, map[string]string{"a.yaml": service("a", 80) + "---\n" + service("b", 80)})
	best := time.Hour
	for i := range 20 {
		began := time.Now()
		replace(t, filepath.Join(dir, "a.yaml"), service("a", 100+i))
		r.await(t, "the new port", func() bool { return strings.HasPrefix(r.ports(), fmt.Sprintf("default/a:%d", 100+i)) })
		best = min(best, time.Since(began))
		pass()
	}
	if best >= quiet {
		t.Errorf("the fastest of 20 changes took %s, which is not at once", best)
	}
	r.wantDeleted(t, "Service default/b")
}

func TestFolderFollowsLinkSwaps(t *testing.T) {
	// The kubelet mounts a ConfigMap as links to files below ..data, which is a
	// link to a folder, and exchanges that link.
	dir := t.TempDir()
	for version, port := range map[string]int{"..v1": 80, "..v2": 81} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "a.yaml"), service("a", port))
	}
	for from, to := range map[string]string{"..data": "..v1", "a.yaml": "..data/a.yaml", "..next": "..v2"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRecorder()
	r.run(t, NewFolder(dir, "n1", discard()))
	r.awaitPorts(t, "default/a:80")
	rename(t, filepath.Join(dir, "..next"), filepath.Join(dir, "..data"))
	r.awaitPorts(t, "default/a:81")
	r.wantDeleted(t)
}

func TestFolderThatVanishesIsStaleNotEmpty(t *testing.T) {
	t.Run("moved away and back (R31)", func(t *testing.T) {
		t.Parallel()
		dir, r := followed(t, map[string]string{"a.yaml": service("a", 80)})
		rename(t, dir, dir+".away")
		r.await(t, "stale", func() bool { return r.trouble[KindService] != nil && r.trouble[KindNode] != nil })
		write(t, filepath.Join(dir+".away", "a.yaml"), service("a", 81))
		rename(t, dir+".away", dir)
		r.awaitPorts(t, "default/a:81")
		r.await(t, "healed", func() bool { return r.trouble[KindService] == nil })
		write(t, filepath.Join(dir, "b.yaml"), service("b", 82))
		r.awaitPorts(t, "default/a:81 default/b:82")
		r.wantDeleted(t)
	})
	t.Run("deleted and made anew (R31)", func(t *testing.T) {
		t.Parallel()
		dir, r := followed(t, map[string]string{"a.yaml": service("a", 80)})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r.await(t, "stale", func() bool { return r.trouble[KindEndpointSlice] != nil })
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		r.await(t, "an empty folder in its place told", func() bool {
			return strings.Contains(fmt.Sprint(r.trouble[KindService]), "has been replaced by an empty one")
		})
		write(t, filepath.Join(dir, "a.yaml"), service("a", 81))
		r.awaitPorts(t, "default/a:81")
		r.await(t, "healed", func() bool { return r.trouble[KindService] == nil })
		r.wantDeleted(t)
	})
	t.Run("replaced through a link (R31)", func(t *testing.T) {
		t.Parallel()
		dir, r := followed(t, map[string]string{"a.yaml": service("a", 80)})
		other := t.TempDir()
		write(t, filepath.Join(other, "a.yaml"), service("a", 81))
		rename(t, dir, dir+".away")
		if err := os.Symlink(other, dir); err != nil {
			t.Fatal(err)
		}
		r.awaitPorts(t, "default/a:81")
		r.wantDeleted(t)
	})
}

func TestFolderThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for path, want := range map[string]string{
		dir + "/none": "watching the folder of manifests: stat " + dir + "/none: no such file or directory",
		dir + "/file": "watching the folder of manifests: " + dir + "/file is not a folder",
	} {
		err := NewFolder(path, "n1", discard()).Run(context.Background(), newRecorder())
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFolderList(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), service("a", 80)+"---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: n2}\n---\nkind: x")
	source := NewFolder(dir, "n1", discard())
	objects, problems, err := source.List(context.Background())
	if got := summary(objects); err != nil || got != "default/a:80 node n1" {
		t.Errorf("got %q, %v", got, err)
	}
	wantProblems(t, problems, "apiVersion: the apiVersion is missing")
	if source.String() != dir {
		t.Errorf("the source calls itself %s", source)
	}
}

func TestInotifyLimitsAreNamed(t *testing.T) {
	for err, want := range map[syscall.Errno]string{
		syscall.EMFILE: "too many open files: raise the sysctl fs.inotify.max_user_instances, or the limit of open files",
		syscall.ENOSPC: "no space left on device: raise the sysctl fs.inotify.max_user_watches",
		syscall.EACCES: "permission denied",
	} {
		if got := explain(err).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
