// SPDX-License-Identifier: Apache-2.0

package bugs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHelmKeepsTheVersion runs the command as a person would paste it, with a
// helm that lists a release and otherwise says what it was asked.
func TestHelmKeepsTheVersion(t *testing.T) {
	folder := t.TempDir()
	const helm = `#!/bin/sh
if [ "$1" = list ]; then
	echo '[{"name":"cilium","namespace":"kube-system","revision":"3","status":"deployed","chart":"cilium-1.18.5","app_version":"1.18.5"}]'
else
	echo "$@"
fi
`
	if err := os.WriteFile(filepath.Join(folder, "helm"), []byte(helm), 0o755); err != nil {
		t.Fatal(err)
	}
	const want = "upgrade cilium cilium/cilium --namespace kube-system --version 1.18.5 --reuse-values --set k8sServiceHost=169.254.128.7 --set k8sServicePort=60002\n"
	for name, version := range map[string]string{"the version that runs is named": "1.18.5", "a version that is not known is asked for": ""} {
		t.Run(name, func(t *testing.T) {
			shell := exec.Command("sh", "-c", SetCilium("kube-system", version, "k8sServiceHost=169.254.128.7", "k8sServicePort=60002"))
			shell.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
			out, err := shell.CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%v\nhave %swant %s", err, out, want)
			}
		})
	}
}
