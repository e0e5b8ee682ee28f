// SPDX-License-Identifier: Apache-2.0
// The time that is shown, and its axis.

const shortestView = 1; // in milliseconds

class View {
  // A view keeps a little room on both sides, so that nothing sticks to the edge.
  constructor(from, to, changed) {
    const room = Math.max((to - from) * 0.02, 500);
    this.first = from - room;
    this.last = to + room;
    this.changed = changed;
    this.from = this.first;
    this.to = this.last;
  }

  get span() { return this.to - this.from; }

  set(from, to) {
    const span = Math.min(Math.max(to - from, shortestView), this.last - this.first);
    from = Math.min(Math.max(from - (span - (to - from)) / 2, this.first), this.last - span);
    if (from === this.from && from + span === this.to) return;
    this.from = from;
    this.to = from + span;
    this.changed();
  }

  // zoom makes the view longer by a factor, and leaves one moment in its place.
  zoom(factor, at = (this.from + this.to) / 2) {
    this.set(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(by) {
    const span = this.span;
    const from = Math.min(Math.max(this.from + by, this.first), this.last - span);
    this.set(from, from + span);
  }

  reset() { this.set(this.first, this.last); }
}

const tickSteps = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3,
  6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6, 7776e6, 31536e6,
];

// ticks are the moments to name on an axis, at least some pixels apart.
function ticks(view, width, apart) {
  const least = view.span / Math.max(width / apart, 1);
  const step = tickSteps.find(s => s >= least) ?? tickSteps.at(-1);
  const out = [];
  for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) out.push({ time: n * step, text: tickText(n * step, step) });
  return out;
}

function tickText(time, step) {
  if (step >= 864e5 || time % 864e5 === 0) return day(time);
  if (step >= 6e4) return clock(time, 0).slice(0, 5);
  if (step >= 1e3) return clock(time, 0);
  return clock(time, step >= 1 ? 3 : 4);
}
