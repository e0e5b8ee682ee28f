// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/journal"
	"github.com/fairlead-io/fairlead/internal/statefile"
)

// TestScripts runs the program as a user does. Besides the usual commands a
// script has:
//
//	exits STATUS ARGS...  run the program and expect an exit status
//	record FOLDER         serve the answers in a folder on the agent's socket
//	remember FILE CONTENT write a state file with the content of another
//	cut FILE SIZE         lose all of a file but its first bytes
//	journal FILE CONTENT  make a journal of the events and gaps in another file
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs(examplesDir)
	if err != nil {
		t.Fatal(err)
	}
	recordings, err := filepath.Abs("../adapter/recording/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/scripts",
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("RECORDINGS", recordings)
			env.Setenv(socketEnv, filepath.Join(env.WorkDir, "agent.sock"))
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    expectStatus,
			"record":   serveRecord,
			"remember": writeState,
			"journal":  writeJournal,
			"cut":      cutFile,
		},
		UpdateScripts: *update,
	})
}

func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

func expectStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	have := 0
	if failed, ok := errors.AsType[*exec.ExitError](ts.Exec("fairlead", args[1:]...)); ok {
		have = failed.ExitCode()
	}
	if have != want {
		ts.Fatalf("exit status %d, want %d", have, want)
	}
}

func writeState(ts *testscript.TestScript, _ bool, args []string) {
	var content statefile.Content
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &content))
	ts.Check(statefile.Write(ts.MkAbs(args[0]), content))
}

func writeJournal(ts *testscript.TestScript, _ bool, args []string) {
	var content struct {
		Events []journal.Event
		Gaps   []journal.Gap
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &content))
	j, err := journal.Create(ts.MkAbs(args[0]), journal.Options{})
	ts.Check(err)
	ts.Check(j.Append(context.Background(), content.Events))
	for _, gap := range content.Gaps {
		ts.Check(j.AppendGap(context.Background(), gap))
	}
	ts.Check(j.Close())
}

func serveRecord(ts *testscript.TestScript, _ bool, args []string) {
	listener, err := api.Listen(ts.Getenv(socketEnv))
	ts.Check(err)
	server := &http.Server{Handler: api.NewHandler(record(ts.MkAbs(args[0])))}
	go func() { _ = server.Serve(listener) }()
	ts.Defer(func() { server.Close() })
}

// record answers with what the files of a folder hold at the moment: one JSON
// file per question, as an agent answered it once. A script replays history by
// replacing the files and writing another number to the file "revision".
type record string

func answerOf[T any](r record, name string) (T, error) {
	var answer T
	text, err := os.ReadFile(filepath.Join(string(r), name))
	if errors.Is(err, fs.ErrNotExist) {
		return answer, api.NotFound("the record holds no %s", name)
	}
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}

func (r record) Status(context.Context) (api.Status, error) {
	return answerOf[api.Status](r, "status.json")
}

func (r record) Services(context.Context) (api.Services, error) {
	return answerOf[api.Services](r, "services.json")
}

func (r record) Frontends(context.Context) ([]api.Frontend, error) {
	return answerOf[[]api.Frontend](r, "frontends.json")
}

func (r record) Backends(context.Context) (api.Backends, error) {
	return answerOf[api.Backends](r, "backends.json")
}

func (r record) Kernel(context.Context) (api.Kernel, error) {
	return answerOf[api.Kernel](r, "kernel.json")
}

func (r record) Desired(context.Context) ([]api.Frontend, error) {
	return answerOf[[]api.Frontend](r, "desired.json")
}

// Explain looks for the file of that name, with dots for slashes.
func (r record) Explain(_ context.Context, target string) (api.Explain, error) {
	return answerOf[api.Explain](r, "explain."+strings.ReplaceAll(target, "/", ".")+".json")
}

func (r record) Trace(context.Context, []api.FlowRequest) ([]api.Trace, error) {
	return answerOf[[]api.Trace](r, "trace.json")
}

// Events ends as an agent does that stops.
func (r record) Events(_ context.Context, emit func(api.Event) error) error {
	events, err := answerOf[[]api.Event](r, "events.json")
	if err != nil {
		return err
	}
	for _, event := range events {
		if err := emit(event); err != nil {
			return err
		}
	}
	return nil
}

// Release looks for the file of that name, with dots for slashes.
func (r record) Release(_ context.Context, service string) (api.Released, error) {
	return answerOf[api.Released](r, "release."+strings.ReplaceAll(service, "/", ".")+".json")
}

func (r record) Wait(ctx context.Context, known uint64) (uint64, error) {
	for {
		revision, err := answerOf[uint64](r, "revision")
		if err != nil || revision != known {
			return revision, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
