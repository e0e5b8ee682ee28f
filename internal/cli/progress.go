// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// clearLine goes back to the beginning of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// progress is a terminal's last line, which is renewed in place. What else is
// written to the terminal goes through it, and above it.
type progress struct {
	out io.Writer

	mu   sync.Mutex
	line string
}

// show renews the line; an empty one takes it away.
func (p *progress) show(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
	_, _ = io.WriteString(p.out, clearLine+line)
}

// Write implements io.Writer, for whole lines.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.out, clearLine); err != nil {
		return 0, err
	}
	n, err := p.out.Write(text)
	if err == nil {
		_, err = io.WriteString(p.out, p.line)
	}
	return n, err
}

// patience is how long a person waits without being told for what.
const patience = 2 * time.Second

// whileBusy tells on a terminal what is being done, if it takes long, until the
// function that it returns is called.
func (e *env) whileBusy(doing func() string) (done func()) {
	if !isTerminal(e.err) {
		return func() {}
	}
	began, terminal := time.Now(), e.err
	show := &progress{out: terminal}
	e.err = show
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for wait := patience; ; wait = time.Second {
			select {
			case <-time.After(wait):
				show.show(doing() + "… " + time.Since(began).Round(time.Second).String())
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		show.show("")
		e.err = terminal
	}
}

// whileAsking is whileBusy for what asks an API server; doing takes what is
// being done. What client-go has to say of a connection that fails stands in
// errors, or in what was collected, and would be written across the line.
func (e *env) whileAsking(first string) (doing func(string), done func()) {
	klog.SetLogger(logr.Discard())
	var what atomic.Value
	what.Store(first)
	return func(now string) { what.Store(clean(now)) }, e.whileBusy(func() string { return what.Load().(string) })
}
