// SPDX-License-Identifier: Apache-2.0

// Package helm runs the real helm, which test/components builds, against a
// test's API server, with charts that are a part of this package.
//
// The charts name facts of the ones that people install, such as the roles of
// Cilium, and are written for tests: their pods run nowhere. The package knows
// nothing of Fairlead's own packages.
package helm

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-io/fairlead/test/kube"
	"github.com/fairlead-io/fairlead/test/lab"
)

//go:embed charts
var charts embed.FS

// Helm is helm with folders of its own, apart from the user's.
type Helm struct {
	t       testing.TB
	place   lab.Place
	program string
	home    string
	cluster *kube.Cluster
}

// New makes a helm for a cluster, which runs at a place from which the cluster
// can be reached.
func New(t testing.TB, cluster *kube.Cluster, place lab.Place) *Helm {
	t.Helper()
	return &Helm{t: t, place: place, program: cluster.Program("helm"), home: t.TempDir(), cluster: cluster}
}

// Program is helm's path.
func (h *Helm) Program() string { return h.program }

// Run runs helm as the cluster's administrator, and returns what it printed. It
// must succeed.
func (h *Helm) Run(args ...string) string {
	h.t.Helper()
	return h.place.Run(h.t, "env", append([]string{
		"HELM_CACHE_HOME=" + h.home, "HELM_CONFIG_HOME=" + h.home, "HELM_DATA_HOME=" + h.home,
		h.program, "--kubeconfig=" + h.cluster.Kubeconfig}, args...)...)
}

// Install installs a chart of this package as a release, without waiting for
// pods, and makes the namespace if there is none.
func (h *Helm) Install(namespace, release, chart string, more ...string) {
	h.t.Helper()
	h.Run(append([]string{"install", release, Chart(h.t, chart), "--namespace", namespace, "--create-namespace"}, more...)...)
}

// Chart writes a chart of this package into a folder, and returns it: cilium,
// with roles as Cilium's chart has them, or shop, with an object of every kind
// that takes care to make again.
func Chart(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	chart, err := fs.Sub(charts, "charts/"+name)
	if err == nil {
		err = os.CopyFS(dir, chart)
	}
	if err != nil {
		t.Fatalf("write the chart %s: %v", name, err)
	}
	return dir
}
