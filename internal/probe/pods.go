// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PodNamespaces finds the network namespaces of pods by the cgroups of their
// processes, which are named after the pod's UID. It returns a path for each UID
// that was found; pods in the host's network, which is at the path host, are left
// out. Proc is where the node's processes are listed: /proc, which in a pod are
// the node's only with hostPID.
func PodNamespaces(proc, host string, uids []string) (map[string]string, error) {
	processes, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("list the processes of the node: %w", err)
	}
	own, err := os.Readlink(host)
	if err != nil {
		return nil, fmt.Errorf("look at the host's network namespace (this takes CAP_SYS_PTRACE): %w", err)
	}
	found := map[string]string{}
	for _, process := range processes {
		if len(found) == len(uids) {
			break
		}
		if _, err := strconv.Atoi(process.Name()); err != nil {
			continue
		}
		folder := filepath.Join(proc, process.Name())
		// What fails is of a process that has ended.
		text, err := os.ReadFile(filepath.Join(folder, "cgroup"))
		if err != nil {
			continue
		}
		uid, ok := podOf(string(text), uids)
		if _, have := found[uid]; !ok || have {
			continue
		}
		path := filepath.Join(folder, "ns/net")
		if at, err := os.Readlink(path); err == nil && at != own {
			found[uid] = path
		}
	}
	return found, nil
}

// podOf tells whose process it is by its cgroups. The systemd driver writes the
// UID with underscores.
func podOf(cgroups string, uids []string) (uid string, ok bool) {
	for _, uid := range uids {
		if uid == "" {
			continue
		}
		if strings.Contains(cgroups, "pod"+uid) || strings.Contains(cgroups, "pod"+strings.ReplaceAll(uid, "-", "_")) {
			return uid, true
		}
	}
	return "", false
}
