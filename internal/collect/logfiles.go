// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/evidence"
	"github.com/fairlead-io/fairlead/internal/printable"
)

// logs are the files that the kubelet keeps of the system's containers, for when
// no API server gives them out: NAMESPACE_POD_UID/CONTAINER/RESTARTS.log.
func (h *Here) logs() group {
	// A pattern that is well formed never fails.
	folders, _ := filepath.Glob(h.Logs + "/kube-system_*_*/*")
	var all group
	for _, folder := range folders[:min(len(folders), maxLogs)] {
		named := strings.Split(filepath.Base(filepath.Dir(folder)), "_")
		file, err := newest(folder)
		if len(named) != 3 || err != nil {
			continue
		}
		container := filepath.Base(folder)
		all = append(all, source{
			record: evidence.Record{
				Path: "logs/" + h.Node + "/" + logName(named[0], named[1], container), Kind: evidence.Log, Node: h.Node,
				Pod: named[0] + "/" + named[1], Container: container, Command: printable.Command("tail", "-c", strconv.Itoa(logBytes), file),
			},
			read: func(context.Context) (output, error) { return tail(file) },
		})
	}
	return all
}

var errNoLog = errors.New("there is no log")

// newest is the log of the container that was started last.
func newest(folder string) (string, error) {
	files, _ := filepath.Glob(folder + "/*.log")
	var found string
	for _, file := range files {
		if len(file) > len(found) || len(file) == len(found) && file > found {
			found = file
		}
	}
	if found == "" {
		return "", fmt.Errorf("%w in %s", errNoLog, folder)
	}
	return found, nil
}

// tail reads the end of a log, as kubectl logs shows it.
func tail(path string) (output, error) {
	file, err := os.Open(path)
	if err != nil {
		return output{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return output{}, err
	}
	skipped := max(0, info.Size()-logBytes)
	text, err := io.ReadAll(io.NewSectionReader(file, skipped, logBytes))
	if err != nil {
		return output{}, err
	}
	if skipped > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return output{content: plainLines(text), cut: skipped > 0}, nil
}

// plainLines takes what a container runtime adds to each line after its time
// away: the stream, and whether the line goes on.
func plainLines(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) == 4 && (string(parts[1]) == "stdout" || string(parts[1]) == "stderr") {
			out.Write(parts[0])
			out.WriteByte(' ')
			line = parts[3]
		}
		out.Write(line)
	}
	return out.Bytes()
}
