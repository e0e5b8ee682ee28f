// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// largeBundle has the objects of many pods, and a long log.
func largeBundle() *Bundle {
	var pods []string
	for i := range 10_000 {
		pods = append(pods, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop","labels":{"app":"web"}},"spec":{"nodeName":"node-%d","containers":[{"name":"web","image":"registry.example.org/web:1.0","args":["--port=8080"],"env":[{"name":"MODE","value":"a"}]}]},"status":{"phase":"Running","podIP":"10.1.%d.%d"}}`, i, i%100, i>>8&255, i&255))
	}
	line := "2026-01-03T12:00:00.123456789Z level=info msg=\"Regenerated endpoint\" containerID=9f86d08188 endpointID=3098 identity=5 subsys=endpoint\n"
	return &Bundle{Made: when, Records: []Record{
		{Path: "1/objects/pods.json", Kind: Objects, Resources: []string{"pods"}, Sample: 1, Time: when, Content: []byte(`{"kind":"List","apiVersion":"v1","items":[` + strings.Join(pods, ",\n") + "]}")},
		{Path: "logs/a/kube-system_cilium-x_agent.log", Kind: Log, Node: "a", Pod: "kube-system/cilium-x", Container: "agent", Time: when, Content: []byte(strings.Repeat(line, 20_000))},
	}}
}

// Budget: 1 s for 3 MB of objects and 3 MB of logs, of which most goes into
// looking for secrets.
func BenchmarkWrite(b *testing.B) {
	path := filepath.Join(b.TempDir(), "b.tgz")
	bundle := largeBundle()
	for b.Loop() {
		if err := Write(path, bundle); err != nil {
			b.Fatal(err)
		}
	}
}

// Budget: 100 ms for the same.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "b.tgz")
	if err := Write(path, largeBundle()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Open(path); err != nil {
			b.Fatal(err)
		}
	}
}
