// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead-io/fairlead/internal/failpoint"
)

// Write replaces the file at path by one that holds the content. Whatever stops
// it, a later Read finds the old file whole or the new one. Its folder is made
// if it is missing.
func Write(path string, c Content) error {
	text, err := encode(c)
	if err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("write the state file %s: %w", path, err)
	}
	return nil
}

func replace(path string, text []byte) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return errNotRegular(info.Mode())
	}
	folder, err := openFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := removeLeftovers(folder, path); err != nil {
		return err
	}
	beside, err := writeBeside(path, text)
	if err != nil {
		return err
	}
	failpoint.Hit("statefile: written")
	if err := os.Rename(beside, path); err != nil {
		return errors.Join(err, os.Remove(beside))
	}
	failpoint.Hit("statefile: renamed")
	// Until then a power cut may undo the renaming, though not half of it.
	return folder.Sync()
}

// openFolder opens a folder, and makes it if it is missing.
func openFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	failpoint.Hit("statefile: folder made")
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return os.Open(path)
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// besidePrefix begins the names of what is being written for path.
func besidePrefix(path string) string { return "." + filepath.Base(path) + ".writing-" }

// removeLeftovers removes what was being written when an agent was killed.
func removeLeftovers(folder *os.File, path string) error {
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, besidePrefix(path)) {
			continue
		}
		if err := os.Remove(filepath.Join(folder.Name(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// writeBeside puts the text on the disk in a file of its own, which only its
// owner may read, and returns the path.
func writeBeside(path string, text []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), besidePrefix(path))
	if err != nil {
		return "", err
	}
	failpoint.Hit("statefile: made")
	_, err = f.Write(text)
	failpoint.Hit("statefile: not yet on the disk")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
