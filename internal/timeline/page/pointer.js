// SPDX-License-Identifier: Apache-2.0
// What pointers, wheels and keys do on the chart.

const near = 7; // pixels within which a pointer means a thing

function openPointer(app, chart) {
  const scroller = byID('lanes'), tip = byID('tip');
  const fingers = new Map();
  let start; // {x, y, view} of a drag
  let pinch; // the distance between two fingers

  const inside = event => { const box = scroller.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; };
  const inPlot = ({ x }) => x >= chart.edges().left;
  const perPixel = () => app.view.span / (chart.edges().right - chart.edges().left);

  scroller.addEventListener('wheel', event => {
    const at = inside(event);
    if (!inPlot(at)) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) app.view.pan((event.deltaX || event.deltaY) * unit * perPixel());
    else app.view.zoom(Math.exp(Math.max(Math.min(event.deltaY * unit, 240), -240) * 0.0022), chart.timeAt(at.x));
  }, { passive: false });

  scroller.addEventListener('pointerdown', event => {
    const at = inside(event);
    if (event.button !== 0 || !inPlot(at) || at.x > scroller.clientWidth) return;
    fingers.set(event.pointerId, at);
    scroller.setPointerCapture(event.pointerId);
    start = { ...at, from: app.view.from, pans: event.pointerType === 'touch' || event.shiftKey };
    pinch = undefined;
  });

  scroller.addEventListener('pointermove', event => {
    const at = inside(event);
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, at);
    if (fingers.size === 2) return pinches();
    if (start === undefined) return hovers(at);
    if (start.pans) return app.view.pan(start.from - (at.x - start.x) * perPixel() - app.view.from);
    app.selection = Math.abs(at.x - start.x) > 4 ? { from: chart.timeAt(start.x), to: chart.timeAt(at.x) } : undefined;
    chart.hovers(chart.timeAt(at.x));
  });

  function pinches() {
    const [a, b] = [...fingers.values()];
    const distance = Math.max(Math.abs(a.x - b.x), 10);
    if (pinch !== undefined) app.view.zoom(pinch / distance, chart.timeAt((a.x + b.x) / 2));
    pinch = distance;
  }

  scroller.addEventListener('pointerup', event => {
    const at = inside(event);
    fingers.delete(event.pointerId);
    const from = start, selection = app.selection;
    start = app.selection = undefined;
    if (selection !== undefined) return app.view.set(Math.min(selection.from, selection.to), Math.max(selection.from, selection.to));
    if (from === undefined || pinch !== undefined || Math.hypot(at.x - from.x, at.y - from.y) > 4) return;
    const hit = thingAt(app, chart, at);
    if (hit?.thing !== undefined) app.choose(hit.thing);
  });

  const ends = () => { start = app.selection = undefined; fingers.clear(); leaves(); };
  scroller.addEventListener('pointercancel', ends);
  scroller.addEventListener('pointerleave', () => { if (start === undefined) leaves(); });
  scroller.addEventListener('dblclick', event => { if (inPlot(inside(event))) app.view.reset(); });

  function leaves() {
    tip.hidden = true;
    chart.hovers(undefined);
  }

  function hovers(at) {
    if (!inPlot(at)) return leaves();
    chart.hovers(chart.timeAt(at.x));
    const hit = thingAt(app, chart, at);
    scroller.style.cursor = hit?.thing === undefined ? '' : 'pointer';
    tip.hidden = hit === undefined;
    if (hit === undefined) return;
    tip.textContent = hit.text;
    const box = scroller.parentElement.getBoundingClientRect();
    tip.style.left = Math.min(at.x + 14, box.width - tip.offsetWidth - 4) + 'px';
    const top = at.y + scroller.offsetTop + 18;
    tip.style.top = (top + tip.offsetHeight > box.height ? top - tip.offsetHeight - 30 : top) + 'px';
  }

  scroller.addEventListener('keydown', event => {
    if (event.target !== scroller || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = {
      '+': () => app.view.zoom(1 / 1.5), '=': () => app.view.zoom(1 / 1.5), '-': () => app.view.zoom(1.5), '0': () => app.view.reset(),
      ArrowLeft: () => app.view.pan(-app.view.span / 8), ArrowRight: () => app.view.pan(app.view.span / 8),
    }[event.key];
    if (key === undefined) return;
    event.preventDefault();
    key();
  });
}

