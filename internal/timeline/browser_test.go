// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a Chromium in a network namespace of its own, without any way
// out, spoken to in the DevTools protocol over two pipes.
type browser struct {
	t       *testing.T
	in      *os.File
	session string

	mu       sync.Mutex
	last     int
	waiting  map[int]chan reply
	requests []string // that the page made, as URLs
	trouble  []string // what the page complained of
	loaded   chan struct{}
	ended    error
}

type reply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// patience is how long a browser on a busy machine may take for one answer.
const patience = 20 * time.Second

func openBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is missing: `make deps` installs it")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--hide-scrollbars", "--disable-dev-shm-usage", "--mute-audio",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	theirIn.Close()
	theirOut.Close()
	b := &browser{t: t, in: in, waiting: map[int]chan reply{}, loaded: make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.read(bufio.NewReader(out))
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		in.Close()
		<-done
		out.Close()
	})
	b.attach()
	return b
}

// attach opens a page and listens to it.
func (b *browser) attach() {
	b.t.Helper()
	target := call[struct{ TargetID string }](b, "Target.createTarget", map[string]any{"url": "about:blank"})
	session := call[struct{ SessionID string }](b, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		b.do(domain+".enable", nil)
	}
	// The time that each frame's work takes, and the longest that the page was busy.
	b.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		window.frames_ = [];
		const request = window.requestAnimationFrame.bind(window);
		window.requestAnimationFrame = work => request(at => { const begin = performance.now(); work(at); frames_.push(performance.now() - begin); });`})
}

// read takes in what the browser says, until it ends.
func (b *browser) read(from *bufio.Reader) {
	for {
		text, err := from.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			b.ended = fmt.Errorf("the browser is gone: %w", err)
			for _, waiter := range b.waiting {
				close(waiter)
			}
			b.waiting = map[int]chan reply{}
			b.mu.Unlock()
			return
		}
		var r reply
		if err := json.Unmarshal(text[:len(text)-1], &r); err != nil {
			b.trouble = append(b.trouble, "not understood: "+err.Error())
		}
		b.take(r)
		b.mu.Unlock()
	}
}

func (b *browser) take(r reply) {
	switch r.Method {
	case "":
		if waiter := b.waiting[r.ID]; waiter != nil {
			waiter <- r
			delete(b.waiting, r.ID)
		}
	case "Page.loadEventFired":
		select {
		case b.loaded <- struct{}{}:
		default:
		}
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		_ = json.Unmarshal(r.Params, &sent)
		b.requests = append(b.requests, sent.Request.URL)
	case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Inspector.targetCrashed":
		// That a test reads pixels is no fault of the page.
		if strings.Contains(string(r.Params), "willReadFrequently") {
			return
		}
		b.trouble = append(b.trouble, r.Method+": "+string(r.Params))
	}
}

// heard returns what the page asked for and complained of since the last call.
func (b *browser) heard() (requests, trouble []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, trouble = b.requests, b.trouble
	b.requests, b.trouble = nil, nil
	return requests, trouble
}

// troubled says whether the page complained.
func (b *browser) troubled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.trouble) > 0
}

// send sends a command and waits for its answer.
func (b *browser) send(method string, params any) (json.RawMessage, error) {
	if params == nil {
		params = struct{}{}
	}
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return nil, b.ended
	}
	b.last++
	id, waiter := b.last, make(chan reply, 1)
	b.waiting[id] = waiter
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		return nil, err
	}
	select {
	case r, open := <-waiter:
		if !open {
			return nil, errors.New("the browser ended meanwhile")
		}
		if r.Error != nil {
			return nil, errors.New(r.Error.Message)
		}
		return r.Result, nil
	case <-time.After(patience):
		return nil, errors.New("no answer")
	}
}

func (b *browser) do(method string, params any) json.RawMessage {
	b.t.Helper()
	result, err := b.send(method, params)
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	return result
}

func call[T any](b *browser, method string, params any) (answer T) {
	b.t.Helper()
	if err := json.Unmarshal(b.do(method, params), &answer); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	return answer
}

// eval runs JavaScript in the page and returns its value.
func eval[T any](b *browser, script string) T {
	b.t.Helper()
	answer := call[struct {
		Result           struct{ Value T }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}](b, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true})
	if answer.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", script, answer.ExceptionDetails.Exception.Description)
	}
	return answer.Result.Value
}

// until waits for a condition in the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	for end := time.Now().Add(patience); !eval[bool](b, condition); time.Sleep(20 * time.Millisecond) {
		if b.troubled() || time.Now().After(end) {
			_, trouble := b.heard()
			b.t.Fatalf("never came true: %s\n%s", condition, strings.Join(trouble, "\n"))
		}
	}
}

// open loads a page in a window of a size and waits until it is drawn.
func (b *browser) open(url string, width, height int, scheme string) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	select {
	case <-b.loaded:
	default:
	}
	b.do("Page.navigate", map[string]any{"url": url})
	select {
	case <-b.loaded:
	case <-time.After(patience):
		b.t.Fatalf("%s does not load", url)
	}
	b.until(`document.getElementById('range').textContent !== ''`)
}

func (b *browser) key(key string) {
	b.t.Helper()
	event := map[string]any{"type": "keyDown", "key": key, "code": key}
	if len(key) == 1 {
		event["text"] = key
	}
	if key == "Enter" {
		event["text"], event["windowsVirtualKeyCode"] = "\r", 13
	}
	b.do("Input.dispatchKeyEvent", event)
	event["type"] = "keyUp"
	delete(event, "text")
	b.do("Input.dispatchKeyEvent", event)
}

// mouse does things with the left button, or the wheel, at a point.
func (b *browser) mouse(kind string, x, y float64, more map[string]any) {
	b.t.Helper()
	event := map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1, "pointerType": "mouse"}
	if kind == "mouseMoved" {
		event["button"] = "none"
	}
	for name, value := range more {
		event[name] = value
	}
	b.do("Input.dispatchMouseEvent", event)
}

func (b *browser) click(x, y float64) {
	b.t.Helper()
	b.mouse("mouseMoved", x, y, nil)
	b.mouse("mousePressed", x, y, map[string]any{"buttons": 1})
	b.mouse("mouseReleased", x, y, nil)
}

// clickOn clicks in the middle of an element.
func (b *browser) clickOn(selector string) {
	b.t.Helper()
	at := eval[[]float64](b, `(() => { const box = document.querySelector(`+quote(selector)+`).getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()`)
	b.click(at[0], at[1])
}

// write types a text into an input, in the place of what it has.
func (b *browser) write(selector, text string) {
	b.t.Helper()
	eval[bool](b, `(() => { const input = document.querySelector(`+quote(selector)+`); input.focus(); input.select(); return true; })()`)
	b.do("Input.insertText", map[string]any{"text": text})
}

// text is what an element says.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(`+quote(selector)+`)?.textContent ?? ''`)
}

// picture saves what the window shows, where somebody asked for pictures.
func (b *browser) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("TIMELINE_PICTURES")
	if folder == "" {
		return
	}
	shot := call[struct{ Data string }](b, "Page.captureScreenshot", map[string]any{"format": "png"})
	image, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(folder+"/"+name+".png", image, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// quiet fails if the page complained, or asked for anything but itself.
func (b *browser) quiet() {
	b.t.Helper()
	requests, trouble := b.heard()
	for _, problem := range trouble {
		b.t.Errorf("the page complained: %s", problem)
	}
	if i := slices.IndexFunc(requests, func(url string) bool { return !strings.HasPrefix(url, "file://") }); i >= 0 {
		b.t.Errorf("the page asked for %s", requests[i])
	}
}

func quote(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted)
}
