// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// components are the programs of a control plane that the demo starts.
var components = []string{"etcd", "kube-apiserver", "kubectl"}

// FindComponents returns the folder of the programs that a control plane takes:
// the one named, or else the newest that `make components` has built.
func FindComponents(dir string) (string, error) {
	if dir != "" {
		return dir, hasComponents(dir)
	}
	cache := os.Getenv("FAIRLEAD_TEST_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the components of a control plane: %w: name their folder with --components", err)
		}
		cache = filepath.Join(user, "fairlead-test")
	}
	built, err := filepath.Glob(filepath.Join(cache, "kubernetes-v*"))
	if err != nil {
		return "", fmt.Errorf("find the components of a control plane: %w", err)
	}
	slices.SortFunc(built, newestFirst)
	for _, folder := range built {
		if hasComponents(folder) == nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("no %s below %s: run `make components`, or name their folder with --components",
		strings.Join(components, ", "), cache)
}

// newestFirst orders folders by the version at the end of their names; one that
// has none comes last.
func newestFirst(a, b string) int {
	of := func(folder string) *version.Version {
		_, text, _ := strings.Cut(filepath.Base(folder), "-")
		v, err := version.ParseSemantic(text)
		if err != nil {
			return version.MajorMinor(0, 0)
		}
		return v
	}
	if of(a).LessThan(of(b)) {
		return 1
	}
	if of(b).LessThan(of(a)) {
		return -1
	}
	return 0
}

func hasComponents(dir string) error {
	for _, name := range components {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("look for %s: %w: run `make components`, or name their folder with --components", name, err)
		}
	}
	return nil
}