// thingAt is what is at a point: words, and what a click would choose.
function thingAt(app, chart, { x, y }) {
  const lane = chart.laneAt(y);
  const time = chart.timeAt(x);
  const reach = near * (chart.timeAt(1) - chart.timeAt(0));
  switch (lane?.kind) {
    case 'findings': return findingAt(app.data.findings, time, reach);
    case 'gaps': return gapAt(app.data.gaps, time, reach);
    case 'service': return serviceAt(lane.service, time);
    case 'writer': return eventAt(app, lane.manager, time, reach);
    case 'audit': return markAt(app, lane.server, time, reach);
  }
}

// nearest is the place closest to a time, of those that a test picks within
// reach, and how many it picks.
function nearest(places, times, time, reach, picks) {
  const [first, end] = placesBetween(places, times, time - reach, time + reach);
  let best, count = 0;
  for (let p = first; p < end; p++) {
    const i = places[p];
    if (!picks(i)) continue;
    count++;
    if (best === undefined || Math.abs(times[i] - time) < Math.abs(times[best] - time)) best = i;
  }
  return { best, count };
}

function eventAt({ data: { events }, places }, manager, time, reach) {
  const { best, count } = nearest(places, events.time, time, reach, i => events.manager[i] === manager);
  if (best === undefined) return undefined;
  const more = count > 1 ? `\n${plural(count - 1, 'more event', 'more events')} close by` : '';
  const text = `${stamp(events.time[best])}\n${events.kind(best)} ${events.what(best)} ${events.typeName(best)}\n${changeText(events.diff(best)).slice(0, 300)}${more}`;
  return { text, thing: { kind: 'event', index: best } };
}

function markAt({ data, marks: places }, server, time, reach) {
  const { marks } = data;
  const { best, count } = nearest(places, marks.time, time, reach, i => marks.server[i] === server);
  if (best === undefined) return undefined;
  const more = count > 1 ? `\n${plural(count - 1, 'more record', 'more records')} close by` : '';
  return { text: `${stamp(marks.time[best])}\n${marks.user(best)}: ${marks.verb(best)} ${marks.what(best)}${more}`, thing: { kind: 'mark', index: best } };
}

function findingAt(findings, time, reach) {
  const distance = f => (time < f.from ? f.from - time : time > (f.to ?? f.from) ? time - (f.to ?? f.from) : 0);
  const [finding] = findings.filter(f => distance(f) <= reach).sort((a, b) => Math.abs(a.from - time) - Math.abs(b.from - time));
  return finding && { text: `${stamp(finding.from)}\n${finding.text}`, thing: { kind: 'finding', index: finding.index } };
}

function gapAt(gaps, time, reach) {
  const index = gaps.findIndex(g => time >= g.from - reach && time <= g.to + reach);
  if (index < 0) return undefined;
  const { kind, from, to, reason } = gaps[index];
  return { text: `${kind} not watched for ${duration(to - from)}\nfrom ${stamp(from)}\n${reason}`, thing: { kind: 'gap', index } };
}

function serviceAt({ name, time, backends, retained }, at) {
  const i = firstAt(time, at) - (time[firstAt(time, at)] === at ? 0 : 1);
  if (i < 0) return { text: `${name}\nnot known yet` };
  const held = i + 1 < time.length ? ` for ${duration(time[i + 1] - time[i])}` : '';
  const words = backends[i] < 0 ? 'no such Service' : plural(backends[i], 'backend', 'backends') + (retained[i] > 0 ? `, ${number(retained[i])} retained` : '');
  return { text: `${name}\n${words}${held}\nsince ${stamp(time[i])}` };
}
