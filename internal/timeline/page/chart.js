// SPDX-License-Identifier: Apache-2.0
// The chart: lanes on a canvas that stays in place while they scroll below it,
// with labels that are elements, so that keyboards and readers reach them.

function openChart(app) {
  const scroller = byID('lanes'), canvas = byID('plot'), labels = byID('labels');
  const shown = new Map(); // lane → its label
  let layout = { lanes: [], height: 0 };
  let hover; // a time, or undefined

  const edges = () => ({ left: labels.offsetWidth, right: scroller.clientWidth - 8 });
  const brush = context => { const { left, right } = edges(); return makeBrush(context, app.tokens, app.view, left, right); };

  function relayout() {
    layout = layOut(app);
    shown.clear();
    labels.replaceChildren();
    byID('stack').style.height = layout.height + 'px';
    app.repaint();
  }

  function paint() {
    const width = scroller.clientWidth, height = scroller.clientHeight, scroll = scroller.scrollTop;
    const b = brush(fitCanvas(canvas, width, height));
    const visible = lanesBetween(layout.lanes, scroll, scroll + height);
    b.context.save();
    b.context.beginPath();
    b.context.rect(b.left, 0, width - b.left, height);
    b.context.clip();
    paintGapBands(b, app.data.gaps, height);
    paintGrid(b, height);
    for (const lane of visible) paintLane(b, lane, lane.top - scroll);
    paintEvents(b, visible.filter(lane => lane.kind === 'writer'), scroll);
    paintMarks(b, visible.filter(lane => lane.kind === 'audit'), scroll);
    paintMoments(b, height);
    b.context.restore();
    paintRules(b, visible, scroll, width);
    showLabels(visible);
  }

  function paintLane(b, lane, y) {
    if (lane.kind === 'findings') paintFindings(b, app.data.findings, y, lane.height, app.chosen?.kind === 'finding' ? app.data.findings[app.chosen.index] : undefined);
    if (lane.kind === 'gaps') paintGaps(b, app.data.gaps, lane, y);
    if (lane.kind === 'service') paintService(b, lane.service, y, lane.height);
  }

  function paintEvents(b, lanes, scroll) {
    const { events } = app.data;
    const byManager = [], shapeOfType = events.texts.map(text => shapes[text] ?? 'ring');
    lanes.forEach((lane, l) => { byManager[lane.manager] = l; });
    paintPoints(b, { times: events.time, places: app.places, laneOf: i => byManager[events.manager[i]], shapeOf: i => shapeOfType[events.type[i]] }, lanes, scroll);
  }

  function paintMarks(b, lanes, scroll) {
    const { marks } = app.data;
    const byServer = new Map(lanes.map((lane, l) => [lane.server, l]));
    paintPoints(b, { times: marks.time, places: app.marks, laneOf: i => byServer.get(marks.server[i]), shapeOf: () => 'square' }, lanes, scroll);
  }

  // paintMoments draws the time of what is chosen, and of the pointer.
  function paintMoments({ context, tokens, x, left, right }, height) {
    const chosen = app.chosenTime();
    if (chosen !== undefined) {
      context.fillStyle = tokens.accent;
      context.fillRect(Math.round(x(chosen)) - 1, 0, 2, height);
    }
    if (hover === undefined) return;
    context.fillStyle = tokens.muted;
    context.fillRect(Math.round(x(hover)), 0, 1, height);
    if (app.selection === undefined) return;
    context.fillStyle = tokens.accent;
    context.globalAlpha = 0.18;
    const [a, c] = [x(app.selection.from), x(app.selection.to)].sort((p, q) => p - q);
    context.fillRect(Math.max(a, left), 0, Math.min(c, right) - Math.max(a, left), height);
    context.globalAlpha = 1;
  }

  function paintRules({ context, tokens, left }, visible, scroll, width) {
    context.fillStyle = tokens.line;
    for (const lane of visible) context.fillRect(lane.kind === 'heading' ? 0 : left, lane.top - scroll + (lane.kind === 'heading' ? 0 : lane.height - 1), width, lane.kind === 'heading' ? 1 : 0.5);
  }

  // A label that stays in view stays the same element, and keeps the focus.
  function showLabels(visible) {
    for (const [lane, label] of shown) {
      if (visible.includes(lane)) continue;
      label.remove();
      shown.delete(lane);
    }
    for (const lane of visible) {
      if (shown.has(lane)) continue;
      const label = makeLabel(lane);
      label.style.top = lane.top + 'px';
      label.style.height = lane.height + 'px';
      shown.set(lane, label);
      labels.append(label);
    }
  }

  function makeLabel(lane) {
    const name = text => element('span', { class: 'name' }, text);
    const count = () => element('span', { class: 'muted' }, number(lane.count));
    const button = (title, query, attributes, ...children) => element('button', { type: 'button', title, onclick: () => app.setQuery(query), ...attributes }, ...children);
    if (lane.kind === 'service') {
      const { zero } = lane.service;
      return button(lane.title + (zero ? ' lost all its backends' : ''), '"' + lane.title + '"', { class: zero ? 'zero' : undefined }, name((zero ? '⚠\u00a0' : '') + lane.title));
    }
    if (lane.kind === 'writer') return button(`${lane.title}: ${plural(lane.count, 'event', 'events')}`, quoteTerm('manager', lane.title), {}, name(lane.title), count());
    if (lane.kind === 'audit') return element('span', { title: `${lane.server || unknown}: ${plural(lane.count, 'record', 'records')}` }, name(lane.title), count());
    return element('span', { class: lane.kind === 'heading' ? 'heading' : undefined }, name(lane.title));
  }

  scroller.addEventListener('scroll', () => app.repaint());
  return {
    relayout, paint,
    hovers: time => { hover = time; app.repaint(); },
    timeAt: x => brush(undefined).time(x),
    // laneAt is the lane under a point of the scroller.
    laneAt: y => layout.lanes.find(lane => y + scroller.scrollTop >= lane.top && y + scroller.scrollTop < lane.top + lane.height),
    edges,
  };
}
