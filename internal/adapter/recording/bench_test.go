// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkRecording finds and reads one iptables-save of 5000 Services with
// three endpoints each, nearly 6 MB.
//
// Budget: 500 ms.
func BenchmarkRecording(b *testing.B) {
	var text bytes.Buffer
	text.WriteString("# time: 2026-11-20T10:00:00Z\n*nat\n")
	for i := range 5000 {
		low := fmt.Sprintf("%d.%d", i>>8, i&255)
		fmt.Fprintf(&text, "-A KUBE-SERVICES -d 10.96.%s/32 -p tcp -m comment --comment \"shop/s%d:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-%d\n", low, i, i)
		for j := range 3 {
			fmt.Fprintf(&text, "-A KUBE-SVC-%d -m comment --comment \"shop/s%d:http -> 10.%d.%s:8080\" -m statistic --mode random --probability 0.33333333349 -j KUBE-SEP-%d-%d\n", i, i, j+1, low, i, j)
			fmt.Fprintf(&text, "-A KUBE-SEP-%d-%d -s 10.%d.%s/32 -m comment --comment \"shop/s%d:http\" -j KUBE-MARK-MASQ\n", i, j, j+1, low, i)
			fmt.Fprintf(&text, "-A KUBE-SEP-%d-%d -p tcp -m comment --comment \"shop/s%d:http\" -m tcp -j DNAT --to-destination 10.%d.%s:8080\n", i, j, i, j+1, low)
		}
	}
	text.WriteString("COMMIT\n")
	path := filepath.Join(b.TempDir(), "node.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		r, err := Open(path, time.UTC)
		if err != nil {
			b.Fatal(err)
		}
		d := r.Sections[0].Dump()
		if len(d.Frontends) != 5000 || len(d.Frontends[4999].Backends) != 3 || len(d.Problems) > 0 {
			b.Fatalf("%d frontends, problems %v", len(d.Frontends), d.Problems)
		}
		r.Close()
	}
}
