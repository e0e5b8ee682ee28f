// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packed is an archive of one of the formats, by its suffix.
func packed(t *testing.T, suffix string, headers []tar.Header, contents []string) string {
	t.Helper()
	var out bytes.Buffer
	switch suffix {
	case ".zip":
		w := zip.NewWriter(&out)
		for i, h := range headers {
			info := h.FileInfo()
			zh, err := zip.FileInfoHeader(info)
			if err != nil {
				t.Fatal(err)
			}
			zh.Name, zh.Method = h.Name, zip.Deflate
			f, err := w.CreateHeader(zh)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(f, contents[i])
		}
		w.Close()
	default:
		var into io.WriteCloser = nopCloser{&out}
		if suffix != ".tar" {
			into = gzip.NewWriter(&out)
		}
		w := tar.NewWriter(into)
		for i, h := range headers {
			h.Size = int64(len(contents[i]))
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, contents[i])
		}
		w.Close()
		into.Close()
	}
	path := filepath.Join(t.TempDir(), "bundle"+suffix)
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func regular(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, ModTime: when}
}

var suffixes = []string{".tar", ".tar.gz", ".zip"}

func TestArchives(t *testing.T) {
	for _, suffix := range suffixes {
		t.Run("the same records come out of "+suffix, func(t *testing.T) {
			path := packed(t, suffix, []tar.Header{{Typeflag: tar.TypeDir, Name: "b/", Mode: 0o700}, regular("b/1/nodes/a/dump.txt"), regular("b/1/objects/services.yaml")}, []string{"", lbList, services})
			b, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			want := "1 dump 1/nodes/a/dump.txt|a||||cilium-dbg bpf lb list|\n1 objects 1/objects/services.yaml||||services|kubectl get services --all-namespaces -o json|"
			if diff := cmp.Diff(want, summary(b)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("one file is a bundle of one file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lb.txt")
		if err := os.WriteFile(path, []byte(lbList), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if err != nil || len(b.Records) != 1 || b.Records[0].Kind != Dump {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("a text of several files is one, too", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "incident.txtar")
		text := "# time 1: 2026-01-03T23:17:00Z\n-- 1/nodes/a/dump.txt --\n" + lbList
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path)
		if err != nil || len(b.Records) != 1 || b.Made.Hour() != 23 || !b.Records[0].Time.Equal(b.Made) {
			t.Errorf("%v, %v", b, err)
		}
	})
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{
		"../../etc/cron.d/x", "/etc/passwd", "1/../../x", "1/nodes/a/..", "1//dump", `..\..\x`, "1/nodes/a/\x1b[2Jdump", "1/nodes/\u202ea/dump", "a\x00b", strings.Repeat("a/", 600) + "x", ".", "",
	} {
		for _, suffix := range suffixes {
			if strings.Contains(name, "\x00") && suffix != ".zip" {
				continue // no tar can hold it
			}
			t.Run(fmt.Sprintf("%.40q in %s", name, suffix), func(t *testing.T) {
				b, err := Open(packed(t, suffix, []tar.Header{regular("1/nodes/a/dump.txt"), regular(name)}, []string{lbList, "x"}))
				if err != nil {
					t.Fatal(err)
				}
				if len(b.Records) != 1 || len(b.Warnings) != 1 {
					t.Errorf("records %s, warnings %q", summary(b), b.Warnings)
				}
			})
		}
	}
}

func TestHostileKinds(t *testing.T) {
	links := []tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "1/version.json", Linkname: "/etc/passwd"},
		{Typeflag: tar.TypeLink, Name: "1/access.json", Linkname: "/etc/passwd"},
		{Typeflag: tar.TypeChar, Name: "1/nodes/a/conntrack.txt", Devmajor: 1, Devminor: 5},
		{Typeflag: tar.TypeFifo, Name: "1/nodes/a/cilium-status.txt"},
	}
	t.Run("links and devices in a tar are left out", func(t *testing.T) {
		b, err := Open(packed(t, ".tar", append(links, regular("1/nodes/a/dump.txt")), []string{"", "", "", "", lbList}))
		if err != nil || len(b.Records) != 1 || len(b.Warnings) != 4 {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("links in a zip are left out", func(t *testing.T) {
		link := tar.Header{Typeflag: tar.TypeSymlink, Name: "1/version.json", Linkname: "/etc/passwd", Mode: 0o777}
		b, err := Open(packed(t, ".zip", []tar.Header{link, regular("1/nodes/a/dump.txt")}, []string{"/etc/passwd", lbList}))
		if err != nil || len(b.Records) != 1 || len(b.Warnings) != 1 {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("links in a folder are left out, wherever they lead", func(t *testing.T) {
		dir := t.TempDir()
		secret := filepath.Join(t.TempDir(), "secret")
		for path, text := range map[string]string{secret: "x", filepath.Join(dir, "1/nodes/a/dump.txt"): lbList} {
			os.MkdirAll(filepath.Dir(path), 0o700)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, link := range []string{"1/version.json", "1/nodes/b"} {
			if err := os.Symlink(filepath.Dir(secret), filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		b, err := Open(dir)
		if err != nil || len(b.Records) != 1 || len(b.Warnings) != 2 {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("the first of two files of one name counts", func(t *testing.T) {
		for _, suffix := range suffixes {
			b, err := Open(packed(t, suffix, []tar.Header{regular("1/nodes/a/dump.txt"), regular("./1/nodes/a/dump.txt")}, []string{lbList, "x"}))
			if err != nil || len(b.Records) != 1 || string(b.Records[0].Content) != lbList || len(b.Warnings) != 1 {
				t.Errorf("%s: %v, %v", suffix, b, err)
			}
		}
	})
}

// zeros is a text that packs well.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// bomb is an archive with a file of some size, all alike.
func bomb(t *testing.T, suffix string, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bomb"+suffix)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if suffix == ".zip" {
		w := zip.NewWriter(file)
		f, err := w.Create("1/nodes/a/dump.txt")
		if err != nil {
			t.Fatal(err)
		}
		io.CopyN(f, zeros{}, size)
		w.Close()
		return path
	}
	z := gzip.NewWriter(file)
	w := tar.NewWriter(z)
	h := regular("1/nodes/a/dump.txt")
	h.Size = size
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	io.CopyN(w, zeros{}, size)
	w.Close()
	z.Close()
	return path
}

func TestBombs(t *testing.T) {
	for _, suffix := range []string{".tar.gz", ".zip"} {
		t.Run("an archive that grows a thousand times is refused: "+suffix, func(t *testing.T) {
			_, err := Open(bomb(t, suffix, 2*easy))
			if err == nil || !strings.Contains(err.Error(), "grows to more than 300 times") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("small ones are nobody's harm", func(t *testing.T) {
		if b, err := Open(bomb(t, ".tar.gz", 1<<20)); err != nil || len(b.Records) != 1 {
			t.Errorf("%v", err)
		}
	})
	t.Run("a file of 2 GB with nothing in it is left out", func(t *testing.T) {
		dir := t.TempDir()
		os.MkdirAll(filepath.Join(dir, "1/nodes/a"), 0o700)
		os.WriteFile(filepath.Join(dir, "1/nodes/a/dump.txt"), []byte(lbList), 0o600)
		sparse, err := os.Create(filepath.Join(dir, "1/nodes/a/dump-2.txt"))
		if err != nil {
			t.Fatal(err)
		}
		defer sparse.Close()
		if err := sparse.Truncate(2 << 30); err != nil {
			t.Fatal(err)
		}
		b, err := Open(dir)
		if err != nil || len(b.Records) != 2 || !strings.Contains(b.Records[0].Error, "2147483648 bytes") || b.Records[0].Content != nil {
			t.Errorf("%v, %v", b, err)
		}
	})
	t.Run("a file in a zip that lies about its size is bounded by what comes out", func(t *testing.T) {
		path := bomb(t, ".zip", 2*easy)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// The list of files says a small size.
		at := bytes.LastIndex(text, []byte("PK\x01\x02"))
		copy(text[at+24:], []byte{16, 0, 0, 0})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := Open(path); err == nil && b.Records[0].Error == "" {
			t.Error("it was read")
		}
	})
	t.Run("an archive of very many files is refused", func(t *testing.T) {
		l := newLoader(0)
		var err error
		for i := 0; err == nil; i++ {
			err = l.take(entry{name: fmt.Sprint("f", i), regular: true, open: func() (io.Reader, error) { return strings.NewReader(""), nil }})
		}
		if len(l.files) != maxFiles {
			t.Errorf("%d files", len(l.files))
		}
		if _, err := l.finish(err); err == nil {
			t.Error("it was read")
		}
	})
	t.Run("warnings are bounded", func(t *testing.T) {
		l := newLoader(0)
		for range 2 * maxWarnings {
			l.take(entry{name: "../x", regular: true})
		}
		l.take(entry{name: "1/nodes/a/dump.txt", regular: true, open: func() (io.Reader, error) { return strings.NewReader(lbList), nil }})
		b, err := l.finish(nil)
		if err != nil || len(b.Warnings) != maxWarnings+1 {
			t.Errorf("%d, %v", len(b.Warnings), err)
		}
	})
}

func TestBrokenArchives(t *testing.T) {
	for _, suffix := range suffixes {
		t.Run("half an archive gives what it has, or one clear line: "+suffix, func(t *testing.T) {
			path := packed(t, suffix, []tar.Header{regular("1/nodes/a/dump.txt"), regular("1/nodes/b/dump.txt")}, []string{lbList, strings.Repeat(lbList, 1000)})
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for cut := range len(text) {
				if cut%97 != 0 {
					continue
				}
				if err := os.WriteFile(path, text[:cut], 0o600); err != nil {
					t.Fatal(err)
				}
				b, err := Open(path)
				if err != nil && (strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "open the bundle "+path+": ")) {
					t.Errorf("cut at %d: %v", cut, err)
				}
				if err == nil && len(b.Records) == 0 {
					t.Errorf("cut at %d: no records and no error", cut)
				}
			}
		})
	}
	for name, text := range map[string]string{
		"an empty file": "", "noise": "\x1f\x8bnoise", "a zip without a list": "PK\x03\x04", "xz": "\xfd7zXZ\x00", "zstd": "\x28\xb5\x2f\xfd",
		"an index that is no JSON": "-- bundle.json --\n{\n", "an index of a later version": "-- bundle.json --\n{\"format\": 2}\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "b.txtar")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("what is not there", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "no")
		if _, err := Open(path); err == nil || err.Error() != "open the bundle "+path+": no such file or directory" {
			t.Errorf("%v", err)
		}
	})
}

// FuzzOpen holds that no file makes it fail otherwise than with an error.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(lbList), "a.txt")
	f.Add([]byte("-- bundle.json --\n{\"format\":1,\"records\":[{\"path\":\"x\",\"sample\":-1}]}\n-- 1/nodes/a/dump --\n"), "a.txtar")
	for _, suffix := range suffixes {
		var out bytes.Buffer
		if suffix == ".zip" {
			w := zip.NewWriter(&out)
			file, _ := w.Create("1/version.json")
			io.WriteString(file, "{}")
			w.Close()
		} else {
			w := tar.NewWriter(&out)
			h := regular("1/version.json")
			h.Size = 2
			w.WriteHeader(&h)
			io.WriteString(w, "{}")
			w.Close()
		}
		f.Add(out.Bytes(), "b"+suffix)
	}
	f.Fuzz(func(t *testing.T, content []byte, name string) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x"+filepath.Ext(strings.ToValidUTF8(filepath.Base(name), "")))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return // the name is none
		}
		b, err := Open(path)
		if err == nil && len(b.Records) == 0 {
			t.Error("no records and no error")
		}
		if files, _ := os.ReadDir(dir); len(files) != 1 {
			t.Errorf("it wrote %v", files)
		}
	})
}
