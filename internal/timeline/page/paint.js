// SPDX-License-Identifier: Apache-2.0
// How each thing looks on a canvas. A brush has the context, the colours, the
// view, and the edges of the plot. Nothing here takes longer than the pixels and
// the visible times require.

function makeBrush(context, tokens, view, left, right) {
  const scale = (right - left) / view.span;
  return { context, tokens, view, left, right, x: time => left + (time - view.from) * scale, time: x => view.from + (x - left) / scale };
}

// fitCanvas gives a canvas the pixels of the screen, and returns its context.
function fitCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + 'px';
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// hatch draws diagonal lines within a box.
function hatch({ context }, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.beginPath();
  for (let at = x - height - (x - height) % 6; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

// Each type of event has a colour and a shape.
const shapes = { listed: 'ring', added: 'triangle', modified: 'dot', deleted: 'cross', absent: 'cross' };
const shapeTokens = { ring: 'muted', triangle: 'added', dot: 'accent', cross: 'alarm-mark', diamond: 'alarm-mark', flag: 'warning-mark', square: 'muted' };

function paintShape({ context, tokens }, shape, x, y, size) {
  context.fillStyle = context.strokeStyle = tokens[shapeTokens[shape]];
  context.lineWidth = 1.6;
  context.beginPath();
  switch (shape) {
    case 'dot': context.arc(x, y, size, 0, 7); context.fill(); return;
    case 'ring': context.arc(x, y, size - 0.6, 0, 7); context.stroke(); return;
    case 'square': context.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2); context.fill(); return;
    case 'triangle': context.moveTo(x, y - size - 0.5); context.lineTo(x + size + 0.5, y + size); context.lineTo(x - size - 0.5, y + size); context.fill(); return;
    case 'flag': context.moveTo(x, y + size); context.lineTo(x + size, y - size); context.lineTo(x - size, y - size); context.fill(); return;
    case 'diamond': context.moveTo(x, y - size); context.lineTo(x + size, y); context.lineTo(x, y + size); context.lineTo(x - size, y); context.fill(); return;
  }
  context.moveTo(x - size, y - size); context.lineTo(x + size, y + size);
  context.moveTo(x + size, y - size); context.lineTo(x - size, y + size);
  context.stroke();
}

function paintGrid({ context, tokens, view, x, left, right }, height) {
  context.fillStyle = tokens.line;
  context.globalAlpha = 0.5;
  for (const tick of ticks(view, right - left, 90)) context.fillRect(Math.round(x(tick.time)), 0, 1, height);
  context.globalAlpha = 1;
}

// clip is the part of a time that is in view, in pixels, and at least so wide
// that it is seen; undefined if none is.
function clip({ x, left, right }, from, to, least) {
  const [a, b] = [x(from), x(to)];
  if (b < left || a > right) return undefined;
  const start = Math.max(a, left);
  return { x: start, width: Math.max(Math.min(b, right) - start, least) };
}

function paintGaps(brush, gaps, lane, y) {
  for (const gap of gaps) {
    const part = clip(brush, gap.from, gap.to, 3);
    if (part === undefined) continue;
    brush.context.fillStyle = brush.tokens['warning-surface'];
    brush.context.fillRect(part.x, y + 4, part.width, lane.height - 8);
    hatch(brush, part.x, y + 4, part.width, lane.height - 8, brush.tokens['warning-mark']);
  }
}

// paintGapBands reminds, behind all lanes, that something was not watched.
function paintGapBands(brush, gaps, height) {
  brush.context.globalAlpha = 0.35;
  let end = -1; // bands that cover each other are not darker
  for (const gap of gaps) {
    const part = clip(brush, gap.from, gap.to, 1);
    if (part === undefined || part.x + part.width <= end) continue;
    const start = Math.max(part.x, end);
    end = part.x + part.width;
    brush.context.fillStyle = brush.tokens['warning-surface'];
    brush.context.fillRect(start, 0, end - start, height);
  }
  brush.context.globalAlpha = 1;
}

function paintFindings(brush, findings, y, height, chosen) {
  const { context, tokens, x, view, left, right } = brush;
  for (const finding of findings) {
    // Of one moment, both an alarm and a warning are seen.
    const alarm = finding.severity === 'alarm';
    const middle = alarm ? y + height / 2 - 3 : y + height - 7;
    const part = clip(brush, finding.from, finding.to ?? (alarm ? view.last : finding.from), 0);
    if (part === undefined) continue;
    context.fillStyle = tokens[alarm ? 'alarm-mark' : 'warning-mark'];
    context.globalAlpha = 0.45;
    context.fillRect(part.x, middle - 2, part.width, alarm ? 5 : 3);
    context.globalAlpha = 1;
    const at = x(finding.from);
    if (at < left - 8 || at > right + 8) continue;
    paintShape(brush, alarm ? 'diamond' : 'flag', at, middle, alarm ? 7 : 4.5);
    if (finding !== chosen) continue;
    context.strokeStyle = tokens.text;
    context.strokeRect(at - 10, middle - 10, 20, 20);
  }
}

// paintPoints draws things that happened at a moment, by lane: shapes where they
// have room, otherwise how dense they are, with the part that went in alarm.
function paintPoints(brush, { times, places, laneOf, shapeOf }, lanes, scroll) {
  const { view, left, right, x } = brush;
  const columnWidth = 3;
  const columns = Math.ceil((right - left) / columnWidth) + 1;
  const counts = lanes.map(() => new Uint32Array(columns));
  const gone = lanes.map(() => new Uint32Array(columns));
  const lasts = lanes.map(() => new Int32Array(columns));
  const [first, end] = placesBetween(places, times, view.from, view.to);
  for (let p = first; p < end; p++) {
    const i = places[p];
    const lane = laneOf(i);
    if (lane === undefined) continue;
    const column = ((x(times[i]) - left) / columnWidth) | 0;
    counts[lane][column]++;
    lasts[lane][column] = i;
    if (shapeOf(i) === 'cross') gone[lane][column]++;
  }
  lanes.forEach((lane, l) => {
    const middle = lane.top - scroll + lane.height / 2;
    const single = c => { const i = lasts[l][c]; paintShape(brush, shapeOf(i), x(times[i]), middle, 3.5); };
    paintColumns(brush, lane, lane.top - scroll, counts[l], gone[l], columnWidth, single);
  });
}

function paintColumns({ context, tokens, left }, lane, y, counts, gone, width, single) {
  const most = Math.log2(2 + counts.reduce((a, b) => Math.max(a, b), 0));
  const room = lane.height - 6;
  const bars = new Path2D(), ends = new Path2D();
  const singles = [];
  counts.forEach((count, c) => {
    if (count === 0) return;
    if (count === 1 && isAlone(counts, c)) return void singles.push(c);
    const height = Math.max(room * Math.log2(1 + count) / most, 6);
    const top = y + (lane.height - height) / 2;
    bars.rect(left + c * width, top, width - 0.5, height);
    if (gone[c] > 0) ends.rect(left + c * width, top, width - 0.5, Math.max(height * gone[c] / count, 2.5));
  });
  context.fillStyle = tokens[lane.kind === 'audit' ? 'muted' : 'accent'];
  context.fill(bars);
  context.fillStyle = tokens['alarm-mark'];
  context.fill(ends);
  for (const c of singles) single(c);
}

// isAlone says that the columns around one leave room for a shape.
const isAlone = (counts, c) => !(counts[c - 2] || counts[c - 1] || counts[c + 1] || counts[c + 2]);

// placesBetween is the range of places whose times lie in a span.
function placesBetween(places, times, from, to) {
  const find = time => {
    let low = 0, high = places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[places[middle]] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return [find(from), find(to)];
}

// stretches calls visit with each stretch of a Service's series that is in view:
// its place and its edges in time. Those within one pixel become one, the
// lowest of them, so that no moment without backends is lost.
function stretches({ view, left, right }, service, visit) {
  const { time, backends } = service;
  const pixel = view.span / (right - left);
  let i = Math.max(firstAt(time, view.from) - 1, 0);
  while (i < time.length && time[i] < view.to) {
    let lowest = i, next = i + 1;
    while (next < time.length && time[next] - time[i] < pixel) {
      if (isLoss(service, next) || backends[next] < backends[lowest] && !isLoss(service, lowest)) lowest = next;
      next++;
    }
    // What a pixel ends with goes on to the next change.
    const end = next < time.length ? time[next] : view.last;
    if (lowest !== next - 1) {
      visit(lowest, time[i], Math.min(time[i] + pixel, end));
      visit(next - 1, Math.min(time[i] + pixel, end), end);
    } else visit(lowest, time[i], end);
    i = next;
  }
}

// isLoss says that a Service had backends, and has none from this point on.
function isLoss({ backends }, i) {
  if (backends[i] !== 0) return false;
  for (let before = i - 1; before >= 0; before--) if (backends[before] !== 0) return backends[before] > 0;
  return false;
}

// paintService draws steps, and where all backends were lost, a hatched box in
// alarm as high as the lane.
function paintService(brush, service, y, height) {
  const { context, tokens, x, left, right } = brush;
  const floor = y + height - 5, room = height - 17;
  const level = n => floor - Math.max(n, 0) / service.max * room;
  const line = new Path2D(), area = new Path2D();
  const losses = [], numbers = [];
  let before;
  stretches(brush, service, (i, from, to) => {
    const backends = service.backends[i];
    const [a, b] = [Math.max(x(from), left), Math.min(x(to), right)];
    if (isLoss(service, i)) losses.push([a, b, service.retained[i]]);
    if (backends < 0) return void (before = undefined);
    if (before === undefined) line.moveTo(a, level(backends));
    else line.lineTo(a, level(backends));
    line.lineTo(b, level(backends));
    area.rect(a, level(backends), b - a, floor - level(backends));
    if (b - a >= 26 && backends > 0) numbers.push([a + 4, level(backends) - 3, backends]);
    before = backends;
  });
  context.fillStyle = tokens['series-surface'];
  context.fill(area);
  context.strokeStyle = tokens.series;
  context.lineWidth = 1.5;
  context.stroke(line);
  paintLosses(brush, losses, y, height);
  context.font = '10px ' + tokens.font;
  context.fillStyle = tokens.muted;
  for (const [at, up, n] of numbers) context.fillText(number(n), at, up);
}

function paintLosses(brush, losses, y, height) {
  const { context, tokens } = brush;
  let end = -Infinity; // of the box before; one that it covers is not drawn
  for (const [a, b, retained] of losses) {
    const width = Math.max(b - a, 5);
    if (a + width <= end) continue;
    end = a + width;
    context.fillStyle = tokens['alarm-surface'];
    context.fillRect(a, y + 3, width, height - 6);
    hatch(brush, a, y + 3, width, height - 6, tokens['alarm-mark']);
    context.strokeStyle = tokens['alarm-mark'];
    context.lineWidth = 1.5;
    context.strokeRect(a, y + 3, width, height - 6);
    const text = retained > 0 ? `0 (${number(retained)} retained)` : '0';
    paintBadge(brush, text, a + width / 2, y + height / 2, width);
  }
}

// paintBadge writes a text on a plate, if there is room.
function paintBadge({ context, tokens }, text, x, y, room) {
  context.font = '600 11px ' + tokens.font;
  const width = context.measureText(text).width + 10;
  if (width > room - 2) return;
  context.fillStyle = tokens['alarm-surface'];
  context.fillRect(x - width / 2, y - 8, width, 16);
  context.fillStyle = tokens.alarm;
  context.textAlign = 'center';
  context.fillText(text, x, y + 4);
  context.textAlign = 'start';
}
