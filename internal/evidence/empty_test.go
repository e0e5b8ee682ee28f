// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"path/filepath"
	"testing"
	"time"
)

func TestAnEmptyOutputIsNoFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.tar.gz")
	made := time.Date(2026, 1, 3, 12, 0, 0, 0, time.UTC)
	b := &Bundle{Made: made, Records: []Record{
		{Path: "logs/n1/kube-system_proxy_proxy.log", Kind: Log, Node: "n1", Command: "kubectl logs proxy", Time: made},
		{Path: "1/nodes/n1/fairlead-status.json", Kind: FairleadStatus, Node: "n1", Sample: 1, Time: made, Error: "connection refused"},
	}}
	if err := Write(path, b); err != nil {
		t.Fatal(err)
	}
	got, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Records) != 2 {
		t.Fatalf("%d records, want 2", len(got.Records))
	}
	for _, r := range got.Records {
		if want := map[Kind]string{FairleadStatus: "connection refused"}[r.Kind]; r.Error != want {
			t.Errorf("%s: the error is %q, want %q", r.Path, r.Error, want)
		}
	}
}
