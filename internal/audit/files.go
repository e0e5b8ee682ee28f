// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errPipe is what cannot be read a second time: the order of the files is known
// only after a first look.
var errPipe = errors.New("it is no regular file, and logs are read more than once: write it to a file first")

// Files returns the files that paths name: a folder stands for all regular files
// directly in it, by name.
func Files(paths ...string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("open the audit log: %w", err)
		}
		switch {
		case info.Mode().IsRegular():
			files = append(files, path)
			continue
		case !info.IsDir():
			return nil, fmt.Errorf("open the audit log %s: %w", path, errPipe)
		}
		inside, err := regularIn(path)
		if err != nil {
			return nil, fmt.Errorf("open the folder of audit logs: %w", err)
		}
		files = append(files, inside...)
	}
	return files, nil
}

// regularIn lists the regular files of a folder, and links to such. Log
// collectors leave links that lead nowhere.
func regularIn(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no files directly in it: name the folder in which they are", folder)
	}
	return files, nil
}
