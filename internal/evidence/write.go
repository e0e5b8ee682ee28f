// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/redact"
)

// Write writes a bundle as an archive .tar.gz that only its owner can read. It
// replaces a file of the name in one step, so that no half archive is ever seen
// there. What is secret in the records is left out. Equal bundles give equal
// archives.
func Write(name string, b *Bundle) error {
	if err := replace(name, func(w io.Writer) error { return writeArchive(w, b) }); err != nil {
		return fmt.Errorf("write the bundle %s: %w", name, cause(err))
	}
	return nil
}

// replace writes a file beside the one that it replaces.
func replace(name string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			file.Close()
			os.Remove(file.Name())
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

func writeArchive(w io.Writer, b *Bundle) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	packed := gzip.NewWriter(buffered)
	archive := tar.NewWriter(packed)
	err := contents(b, func(name string, at time.Time, content []byte) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: at.Truncate(time.Second)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	})
	return cmp.Or(err, archive.Close(), packed.Close(), buffered.Flush())
}

// contents gives the files of a bundle, the index first. A record without
// content is in the index only.
func contents(b *Bundle, write func(name string, at time.Time, content []byte) error) error {
	records := slices.Clone(b.Records)
	slices.SortStableFunc(records, func(x, y Record) int { return cmp.Compare(x.Sample, y.Sample) })
	if err := checkPaths(records); err != nil {
		return err
	}
	secrets := redact.New()
	for i := range records {
		r := &records[i]
		r.Error, r.Command = redact.Text(r.Error), redact.Text(r.Command)
		r.Content = withoutSecrets(secrets, r)
	}
	text, err := json.MarshalIndent(indexFile{format, b.Made.UTC(), b.By, records}, "", " ")
	if err != nil {
		return err
	}
	if err := write(index, b.Made, append(text, '\n')); err != nil {
		return err
	}
	for i := range records {
		if r := &records[i]; len(r.Content) > 0 || r.Error == "" {
			if err := write(r.Path, r.Time, r.Content); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPaths refuses what could not be read again.
func checkPaths(records []Record) error {
	seen := map[string]bool{index: true}
	for i := range records {
		name := records[i].Path
		clean, err := safeName(name)
		switch {
		case err != nil:
			return fmt.Errorf("the record %q: %w", name, err)
		case clean != name || seen[name]:
			return fmt.Errorf("the record %q has no path of its own", name)
		}
		seen[name] = true
	}
	return nil
}

// withoutSecrets is the content of a record as others may see it.
func withoutSecrets(secrets *redact.Redactor, r *Record) []byte {
	switch r.Kind {
	case Objects:
		return secrets.Objects(r.Content)
	case Dump: // a Service may be called token: its row must stay
		return []byte(redact.Tokens(string(r.Content)))
	case Log, Unknown:
		return []byte(redact.Text(string(r.Content)))
	}
	return secrets.Content(r.Content)
}
