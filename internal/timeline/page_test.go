// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/journal"
)

// save writes a page to a file and returns its URL and size.
func save(t *testing.T, d Data) (string, int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "timeline.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Write(file, d); err != nil {
		t.Fatal(err)
	}
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), info.Size()
}

// rig runs in the page: where things are on the canvas, and what is there.
const rig = `
	const lane = name => [...document.querySelectorAll('#labels > *')].find(l => l.textContent.includes(name));
	const span = () => { const hash = new URLSearchParams(location.hash.slice(1)); return ['from', 'to'].map(k => Date.parse(hash.get(k))); };
	const pointOf = (name, time) => {
		const box = document.getElementById('lanes').getBoundingClientRect(), label = lane(name).getBoundingClientRect();
		const left = document.getElementById('labels').offsetWidth, right = document.getElementById('lanes').clientWidth - 8;
		const [from, to] = span();
		return [box.left + left + (Date.parse(time) - from) / (to - from) * (right - left), label.top + label.height / 2];
	};
	const token = name => { const probe = document.createElement('i'); probe.style.color = 'var(--' + name + ')'; document.body.append(probe); const c = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number); probe.remove(); return c; };
	const pixels = (name, colour) => {
		const canvas = document.getElementById('plot'), label = lane(name);
		const data = canvas.getContext('2d').getImageData(0, label.offsetTop - document.getElementById('lanes').scrollTop, canvas.width, label.offsetHeight).data;
		const [r, g, b] = token(colour);
		let count = 0;
		for (let i = 0; i < data.length; i += 4) if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 24 && data[i + 3] > 200) count++;
		return count;
	};`

// rigged runs JavaScript in which the rig is known.
func rigged[T any](b *browser, expression string) T {
	b.t.Helper()
	return eval[T](b, "(() => {"+rig+"\nreturn "+expression+";})()")
}

// clickAt clicks where a lane has a time.
func (b *browser) clickAt(lane string, t time.Time) {
	b.t.Helper()
	b.shown() // waits for the address to tell
	b.reveal(lane)
	p := rigged[[]float64](b, fmt.Sprintf("pointOf(%s, %s)", quote(lane), quote(t.Format(time.RFC3339Nano))))
	b.click(p[0], p[1])
}

// reveal scrolls to a lane.
func (b *browser) reveal(lane string) {
	b.t.Helper()
	for _, top := range []string{"0", "1e6"} {
		eval[bool](b, "(document.getElementById('lanes').scrollTop = "+top+", true)")
		eval[bool](b, "new Promise(end => requestAnimationFrame(() => requestAnimationFrame(() => end(true))))")
		if rigged[bool](b, "lane("+quote(lane)+") !== undefined && lane("+quote(lane)+").getBoundingClientRect().bottom < document.getElementById('lanes').getBoundingClientRect().bottom + 2") {
			return
		}
	}
	b.t.Fatalf("there is no lane %s", lane)
}

// shown is the time in view, of which the address tells shortly after it changed.
func (b *browser) shown() (from, to time.Time) {
	b.t.Helper()
	time.Sleep(300 * time.Millisecond)
	ends := rigged[[]float64](b, "span()")
	return time.UnixMilli(int64(ends[0])), time.UnixMilli(int64(ends[1]))
}

func TestPage(t *testing.T) {
	b := openBrowser(t)
	incident, _ := save(t, incidentData())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *browser)
	}{
		{"it opens on the first alarm, in words and in view", opensOnAlarm},
		{"a Service without backends is drawn in alarm, and one that never had any is not", drawsLosses},
		{"the filter picks by kind, writer, text, path and exclusion, and counts", filters},
		{"a filter with an unknown key says which keys there are", refusesFilter},
		{"wheel, drag, keys and double click change the time that is shown", zooms},
		{"a click on an event, finding, record or gap shows its details", showsDetails},
		{"the table begins at the finding, goes by keys, and Enter shows a diff", tableByKeys},
		{"the address brings back time, filter and event", remembers},
		{"n and p go through the findings", stepsFindings},
		{"the switch goes from the system's colours to light and dark", switchesTheme},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.t = t
			b.open(incident, 1280, 800, "light")
			test.run(t, b)
			b.quiet()
		})
	}
	b.t = t
}

