// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"os"
	"path/filepath"
)

// Version is the Kubernetes version of the programs: the one that the go.mod
// of test/components requires.
const Version = "v1.35.4"

// programs returns the folder of the programs that test/components builds.
func programs() (string, error) {
	cache := os.Getenv("FAIRLEAD_TEST_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the programs of the test cluster: %w; set FAIRLEAD_TEST_CACHE to their folder", err)
		}
		cache = filepath.Join(user, "fairlead-test")
	}
	dir := filepath.Join(cache, "kubernetes-"+Version)
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("find the programs of the test cluster: %w; build them with `make components`", err)
		}
	}
	return dir, nil
}
