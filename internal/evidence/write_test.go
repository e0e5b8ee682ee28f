// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// aBundle draws a bundle as a collection makes it.
func aBundle(t *rapid.T) *Bundle {
	b := &Bundle{Made: when, By: "1.0"}
	for i := range rapid.IntRange(1, 5).Draw(t, "records") {
		r := Record{
			Path: fmt.Sprintf("1/nodes/n%d/dump-%d.txt", i, i), Kind: Dump, Node: fmt.Sprintf("n%d", i), Sample: rapid.IntRange(0, 3).Draw(t, "sample"),
			Command: rapid.StringMatching(`[a-z ]{0,10}`).Draw(t, "command"), Time: when.Add(time.Duration(i) * time.Millisecond), Took: time.Duration(i),
			Cut: rapid.Bool().Draw(t, "cut"),
		}
		if rapid.Bool().Draw(t, "fails") {
			r.Error = "it failed"
		} else {
			r.Content = []byte(rapid.StringMatching(`[a-z]{1,20}\n`).Draw(t, "content"))
		}
		b.Records = append(b.Records, r)
	}
	return b
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		want := aBundle(t)
		n++
		archive, unpacked := filepath.Join(dir, fmt.Sprint(n, ".tar.gz")), filepath.Join(dir, fmt.Sprint(n))
		if err := Write(archive, want); err != nil {
			t.Fatal(err)
		}
		if err := unpack(unpacked, want); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{archive, unpacked} {
			got, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			// Samples stand in their order.
			bySample := &Bundle{Made: want.Made, By: want.By}
			for sample := range 4 {
				for _, r := range want.Records {
					if r.Sample == sample {
						bySample.Records = append(bySample.Records, r)
					}
				}
			}
			if diff := cmp.Diff(bySample, got); diff != "" {
				t.Fatalf("%s: %s", path, diff)
			}
		}
	})
}

// unpack makes the folder that somebody has who unpacked the archive.
func unpack(folder string, b *Bundle) error {
	return contents(b, func(name string, at time.Time, content []byte) error {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
		return os.Chtimes(file, at, at)
	})
}

func TestWrite(t *testing.T) {
	one := &Bundle{Made: when, Records: []Record{{Path: "1/nodes/a/dump.txt", Kind: Dump, Node: "a", Sample: 1, Time: when, Content: []byte(lbList)}}}
	t.Run("only the owner can read it, and equal bundles give equal archives", func(t *testing.T) {
		dir := t.TempDir()
		a, b := filepath.Join(dir, "a.tgz"), filepath.Join(dir, "b.tgz")
		for _, path := range []string{a, b, a} {
			if err := Write(path, one); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(a)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		first, _ := os.ReadFile(a)
		second, _ := os.ReadFile(b)
		if !bytes.Equal(first, second) {
			t.Error("they differ")
		}
		if files, _ := os.ReadDir(dir); len(files) != 2 {
			t.Errorf("files are left over: %v", files)
		}
	})
	t.Run("nothing is written outside, and nothing is left of what fails", func(t *testing.T) {
		for _, path := range []string{"../x", "/x", "bundle.json", "1/nodes/a/dump.txt"} {
			dir := t.TempDir()
			bad := &Bundle{Records: append([]Record{{Path: path, Content: []byte("x")}}, one.Records...)}
			if err := Write(filepath.Join(dir, "b.tgz"), bad); err == nil {
				t.Errorf("%s was written", path)
			}
			if files, _ := os.ReadDir(dir); len(files) != 0 {
				t.Errorf("%s left %v", path, files)
			}
		}
	})
}