func opensOnAlarm(t *testing.T, b *browser) {
	if got := b.text("#headline h2"); got != "default/kubernetes: the API left the Service without backend 192.0.2.11:6443" {
		t.Errorf("the headline says %q", got)
	}
	if got := b.text("#headline p:last-child"); !strings.Contains(got, "10:01:35.300 UTC · over after 3.7 s") {
		t.Errorf("below it stands %q", got)
	}
	from, to := b.shown()
	if from.After(at(95.3)) || to.Before(at(99.02)) || to.Sub(from) > 30*time.Second {
		t.Errorf("it shows %v to %v", from, to)
	}
	if !rigged[bool](b, "document.querySelector('#labels button').textContent.includes('default/kubernetes')") {
		t.Error("the Service that lost its backends is not the first")
	}
}

func drawsLosses(t *testing.T, b *browser) {
	if n := rigged[int](b, "pixels('default/kubernetes', 'alarm-mark')"); n < 200 {
		t.Errorf("%d pixels of the empty Service are in alarm", n)
	}
	b.clickOn("#whole")
	b.until("document.getElementById('range').textContent.endsWith('3 min 7 s')")
	if n := rigged[int](b, "pixels('default/kubernetes', 'alarm-mark')"); n < 60 {
		t.Errorf("from afar, %d pixels of it are", n)
	}
	for _, calm := range []string{"shop/web", "shop/late", "shop/none"} {
		if n := rigged[int](b, "pixels("+quote(calm)+", 'alarm-mark')"); n > 0 {
			t.Errorf("%d pixels of %s are", n, calm)
		}
	}
	if n := rigged[int](b, "pixels('Not watched', 'warning-mark')"); n < 60 {
		t.Errorf("%d pixels are of the gap", n)
	}
	if n := rigged[int](b, "pixels('kubelet', 'alarm-mark')"); n < 5 {
		t.Errorf("%d pixels are of the event that deleted something", n)
	}
	b.picture("whole-1280-light")
}

func filters(t *testing.T, b *browser) {
	b.clickOn("#whole")
	for _, test := range []struct{ query, count string }{
		{"kind:EndpointSlice manager:kube-apiserver kubernetes", "2 of 41 events"},
		{"kind:service,pod", "3 of 41 events"},
		{"namespace:shop -type:deleted", "1 of 41 events"},
		{"100.64.128.7", "2 of 41 events"},
		{"path:/spec/renewtime", "36 of 41 events"},
		{"object:default/kubernetes version:412", "1 of 41 events"},
		{`-"apiserver"`, "2 of 41 events"},
		{"id:40,44 type:modified", "2 of 41 events"},
		{"nothing-of-this", "0 of 41 events"},
		{"", "41 events"},
	} {
		b.write("#query", test.query)
		if test.query == "" {
			eval[bool](b, `document.getElementById('query').value = '', document.getElementById('query').dispatchEvent(new Event('input'))`)
		}
		b.until("document.getElementById('count').textContent === " + quote(test.count))
	}
	b.write("#query", "kind:EndpointSlice")
	b.until("document.querySelectorAll('#rows .row').length === 2")
	if got := rigged[int](b, "[...document.querySelectorAll('#labels button')].filter(l => l.title.endsWith('events')).length"); got != 1 {
		t.Errorf("%d writers have lanes, want the one that wrote EndpointSlices", got)
	}
}

func refusesFilter(t *testing.T, b *browser) {
	b.write("#query", "knd:Service")
	b.until("document.getElementById('count').textContent.startsWith('knd:Service: use kind, namespace')")
	if got := eval[string](b, "document.getElementById('query').getAttribute('aria-invalid')"); got != "true" {
		t.Errorf("aria-invalid is %q", got)
	}
}

