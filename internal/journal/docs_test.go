// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// rows runs a query and writes each row as a line.
func rows(t *testing.T, j *Journal, query string) string {
	t.Helper()
	found, err := j.read.Query(query)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	defer found.Close()
	names, err := found.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for found.Next() {
		cells, to := make([]any, len(names)), make([]any, len(names))
		for i := range cells {
			to[i] = &cells[i]
		}
		if err := found.Scan(to...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, cells...)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func documentation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/journal.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheQueriesOfTheDocumentationAnswer(t *testing.T) {
	j := create(t, filepath.Join(t.TempDir(), "j"), Options{})
	appendAll(t, j, story()...)
	if err := j.AppendGap(t.Context(), Gap{Kind: services, Began: start, Ended: start.Add(1500 * time.Millisecond), Reason: "410"}); err != nil {
		t.Fatal(err)
	}
	relist := List{Kind: slicesOf, Began: start, Reason: "410"}
	for _, e := range []error{begin(t, j, &relist), end(t, j, &relist, 1500*time.Millisecond, 7)} {
		if e != nil {
			t.Fatal(e)
		}
	}
	queries := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(documentation(t), -1)
	want := []string{
		"2023-11-14T22:13:22.000Z kube-apiserver [{\"addresses\":[\"10.0.0.1\"]}] null\n",
		" Service 2\nkube-apiserver EndpointSlice 2\n",
		"default kubernetes listed {\"spec\":{}}\n",
		"Service 2023-11-14T22:13:20.000Z 1.5 410\n",
		"EndpointSlice 2023-11-14T22:13:20.000Z 1.5 7 0 410\n",
	}
	if len(queries) != len(want) {
		t.Fatalf("%d queries, want %d", len(queries), len(want))
	}
	for i, query := range queries {
		if got := rows(t, j, query[1]); got != want[i] {
			t.Errorf("%s\nanswers %q, want %q", query[1], got, want[i])
		}
	}
}

func TestEveryTableViewAndColumnIsDocumented(t *testing.T) {
	j, text := create(t, filepath.Join(t.TempDir(), "j"), Options{}), documentation(t)
	columns := strings.Fields(rows(t, j, `SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c WHERE s.type IN ('table', 'view')`))
	if len(columns) < 60 {
		t.Fatalf("columns %q", columns)
	}
	for _, name := range append(columns, fmt.Sprint(applicationID)) {
		if !strings.Contains(text, "`"+name) && !strings.Contains(text, "`\""+name+"\"`") && !strings.Contains(text, "is "+name) {
			t.Errorf("docs/journal.md does not name %s", name)
		}
	}
}
