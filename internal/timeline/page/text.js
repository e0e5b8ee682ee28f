// SPDX-License-Identifier: Apache-2.0
// How times, numbers and changes are written, and elements are made. What comes
// from the data becomes text and nothing else.

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, '');
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const byID = id => document.getElementById(id);
const number = n => n.toLocaleString('en').replaceAll(',', '\u202f');
const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;

// Dates hold whole milliseconds; the rest of a time's digits come behind.
function clock(time, digits = 3) {
  const micros = Math.round((time - Math.floor(time)) * 1000);
  const text = new Date(Math.floor(time)).toISOString().slice(11, -1) + String(Math.min(micros, 999)).padStart(3, '0');
  return digits === 0 ? text.slice(0, 8) : text.slice(0, 9 + digits);
}
const day = time => new Date(Math.floor(time)).toISOString().slice(0, 10);
const stamp = (time, digits) => day(time) + ' ' + clock(time, digits);

function duration(ms) {
  if (ms < 1) return Math.round(ms * 1000) + ' µs';
  if (ms < 1000) return round(ms) + ' ms';
  if (ms < 60e3) return round(ms / 1000) + ' s';
  for (const [size, name, part, partName] of [[864e5, 'd', 36e5, 'h'], [36e5, 'h', 6e4, 'min'], [6e4, 'min', 1e3, 's']]) {
    if (ms < size) continue;
    const rest = Math.floor(ms % size / part);
    return Math.floor(ms / size) + ' ' + name + (rest ? ' ' + rest + ' ' + partName : '');
  }
}
const round = n => String(n < 10 ? Math.round(n * 10) / 10 : Math.round(n));

// changeText is a diff in a line.
function changeText(steps) {
  if (steps === undefined) return '(too large for this page)';
  return steps.map(stepText).join('  ');
}

function stepText({ p, o, a, b }) {
  if (o === 'add') return p === '' ? 'all of it is new' : '+' + p + ' ' + short(b);
  if (o === 'remove') return p === '' ? 'all of it is gone' : '−' + p + ' ' + short(a);
  return p + ' ' + short(a) + ' → ' + short(b);
}

// valueText is a value as one reads it: in a line, if it is not long.
function valueText(value) {
  const text = JSON.stringify(value);
  return text.length <= 120 ? text : JSON.stringify(value, null, 2);
}

function short(value) {
  const text = JSON.stringify(value) ?? '';
  return text.length > 80 ? text.slice(0, 79) + '…' : text;
}
