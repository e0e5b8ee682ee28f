// SPDX-License-Identifier: Apache-2.0
// Reading the data: from the packed form that pack.go writes to typed columns.
// Times are milliseconds since 1970, with fractions.

// What stands for the name of a writer or server that the data does not know.
const unknown = '(unknown)';

function readData(text, diffs) {
  const packed = JSON.parse(text);
  const time = micros => packed.base + micros / 1000;
  const times = deltas => {
    const out = new Float64Array(deltas.length);
    let at = 0;
    for (let i = 0; i < deltas.length; i++) out[i] = time(at += deltas[i]);
    return out;
  };
  return {
    title: packed.title, source: packed.source, notes: packed.notes, from: time(packed.from), to: time(packed.to),
    events: readEvents(packed, times, diffs),
    marks: readMarks(packed, times),
    services: readServices(packed, times),
    gaps: packed.gaps.map(g => ({ kind: g.kind, reason: g.reason, from: time(g.from), to: time(g.to) })),
    findings: packed.findings.map((f, index) => ({ ...f, index, from: time(f.from), to: f.to === null ? null : time(f.to) })),
  };
}

// Events are columns; what is asked of one is a method. Diffs stay text until
// somebody looks at one.
function readEvents(packed, times, diffs) {
  const { texts, objects } = packed;
  const object = Uint32Array.from(packed.events.object);
  const type = Uint32Array.from(packed.events.type);
  const manager = Uint32Array.from(packed.events.manager);
  const lines = packed.events.id.length > 0 ? diffs.split('\n') : [];
  const places = new Map(packed.events.id.map((id, i) => [id, i]));
  const objectName = o => (texts[objects.namespace[o]] ? texts[objects.namespace[o]] + '/' : '') + texts[objects.name[o]];
  return {
    length: lines.length, time: times(packed.events.time), id: packed.events.id, version: packed.events.version, lines, texts, objects, object, type, manager, objectName,
    kind: i => texts[objects.kind[object[i]]],
    what: i => objectName(object[i]),
    typeName: i => texts[type[i]],
    writer: i => texts[manager[i]] || unknown,
    place: id => places.get(id),
    // The steps of a diff; undefined if it was left out for its size.
    diff: i => {
      const value = JSON.parse(lines[i]);
      return Array.isArray(value) ? value : undefined;
    },
  };
}

function readMarks(packed, times) {
  const { user, verb, what, server, event } = packed.marks;
  const texts = packed.texts;
  return {
    length: user.length, time: times(packed.marks.time), server: server.map(s => texts[s]), event,
    user: i => texts[user[i]], verb: i => texts[verb[i]], what: i => texts[what[i]],
  };
}

// Services come in the order of what they lost; of two, the one that a finding
// is about comes first.
function readServices({ services, findings }, times) {
  const named = new Set(findings.map(f => f.service));
  const rank = s => (named.has(s.name) ? 2 : 0) + s.lost + (s.changed ? 0.001 : 0);
  return services.map(s => readService(s, times(s.time))).sort((a, b) => rank(b) - rank(a) || (a.name < b.name ? -1 : 1));
}

// lost is the largest part of its backends that a Service lost at once.
function readService({ name, backends, retained }, time) {
  let lost = 0, changed = false, max = 1;
  for (let i = 0; i < backends.length; i++) {
    // A Service that begins with nothing has not lost anything, nor one that goes.
    if (i > 0 && backends[i] !== backends[i - 1]) changed = true;
    if (i > 0 && backends[i] >= 0 && backends[i - 1] > 0) lost = Math.max(lost, 1 - backends[i] / backends[i - 1]);
    max = Math.max(max, backends[i], retained[i]);
  }
  return { name, time, backends, retained, lost, zero: lost === 1, changed, max };
}

// firstAt is the first place in sorted times that is not before a time.
function firstAt(times, time) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
