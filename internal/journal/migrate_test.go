// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// formatOne is a copy of a journal that a version with format 1 recorded: two
// runs, in which twelve events of Services and EndpointSlices, one of a Node and
// two of a Lease came, and two gaps.
func formatOne(t testing.TB) (path string) {
	t.Helper()
	text, err := os.ReadFile("testdata/format-1.db")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// told is all that a journal tells, and its format.
type told struct {
	Format int
	Events []Event
	Gaps   []Gap
	Lists  []List
	From   int64
}

func tell(t testing.TB, path string) (all told) {
	t.Helper()
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	all = told{Format: j.format, Events: collect(t, j, Filter{})}
	if all.Gaps, err = j.Gaps(t.Context(), Filter{}); err != nil {
		t.Fatal(err)
	}
	if all.Lists, err = j.Lists(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all.From, err = j.ListsFrom(t.Context()); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAJournalOfFormat1IsReadAsItIs(t *testing.T) {
	path := formatOne(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := tell(t, path)
	if all.Format != 1 || len(all.Events) != 14 || len(all.Gaps) != 2 || all.Lists != nil || all.From != math.MaxInt64 {
		t.Fatalf("%+v", all)
	}
	at := time.Date(2026, 11, 20, 10, 0, 1, 0, time.UTC)
	want := Event{
		ID: 5, Time: at.Add(500 * time.Millisecond), Kind: slicesOf, Namespace: "default", Name: "web-1", UID: "web-1", ResourceVersion: "15",
		Type: Modified, Manager: "tester", Operation: "Update", Subresource: "status", ManagedAt: at,
		Diff:    []Change{{Path: "/endpoints/1", Op: "add", New: []byte(`{"addresses":["10.0.1.2"],"conditions":{"ready":true}}`)}},
		Content: all.Events[4].Content,
	}
	if diff := cmp.Diff(want, all.Events[4]); diff != "" || !strings.Contains(string(want.Content), "10.0.1.2") {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if after, err := os.ReadFile(path); err != nil || string(before) != string(after) {
		t.Errorf("who read it changed it: %v", err)
	}
}

func TestAJournalOfFormat1ThatIsAppendedToBecomesOneOfThisFormat(t *testing.T) {
	path := formatOne(t)
	before := tell(t, path)
	reader, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	j := create(t, path, Options{})
	migrated := before
	migrated.Format = format
	if diff := cmp.Diff(migrated, tell(t, path)); diff != "" {
		t.Fatalf("what it told is not the same any more (-want +got)\n%s", diff)
	}
	began := before.Events[13].Time.Add(time.Hour)
	list := List{Kind: services, Began: began, Reason: ListStart}
	if list.ID, err = j.BeginList(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	more := story()
	for i := range more {
		more[i].List = list.ID
	}
	appendAll(t, j, more...)
	list.Ended, list.ResourceVersion, list.Objects = began.Add(time.Second), "99", 2
	if err := j.EndList(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range more {
		more[i].ID += 14
	}
	list.LastEvent = 18
	migrated.Events, migrated.Lists, migrated.From = append(migrated.Events, more...), []List{list}, 15
	if diff := cmp.Diff(migrated, tell(t, path)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := rows(t, reader, "PRAGMA user_version"); got != "2\n" {
		t.Errorf("it says format %s", got)
	}
	// Whoever was reading as the format changed goes on.
	for i := range more {
		more[i].List = 0
	}
	if diff := cmp.Diff(more, collect(t, reader, Filter{After: 14})); diff != "" {
		t.Errorf("a reader from before (-want +got)\n%s", diff)
	}
}

func TestAMigratedJournalHasTheSchemaOfANewOne(t *testing.T) {
	const all = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
	old, fresh := create(t, formatOne(t), Options{}), create(t, filepath.Join(t.TempDir(), "j"), Options{})
	if diff := cmp.Diff(rows(t, fresh, all), rows(t, old, all)); diff != "" {
		t.Errorf("(-new +migrated)\n%s", diff)
	}
}

// migrateForGood does all of a migration, and never commits it.
func migrateForGood(path string) error {
	j := &Journal{path: path, kinds: map[Kind]int64{}, objects: map[object]int64{}}
	ctx := context.Background()
	if err := j.connect(ctx); err != nil {
		return err
	}
	return j.transact(ctx, func() error {
		if err := j.begin(ctx); err != nil {
			return err
		}
		fmt.Println("migrated")
		select {}
	})
}

func TestAMigrationThatIsKilledBeforeItIsCommittedLeavesTheOldFormat(t *testing.T) {
	path := formatOne(t)
	before := tell(t, path)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), migrateVariable+"="+path)
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "migrated" {
		t.Fatal(lines.Text())
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if diff := cmp.Diff(before, tell(t, path)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	appendAll(t, create(t, path, Options{}), story()...)
	if all := tell(t, path); all.Format != format || len(all.Events) != 14+4 {
		t.Errorf("the next one made it %+v", all)
	}
}

func TestAMigrationThatIsKilledAtAnyMomentLeavesOneFormatOrTheOther(t *testing.T) {
	seen := map[int]int{}
	for round := range 40 {
		path := formatOne(t)
		before := tell(t, path)
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), appendVariable+"="+path)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// It takes some 15 ms to begin, and 10 ms to migrate.
		time.Sleep(time.Duration(round) * time.Millisecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		after := tell(t, path)
		seen[after.Format]++
		if diff := cmp.Diff(before.Events, after.Events[:14]); diff != "" || len(after.Gaps) != 2 || after.Format != 1 && after.Format != format {
			t.Fatalf("round %d: format %d, %v (-want +got)\n%s", round, after.Format, after.Gaps, diff)
		}
		if err := create(t, path, Options{}).Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	t.Logf("rounds by the format that was left: %v", seen)
}

// A schema is read as a whole. It has to fit the first page: what a migration
// adds beyond that stands at the end of the file, where it is lost first.
func TestAMigratedJournalThatIsCutOffGivesItsBeginning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	execute(t, path, fmt.Sprintf(`PRAGMA auto_vacuum = 2; PRAGMA journal_mode = wal; PRAGMA application_id = %d; PRAGMA user_version = 1; %s
		INSERT INTO runs VALUES (1, 1, 2, '', '', ''); INSERT INTO kinds VALUES (1, '', 'v1', 'services', 'Service'); INSERT INTO objects VALUES (1, 1, 'default', 'web', 'u');
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
		INSERT INTO events SELECT i, i, 1, 1, 'modified', i, '', '', '', NULL, NULL, json_object('pad', hex(randomblob(250))) FROM n`, applicationID, formats[0]))
	if err := create(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()*3/4); err != nil {
		t.Fatal(err)
	}
	if n, err := readable(t, path); !errors.Is(err, ErrTorn) || n < 1000 {
		t.Errorf("%d events, %v", n, err)
	}
}