func zooms(t *testing.T, b *browser) {
	from, to := b.shown()
	span := func() time.Duration { from, to := b.shown(); return to.Sub(from) }
	point := rigged[[]float64](b, "pointOf('default/kubernetes', '2026-11-20T10:01:36Z')")
	b.mouse("mouseWheel", point[0], point[1], map[string]any{"deltaX": 0, "deltaY": -240})
	if got := span(); got >= to.Sub(from)*3/4 {
		t.Errorf("the wheel zoomed from %v to %v", to.Sub(from), got)
	}
	if got := rigged[[]float64](b, "pointOf('default/kubernetes', '2026-11-20T10:01:36Z')"); got[0] < point[0]-3 || got[0] > point[0]+3 {
		t.Errorf("what was under the pointer moved from %v to %v", point, got)
	}
	b.mouse("mousePressed", 500, point[1], map[string]any{"buttons": 1})
	b.mouse("mouseMoved", 600, point[1], map[string]any{"buttons": 1, "button": "left"})
	b.mouse("mouseReleased", 600, point[1], nil)
	dragged := span()
	if dragged > time.Second {
		t.Errorf("a drag over a tenth of the width shows %v", dragged)
	}
	eval[bool](b, "document.getElementById('lanes').focus() ?? true")
	b.key("-")
	if got := span(); got <= dragged {
		t.Errorf("after minus it shows %v", got)
	}
	before, _ := b.shown()
	b.key("ArrowRight")
	if after, _ := b.shown(); !after.After(before) {
		t.Errorf("after right it shows %v", after)
	}
	b.key("0")
	b.until("location.hash === ''")
	b.key("+")
	b.until("location.hash.includes('from')")
	b.mouse("mousePressed", 500, point[1], map[string]any{"buttons": 1, "clickCount": 2})
	b.mouse("mouseReleased", 500, point[1], map[string]any{"clickCount": 2})
	b.until("location.hash === ''")
}

func showsDetails(t *testing.T, b *browser) {
	b.clickAt("kube-apiserver", at(95.3))
	b.until("document.querySelector('#panel h2')?.textContent === 'EndpointSlice default/kubernetes'")
	if old, next := b.text("#panel .step pre.old"), b.text("#panel .step pre.new"); !strings.Contains(old, "100.64.128.7") || next != "+ null" {
		t.Errorf("old %q, new %q", old, next)
	}
	panel := b.text("#panel")
	for _, want := range []string{"412", "/endpoints", "/ports", "replaced", "2026-11-20 10:01:35.300000 UTC", "system:apiserver: update, noted by kube-apiserver-1.log"} {
		if !strings.Contains(panel, want) {
			t.Errorf("the panel lacks %q: %s", want, panel)
		}
	}
	b.clickAt("Findings", at(95.3))
	b.until("document.querySelector('#panel .said')?.textContent.startsWith('the API left the Service without backend 192.0.2.11:6443: an agent goes on')")
	b.picture("panel-1280-light")
	b.clickAt("kube-apiserver-2.log", at(99.01))
	b.until("document.querySelector('#panel').textContent.includes('The event that it brought about')")
	b.key("Escape")
	b.until("document.getElementById('panel').hidden")
	b.clickOn("#headline button[aria-label='Next finding']")
	b.until("document.querySelector('#headline h2').textContent.includes('Pod shop/web-7')")
	b.clickAt("Not watched", at(142))
	b.until("document.querySelector('#panel').textContent.includes('410 Gone: too old resource version')")
}

