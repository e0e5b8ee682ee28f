// SPDX-License-Identifier: Apache-2.0
// Above the lanes: the whole time with the part that is shown, and the axis.

const stripHeight = 30, axisHeight = 24;

function openOverview(app, chart) {
  const canvas = byID('overview');
  let density; // events per two pixels of the strip, for one width and filter

  const all = () => { const { left, right } = chart.edges(); return makeBrush(undefined, app.tokens, { from: app.view.first, last: app.view.last, span: app.view.last - app.view.first }, left, right); };

  function count(b) {
    const { time } = app.data.events;
    const columns = new Uint32Array(Math.ceil((b.right - b.left) / 2) + 1);
    for (const i of app.places) columns[((b.x(time[i]) - b.left) / 2) | 0]++;
    density = { places: app.places, width: b.right - b.left, columns, most: columns.reduce((a, n) => Math.max(a, n), 1) };
  }

  function paint() {
    const width = canvas.clientWidth;
    const b = { ...all(), context: fitCanvas(canvas, width, stripHeight + axisHeight) };
    if (density?.places !== app.places || density.width !== b.right - b.left) count(b);
    paintStrip(b);
    paintWindow(b);
    paintAxis(makeBrush(b.context, app.tokens, app.view, b.left, b.right));
  }

  function paintStrip(b) {
    const { context, tokens, left, right } = b;
    context.fillStyle = tokens.page;
    context.fillRect(left, 0, right - left, stripHeight);
    context.fillStyle = tokens.muted;
    const most = Math.log2(1 + density.most);
    density.columns.forEach((n, c) => {
      if (n === 0) return;
      const height = Math.max((stripHeight - 8) * Math.log2(1 + n) / most, 2);
      context.fillRect(left + c * 2, stripHeight - height, 1.5, height);
    });
    for (const finding of app.data.findings) {
      context.fillStyle = tokens[finding.severity === 'alarm' ? 'alarm-mark' : 'warning-mark'];
      context.fillRect(b.x(finding.from) - 1, 0, 2.5, stripHeight);
    }
  }

  function paintWindow({ context, tokens, x, left, right }) {
    const [a, c] = [x(app.view.from), x(app.view.to)];
    context.fillStyle = tokens.surface;
    context.globalAlpha = 0.6;
    context.fillRect(left, 0, a - left, stripHeight);
    context.fillRect(c, 0, right - c, stripHeight);
    context.globalAlpha = 1;
    context.strokeStyle = tokens.accent;
    context.lineWidth = 1.5;
    context.strokeRect(a, 0.75, Math.max(c - a, 2), stripHeight - 1.5);
  }

  function paintAxis({ context, tokens, view, x, left, right }) {
    context.font = '11px ' + tokens.font;
    context.fillStyle = tokens.muted;
    context.fillText(`${day(view.from)} (UTC)`, 12, stripHeight + 16);
    for (const tick of ticks(view, right - left, 90)) {
      const at = Math.round(x(tick.time));
      context.fillRect(at, stripHeight, 1, 5);
      if (at + 4 + context.measureText(tick.text).width < right) context.fillText(tick.text, at + 4, stripHeight + 16);
    }
  }

  const timeAt = event => all().time(event.clientX - canvas.getBoundingClientRect().left);
  const centre = event => { const half = app.view.span / 2; app.view.pan(timeAt(event) - half - app.view.from); };
  canvas.addEventListener('pointerdown', event => { canvas.setPointerCapture(event.pointerId); centre(event); });
  canvas.addEventListener('pointermove', event => { if (event.buttons & 1) centre(event); });
  canvas.addEventListener('wheel', event => { event.preventDefault(); app.view.zoom(Math.exp(event.deltaY * 0.0022)); }, { passive: false });
  return { paint };
}
