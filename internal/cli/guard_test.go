// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/test/kube"
)

// TestGuardAnswersAnAPIServer runs the guard as a user does who has it outside of
// the cluster: what it prints is applied, and what it serves is asked.
func TestGuardAnswersAnAPIServer(t *testing.T) {
	cluster := kube.Start(t)
	at, metrics := freeAddress(t), freeAddress(t)
	status, manifests, errOut := fairlead(t, "", "guard", "manifests", "--url", "https://"+at+"/validate")
	if status != exitFine {
		t.Fatal(errOut)
	}
	cluster.Apply(manifests)
	dir := t.TempDir()
	args := []string{"fairlead", "guard", "--listen", at, "--metrics-bind-address", metrics, "--kubeconfig", cluster.Kubeconfig}
	for flag, key := range map[string]string{"--tls-cert": `tls\.crt`, "--tls-key": `tls\.key`} {
		text := cluster.Kubectl("get", "secret", "-n", "kube-system", "fairlead-guard", "-o", "jsonpath={.data."+key+"}")
		content, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, flag)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, flag, file)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() { ended <- Main(ctx, args, strings.NewReader(""), io.Discard, &log) }()
	await(t, "http://"+metrics+"/metrics", "fairlead_guard_judging 1")
	cluster.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: unused, labels: {fairlead.io/guard: "on"}}, rules: []}`)
	cluster.Kubectl("delete", "clusterrole", "unused")
	await(t, "http://"+metrics+"/metrics", `fairlead_guard_reviews_total{verdict="allowed"} 1`)
	stop()
	if status := <-ended; status != exitFine {
		t.Errorf("exit status %d", status)
	}
	if text := log.String(); !strings.Contains(text, `"msg":"all kinds are read: deletes are judged from now on"`) || strings.Contains(text, `"level":"ERROR"`) {
		t.Error(text)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await asks a page until it has a line.
func await(t *testing.T, url, line string) {
	t.Helper()
	var last string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		answer, err := http.Get(url)
		if err != nil {
			last = fmt.Sprint(err)
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if last = string(text); err == nil && strings.Contains(last, line) {
			return
		}
	}
	t.Fatalf("%s does not have %q after a minute: %s", url, line, last)
}