func tableByKeys(t *testing.T, b *browser) {
	eval[bool](b, "document.getElementById('table').focus() ?? true")
	for _, step := range []struct{ key, version string }{{"", "412"}, {"ArrowDown", "418"}, {"End", "320"}, {"Home", "319"}, {"ArrowUp", "319"}, {"ArrowDown", "412"}} {
		if step.key != "" {
			b.key(step.key)
		}
		b.until("document.querySelector('#rows .row.at')?.children[5].textContent === " + quote(step.version))
	}
	if got := eval[string](b, "document.getElementById(document.getElementById('table').getAttribute('aria-activedescendant')).textContent"); !strings.Contains(got, "412") {
		t.Errorf("the active row is %q", got)
	}
	b.key("Enter")
	b.until("document.querySelector('#panel h2')?.textContent === 'EndpointSlice default/kubernetes'")
	if got := eval[string](b, "document.activeElement.id"); got != "panel" {
		t.Errorf("the focus is on %q", got)
	}
	b.key("Escape")
	if got := eval[string](b, "document.activeElement.id"); got != "table" {
		t.Errorf("after Escape it is on %q", got)
	}
}

func remembers(t *testing.T, b *browser) {
	b.clickAt("kube-apiserver", at(95.3))
	b.write("#query", "manager:kube-apiserver")
	b.until("location.hash.includes('q=manager') && location.hash.includes('event=40')")
	here, span := eval[string](b, "location.href"), b.text("#range")
	b.do("Page.navigate", map[string]any{"url": "about:blank"})
	b.open(here, 1280, 800, "light")
	if got := b.text("#range"); got != span {
		t.Errorf("it shows %s, not %s", got, span)
	}
	if got := b.text("#count"); got != "39 of 41 events" {
		t.Errorf("the filter picks %s", got)
	}
	if got := b.text("#panel h2"); got != "EndpointSlice default/kubernetes" {
		t.Errorf("the panel shows %q", got)
	}
}

func stepsFindings(t *testing.T, b *browser) {
	eval[bool](b, "document.getElementById('lanes').focus() ?? true")
	b.key("n")
	b.until("document.querySelector('#headline h2').textContent.includes('Pod shop/web-7')")
	if got := eval[string](b, "document.getElementById('headline').className"); got != "warning" {
		t.Errorf("it looks like an %s", got)
	}
	if from, to := b.shown(); from.After(at(140)) || to.Before(at(140)) {
		t.Errorf("it shows %v to %v", from, to)
	}
	b.key("p")
	b.until("document.querySelector('#headline h2').textContent.startsWith('default/kubernetes')")
}

func switchesTheme(t *testing.T, b *browser) {
	for _, want := range []string{"light", "dark", "light dark"} {
		b.clickOn("#theme")
		if got := eval[string](b, "getComputedStyle(document.documentElement).colorScheme"); got != want {
			t.Errorf("the scheme is %q, want %q", got, want)
		}
	}
}

// An outage that was on when the time that is shown begins is one all the same.
func TestAnOutageThatBeganBeforeIsSeen(t *testing.T) {
	d := incidentData()
	d.Span, d.Findings = Span{From: at(97), To: at(110)}, nil
	d.Events, d.Marks = nil, nil
	b := openBrowser(t)
	file, _ := save(t, d)
	b.open(file, 1280, 800, "light")
	if n := rigged[int](b, "pixels('default/kubernetes', 'alarm-mark')"); n < 200 {
		t.Errorf("%d pixels of the empty Service are in alarm", n)
	}
	if got := b.text("#range"); !strings.HasPrefix(got, "10:01:36.500") {
		t.Errorf("it shows %s", got)
	}
	if got := b.text("#rows"); got != "There are no events." {
		t.Errorf("the table says %q", got)
	}
	b.quiet()
}

