// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/examples"
	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

// stage is the scene of the demo: the namespaces, the agent and its folder.
type stage struct {
	out, errOut io.Writer
	self        string
	work        string // the folder of all files
	cgroup      string
	manifests   string
	pinPath     string
	log         string
	client      *api.Client
	socket      string
	network     *network
	agent       *exec.Cmd
	servers     map[string]bool // by address and protocol
}

// newStage sets the scene inside the namespaces that Run made, on a node with
// these addresses.
func newStage(out, errOut io.Writer, node ...netip.Addr) (*stage, error) {
	work := os.Getenv(stageVariable)
	s := &stage{
		out: out, errOut: errOut,
		servers:   map[string]bool{},
		work:      work,
		cgroup:    os.Getenv("FAIRLEAD_DEMO_CGROUP"),
		manifests: filepath.Join(work, "manifests"),
		pinPath:   filepath.Join(work, "bpffs", "fairlead"),
		log:       filepath.Join(work, "agent.log"),
		socket:    filepath.Join(work, "agent.sock"),
	}
	s.client = api.NewClient(s.socket)
	var err error
	if s.self, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	// Mounts made here are seen nowhere else and end with this process.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("keep mounts to this namespace: %w", err)
	}
	bpffs := filepath.Dir(s.pinPath)
	if err := errors.Join(os.Mkdir(bpffs, 0o700), os.Mkdir(s.manifests, 0o755)); err != nil {
		return nil, fmt.Errorf("make the demo's folders: %w", err)
	}
	if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=700"); err != nil {
		return nil, fmt.Errorf("mount a bpffs: %w", err)
	}
	s.network, err = newNetwork(node)
	return s, err
}

// startAgent runs the agent as a user would. When it dies, so does nothing
// else.
func (s *stage) startAgent(flags ...string) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the agent's log: %w", err)
	}
	defer log.Close()
	s.agent = exec.Command(s.self, append([]string{"agent",
		"--cgroup", s.cgroup, "--pin-path", s.pinPath, "--socket", s.socket}, flags...)...)
	s.agent.Env = without(os.Environ(), stageVariable)
	s.agent.Stdout, s.agent.Stderr = log, log
	s.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.agent.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return s.settle(s.agent.Process.Pid)
}

func without(environ []string, variable string) []string {
	kept := make([]string, 0, len(environ))
	for _, e := range environ {
		if !strings.HasPrefix(e, variable+"=") {
			kept = append(kept, e)
		}
	}
	return kept
}

// settle waits until the agent with this process id has written all it knows.
func (s *stage) settle(pid int) error {
	return s.until("the agent to be ready", func() (bool, error) {
		status, err := s.client.Status(context.Background())
		return err == nil && status.PID == pid && status.Synced && status.Pending == 0, err
	})
}

// patience bounds every wait. It is longer than anything here takes, on a busy
// machine as well.
const patience = 30 * time.Second

func (s *stage) until(what string, done func() (bool, error)) error {
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ok, err := done()
		if ok {
			return nil
		}
		last = err
	}
	if last == nil {
		last = errors.New("nothing failed meanwhile")
	}
	log, _ := os.ReadFile(s.log)
	return fmt.Errorf("waited %s for %s: %w; the agent's log:\n%s", patience, what, last, log)
}

func (s *stage) killAgent() error {
	if err := s.agent.Process.Kill(); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	s.agent.Wait()
	return nil
}

// place puts an example into the agent's folder, one file per document, so
// that a later step can take the place of one of them.
func (s *stage) place(file string) error {
	text, err := examples.FS.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the example %s: %w", file, err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		name, err := documentName(document)
		if err != nil {
			return fmt.Errorf("read the example %s: %w", file, err)
		}
		// As editors do: write aside, then rename.
		aside := filepath.Join(s.manifests, "."+name)
		if err := os.WriteFile(aside, document, 0o644); err != nil {
			return fmt.Errorf("place the example %s: %w", file, err)
		}
		if err := os.Rename(aside, filepath.Join(s.manifests, name)); err != nil {
			return fmt.Errorf("place the example %s: %w", file, err)
		}
	}
	return nil
}

func (s *stage) placeAll() error {
	files, err := fs.Glob(examples.FS, "*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := s.place(file); err != nil {
			return err
		}
	}
	return nil
}

// run shows a command of fairlead and what it prints. Exit status 1 is a
// finding, which the demo may expect.
func (s *stage) run(args ...string) (findings bool, err error) {
	fmt.Fprintf(s.out, "\n$ fairlead %s\n", strings.Join(args, " "))
	cmd := exec.Command(s.self, args...)
	cmd.Env = append(without(os.Environ(), stageVariable), "FAIRLEAD_SOCKET="+s.socket, "FAIRLEAD_PIN_PATH="+s.pinPath)
	cmd.Stdout, cmd.Stderr = s.out, s.errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("run fairlead %s: %w", args[0], err)
	}
	return false, nil
}

// startServers starts a server behind every backend that some row names and
// that has none yet.
func (s *stage) startServers(ctx context.Context, rows []api.Frontend) error {
	for _, row := range rows {
		protocol, err := model.ParseProtocol(row.Protocol)
		if err != nil || protocol == model.SCTP {
			continue
		}
		for _, b := range append(row.Backends, row.Draining...) {
			at, err := netip.ParseAddrPort(api.HostPort(b.Address, b.Port))
			if err != nil {
				return fmt.Errorf("read the backend of %s: %w", row.Service, err)
			}
			key := at.String() + row.Protocol
			if s.servers[key] {
				continue
			}
			s.servers[key] = true
			if err := s.network.serve(ctx, at, protocol); err != nil {
				return err
			}
		}
	}
	return nil
}

// kernelDump is what the maps hold, byte for byte comparable.
func (s *stage) kernelDump() (string, error) {
	kernel, err := s.client.Kernel(context.Background())
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(kernel)
	return string(text), err
}

// documentName is a file name for one document of a manifest.
func documentName(document []byte) (string, error) {
	var object struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		return "", err
	}
	return strings.ToLower(fmt.Sprintf("%s-%s-%s.yaml", object.Metadata.Namespace, object.Metadata.Name, object.Kind)), nil
}
