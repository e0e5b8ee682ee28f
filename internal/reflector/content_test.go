// SPDX-License-Identifier: Apache-2.0

package reflector

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The folder itself, without inotify: whatever happens to the files, what the
// handler holds is what a fresh reading finds while all files are whole, and
// an error in a file takes nothing away (R31).
func TestContentFollowsAnyHistory(t *testing.T) {
	parse, err := newParser()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		r := newRecorder()
		c := newContent(&folder{dir: dir, nodeName: "n1", log: discard()}, parse, r)
		broken := make(map[string]bool)
		clock := time.Now().Add(-time.Hour)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			name := rapid.SampledFrom([]string{"a.yaml", "b.yaml", "c.yaml"}).Draw(rt, "file")
			path := filepath.Join(dir, name)
			before := len(r.deleted)
			change := rapid.SampledFrom([]string{"write", "write", "break", "refuse", "delete"}).Draw(rt, "change")
			switch change {
			case "write":
				write(t, path, drawManifest(rt))
			case "break":
				write(t, path, drawManifest(rt)+"---\n{ broken")
			case "refuse":
				write(t, path, service("i", 0)+"---\n"+service("j", 0)+"---\n"+service("k", 0))
			case "delete":
				_ = os.RemoveAll(path)
			}
			broken[name] = change == "break" || change == "refuse"
			// Every write gets a time of its own, as it has in life.
			clock = clock.Add(time.Second)
			_ = os.Chtimes(path, clock, clock)
			c.refresh(rapid.Bool().Draw(rt, "settled"))
			c.refresh(true)

			if broken[name] && len(r.deleted) > before {
				rt.Fatalf("%s of %s deleted %v", change, name, r.deleted[before:])
			}
			if broken["a.yaml"] || broken["b.yaml"] || broken["c.yaml"] {
				continue
			}
			fresh, _, err := ReadFiles([]string{dir}, nil)
			if err != nil {
				rt.Fatal(err)
			}
			if got := r.ports(); got != summary(fresh) {
				rt.Fatalf("the handler holds %q, the folder %q", got, summary(fresh))
			}
		}
	})
}

// drawManifest is a whole file with some of three Services.
func drawManifest(t *rapid.T) string {
	text := "# nothing yet\n"
	for _, name := range []string{"i", "j", "k"} {
		if rapid.Bool().Draw(t, name) {
			text += fmt.Sprintf("---\n%s", service(name, rapid.IntRange(1, 9).Draw(t, "port")))
		}
	}
	return text
}
