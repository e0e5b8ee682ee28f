// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for a process to say something or to end. It is
// long because machines that run tests are busy, and costs nothing when all is
// well.
const patience = 30 * time.Second

// afterlife is how long the children of a process that has ended may keep its
// output open before nothing more is read from them.
const afterlife = time.Second

// logged bounds how much of what a process wrote is logged when a test fails.
const logged = 16 << 10

// Place says where a process lives. A nil field stands for where the test
// process itself is.
//
// Programs on a cgroup apply to whole processes, and the test process is never
// moved; so whatever is to meet such a program runs as a process of its own.
type Place struct {
	NetNS  *NetNS
	Cgroup *Cgroup
	// Hostname is what the process finds its machine called.
	Hostname string
}

// Process is a process that a test started. It is killed when the test ends,
// or dies; what it wrote is logged if the test failed.
type Process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout output
	stderr output
	done   chan struct{} // closed when the process has ended
	err    error         // of Wait, once done is closed
	dull   bool          // what it wrote is not logged
}

// Start starts a program.
func (p Place) Start(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	return p.start(t, exec.Command(name, args...))
}

// Run runs a program that must succeed, and returns what it wrote to standard
// output.
func (p Place) Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	process := p.Start(t, name, args...)
	if err := process.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", process, err, process.Stderr())
	}
	return process.Stdout()
}

func (p Place) start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	process := &Process{t: t, cmd: cmd, done: make(chan struct{})}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("start %s: %v", process, err)
	}
	process.stdin = stdin
	cmd.Stdout, cmd.Stderr = &process.stdout, &process.stderr
	cmd.WaitDelay = afterlife
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.Cgroup != nil {
		dir, err := os.Open(p.Cgroup.path)
		if err != nil {
			t.Fatalf("start %s: %v", process, err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}

	started := make(chan error)
	go onOwnThread(func() { process.live(p, started) })
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", process, err)
	}
	t.Cleanup(process.cleanup)
	return process
}

// rename gives the calling thread a machine's name of its own.
func rename(host string) error {
	if err := syscall.Unshare(syscall.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("leave the machine's name: %w", err)
	}
	return syscall.Sethostname([]byte(host))
}

// live starts the process from the calling thread, which gives it its
// namespaces, and stays until it has ended: the kernel takes the end of that
// thread for the death of the parent.
func (p *Process) live(place Place, started chan<- error) {
	err := error(nil)
	if place.NetNS != nil {
		err = place.NetNS.enter()
	}
	if err == nil && place.Hostname != "" {
		err = rename(place.Hostname)
	}
	if err == nil {
		err = p.cmd.Start()
	}
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	p.stdout.close()
	p.stderr.close()
	close(p.done)
}

func (p *Process) cleanup() {
	p.Kill()
	if p.t.Failed() && !p.dull {
		p.t.Logf("%s wrote to standard output:\n%s\nand to standard error:\n%s", p, tail(p.Stdout()), tail(p.Stderr()))
	}
}

// tail returns the last part of a text, as much as is logged.
func tail(s string) string {
	if len(s) <= logged {
		return s
	}
	return fmt.Sprintf("(%d bytes before)\n%s", len(s)-logged, s[len(s)-logged:])
}

func (p *Process) String() string { return strings.Join(p.cmd.Args, " ") }

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal; a process that has ended takes none.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %s to %s: %v", sig, p, err)
	}
}

// Kill ends the process as kill -9 does, and waits until it has ended.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait closes the process's standard input, waits until it has ended, and
// returns nil if it did so with status 0.
func (p *Process) Wait() error {
	p.stdin.Close()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		return fmt.Errorf("still running after %s", patience)
	}
}

// WriteLine writes one line to the process's standard input.
func (p *Process) WriteLine(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("write to %s: %v\n%s", p, err, p.Stderr())
	}
}

// ReadLine returns the next line of standard output, without its end.
func (p *Process) ReadLine() string {
	p.t.Helper()
	return p.ReadLineWithin(patience)
}

// ReadLineWithin waits as long as the caller says, for a process that may be
// silent while it does much.
func (p *Process) ReadLineWithin(timeout time.Duration) string {
	p.t.Helper()
	line, err := p.stdout.next(timeout)
	if err != nil {
		p.t.Fatalf("read a line from %s: %v\n%s", p, err, p.Stderr())
	}
	return line
}

// Trim lets go of what ReadLine has handed out, but for as much as is logged. A
// test that talks to a process for hours calls it now and then.
func (p *Process) Trim() { p.stdout.trim() }

// Forget ends the process, and keeps what it wrote out of the log of a test that
// fails. A test that starts thousands calls it for those that did well.
func (p *Process) Forget() {
	p.Kill()
	p.dull = true
	p.stdout.forget()
	p.stderr.forget()
}

// Stdout is all that the process has written to standard output so far, but for
// what was let go.
func (p *Process) Stdout() string { return p.stdout.String() }

// Stderr is all that the process has written to standard error so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// output keeps what a process writes, so that the process never waits for a
// reader, and hands it out by lines.
type output struct {
	mu     sync.Mutex
	all    bytes.Buffer
	read   int           // bytes of all handed out by next
	closed bool          // nothing more will be written
	news   chan struct{} // closed at the next change; nil if nobody waits
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell()
	return o.all.Write(b)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tell()
	o.closed = true
}

// tell is called with mu held.
func (o *output) tell() {
	if o.news != nil {
		close(o.news)
		o.news = nil
	}
}

func (o *output) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if over := o.read - logged; over > logged {
		o.all.Next(over)
		o.read -= over
	}
}

func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.read = bytes.Buffer{}, 0
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// next returns the next line, or io.EOF when there will be no more.
func (o *output) next(timeout time.Duration) (string, error) {
	deadline := time.After(timeout)
	for {
		line, news, err := o.take()
		if news == nil {
			return line, err
		}
		select {
		case <-news:
		case <-deadline:
			return "", fmt.Errorf("nothing came within %s", timeout)
		}
	}
}

// take returns a line or an error, or else what to wait for.
func (o *output) take() (line string, news <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := o.all.Bytes()[o.read:]
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		o.read += end + 1
		return string(rest[:end]), nil, nil
	}
	if o.closed {
		return "", nil, io.EOF
	}
	if o.news == nil {
		o.news = make(chan struct{})
	}
	return "", o.news, nil
}
