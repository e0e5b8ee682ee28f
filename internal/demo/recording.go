// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/deploy"
	"github.com/fairlead-io/fairlead/internal/journal"
)

// What a recording consists of. Each API server has an audit log of its own.
const (
	journalFile = "journal.db"
	policyFile  = "audit-policy.yaml"
	auditLogs   = "audit"
)

// auditPolicy is like those of most clusters: every write with its object, but
// for what servers write only to say that they are alive.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// recorderRights bind the roles of deploy/recorder.yaml to the recorder's user.
const recorderRights = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fairlead-recorder-demo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fairlead-recorder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + recorderUser + `}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fairlead-recorder-demo, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: fairlead-recorder}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + recorderUser + `}]
`

// MakeRecordingFolder makes the folder in which a recording stays. It must be
// new or empty, so that no other recording mixes with it.
func MakeRecordingFolder(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("keep a recording: %w", err)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make a folder for the recording: %w", err)
	}
	there, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("keep a recording: %w", err)
	}
	if len(there) > 0 {
		return "", fmt.Errorf("keep a recording in %s: it is not empty: name a folder that is, or none that exists", path)
	}
	if err := os.WriteFile(filepath.Join(path, policyFile), []byte(auditPolicy), 0o600); err != nil {
		return "", fmt.Errorf("keep a recording: %w", err)
	}
	if err := os.Mkdir(filepath.Join(path, auditLogs), 0o700); err != nil {
		return "", fmt.Errorf("keep a recording: %w", err)
	}
	return path, nil
}

// auditFlags let a server note what it is asked, if that is to be kept.
func (p *plane) auditFlags(name string) []string {
	if p.keep == "" {
		return nil
	}
	return []string{
		"--audit-policy-file=" + filepath.Join(p.keep, policyFile),
		"--audit-log-path=" + filepath.Join(p.keep, auditLogs, name+".log"),
	}
}

// record lets a recorder watch from a machine of the control plane's network, if
// a recording is to be kept. It begins before the first API server stops.
func (i *incident) record(ctx context.Context) error {
	if i.plane.keep == "" {
		return nil
	}
	i.title("A recorder watches, and the API servers note what they are asked")
	if _, err := i.plane.kubectl(deploy.Recorder+recorderRights, "apply", "--server-side", "--filename=-"); err != nil {
		return err
	}
	config, err := i.plane.kubeconfig(recorderUser, i.plane.at.String())
	if err != nil {
		return err
	}
	args := []string{"record", "--journal", filepath.Join(i.plane.keep, journalFile), "--kubeconfig", config, "--quiet"}
	i.say("The journal and the audit logs stay in %s:\n\n$ fairlead %s", i.plane.keep, strings.Join(args, " "))
	cmd := exec.Command(i.self, args...)
	cmd.Env = without(os.Environ(), stageVariable)
	cmd.Stdout, cmd.Stderr = i.errOut, i.errOut
	if i.recorder, err = startIn(i.plane.ns, "", cmd); err != nil {
		return err
	}
	return i.until("the recorder to have seen default/kubernetes", func() (bool, error) { return i.recorded(ctx) })
}

func (i *incident) recorded(ctx context.Context) (bool, error) {
	j, err := journal.Open(filepath.Join(i.plane.keep, journalFile))
	if err != nil {
		return false, err
	}
	defer j.Close()
	_, found, err := j.Last(ctx, "endpointslices", "default", "kubernetes", time.Now())
	return found, err
}

// keepRecording ends the recorder, and says what can be asked of what it wrote.
func (i *incident) keepRecording() error {
	if i.recorder == nil {
		return nil
	}
	if err := i.recorder.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return fmt.Errorf("end the recorder: %w", err)
	}
	<-i.recorder.done
	if i.recorder.err != nil {
		return fmt.Errorf("the recorder: %w", i.recorder.err)
	}
	i.say("The recording is in %s. docs/howto-incident.md reads it; to begin with:\n\n$ fairlead replay %s --check",
		i.plane.keep, filepath.Join(i.plane.keep, journalFile))
	return nil
}