// Whatever a cluster's objects are called, the page shows it as text.
func TestHostileNamesStayText(t *testing.T) {
	hostile := []string{
		`</script><script>window.hostile = 1</script>`, `<img src=x onerror="window.hostile = 1">`, `"><b onmouseover=hostile=1>`,
		"<!-- <script>", "{{data}}", "{{script}}", "\u2028\u2029'`;window.hostile = 1//", `javascript:window.hostile=1`, "a\x00b\x1b[2J", "\xff\xfe",
	}
	d := Data{Title: strings.Join(hostile, " "), Source: hostile[0], Notes: hostile, Span: Span{From: at(0), To: at(60)}}
	for i, text := range hostile {
		raw, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		when := at(float64(i))
		d.Events = append(d.Events,
			Event{ID: int64(i), Time: when, Kind: text, Namespace: text, Name: text, Type: text, Manager: text, ResourceVersion: text, Diff: []journal.Change{{Path: text, Op: text, Old: raw, New: raw}}},
			Event{ID: int64(100 + i), Time: when, Kind: "Raw", Name: text, Diff: []journal.Change{{Path: "/x", Op: "replace", New: json.RawMessage(text)}}})
		d.Services = append(d.Services, Service{Name: text, Series: []Point{{Time: when, Backends: 1}, {Time: at(50)}}})
		d.Gaps = append(d.Gaps, Gap{Kind: text, From: when, To: at(40), Reason: text})
		d.Marks = append(d.Marks, Mark{Time: when, User: text, Verb: text, What: text, Server: text, Event: int64(i)})
		d.Findings = append(d.Findings, Finding{Time: when, Severity: Alarm, Invariant: text, Text: text, Detail: text, Event: int64(i), Service: text})
	}
	b := openBrowser(t)
	file, _ := save(t, d)
	b.open(file, 1280, 800, "light")
	if got := b.text("#headline h2"); got != hostile[0] {
		t.Errorf("the headline is %q", got)
	}
	b.clickOn("#whole")
	for i := range hostile {
		eval[bool](b, fmt.Sprintf("(location.hash = 'finding=%d', true)", i+1))
		b.until(fmt.Sprintf("new URLSearchParams(location.hash.slice(1)).get('finding') === '%d' && !document.getElementById('panel').hidden", i+1))
	}
	if got := eval[string](b, "[...document.querySelectorAll('#rows .row')].map(r => r.children[2].textContent).join('\\n')"); !strings.Contains(got, hostile[1]) {
		t.Errorf("the table does not show the names: %s", got)
	}
	if got := eval[string](b, "typeof window.hostile + document.querySelectorAll('img, b[onmouseover]').length"); got != "undefined0" {
		t.Errorf("something of the data became alive: %s", got)
	}
	if got := eval[int](b, "document.scripts.length"); got != 3 {
		t.Errorf("the page has %d scripts", got)
	}
	b.quiet()
}

// Even what got into the page by a mistake could load and run nothing.
func TestThePolicyLetsNothingIn(t *testing.T) {
	b := openBrowser(t)
	file, _ := save(t, incidentData())
	b.open(file, 1280, 800, "light")
	b.quiet()
	for name, script := range map[string]string{
		"a request":      `fetch('http://192.0.2.1/').then(() => 'came through', e => 'refused')`,
		"a request here": `fetch('file:///etc/hostname').then(() => 'came through', e => 'refused')`,
		"an image":       `new Promise(end => { const i = new Image(); i.onerror = () => end('refused'); i.onload = () => end('came through'); i.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA='; })`,
		"a script":       `(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); return window.ran ? 'came through' : 'refused'; })()`,
		"a handler":      `(() => { const d = document.createElement('div'); d.setAttribute('onclick', 'window.ran = 1'); document.body.append(d); d.click(); return window.ran ? 'came through' : 'refused'; })()`,
		"a style":        `(() => { const s = document.createElement('style'); s.textContent = 'body { margin: 7px }'; document.body.append(s); return getComputedStyle(document.body).marginTop === '7px' ? 'came through' : 'refused'; })()`,
	} {
		if got := eval[string](b, script); got != "refused" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if requests, _ := b.heard(); slices.ContainsFunc(requests, func(url string) bool { return strings.HasPrefix(url, "http") }) {
		t.Errorf("it asked for %v", requests)
	}
}
