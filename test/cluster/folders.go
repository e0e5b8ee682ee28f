// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-io/fairlead/test/kube"
)

// folders says where everything is: what was built, in a cache that stays;
// what a cluster needs while it runs; what is left of it to read.
type folders struct {
	cache    string
	checkout string
}

// newFolders takes the cache that the build scripts take if none is named.
func newFolders(cache string) (folders, error) {
	checkout, err := os.Getwd()
	if err != nil {
		return folders{}, err
	}
	if cache == "" {
		cache = os.Getenv("FAIRLEAD_TEST_CACHE")
	}
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return folders{}, fmt.Errorf("find the programs of the cluster: %w; name their folder with -cache", err)
		}
		cache = filepath.Join(user, "fairlead-test")
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return folders{}, err
	}
	return folders{cache, checkout}, nil
}

// program is one that test/components builds.
func (f folders) program(name string) string {
	return filepath.Join(f.cache, "kubernetes-"+kube.Version, name)
}

func (f folders) images() string { return filepath.Join(f.cache, "cluster", "images.tar") }

// run is the folder that goes away with the cluster; logs and reports stay
// until the next.
func (f folders) run(names ...string) string { return f.below("run", names) }
func (f folders) logs() string               { return f.below("logs", nil) }
func (f folders) reports() string            { return f.below("reports", nil) }

// replayReport is what the replay found, and notes is the folder of what its
// pods saw.
func (f folders) replayReport() string { return filepath.Join(f.reports(), "replay.json") }
func (f folders) notes() string        { return filepath.Join(f.reports(), "replay") }

func (f folders) below(folder string, names []string) string {
	return filepath.Join(append([]string{f.cache, "cluster", folder}, names...)...)
}

// fairlead is a copy, which stays what it is if the checkout is built again.
func (f folders) fairlead() string { return f.run("fairlead") }

// built, rbac, results and page belong to the checkout.
func (f folders) built() string   { return filepath.Join(f.checkout, "bin", "fairlead") }
func (f folders) rbac() string    { return filepath.Join(f.checkout, "deploy", "rbac.yaml") }
func (f folders) results() string { return filepath.Join(f.checkout, "test", "cluster", "results") }
func (f folders) page() string    { return filepath.Join(f.checkout, "docs", "conformance.md") }

// check says what is missing before anything is started.
func (f folders) check() error {
	for _, path := range []string{f.images(), f.built(), f.rbac(), f.program("e2e.test"), f.program("ginkgo"), f.program("kubelet")} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w; `make e2e`, from the root of the checkout, builds what is missing", err)
		}
	}
	return nil
}
