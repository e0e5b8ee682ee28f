// SPDX-License-Identifier: Apache-2.0
// The filter: "kind:EndpointSlice manager:kube-apiserver kubernetes". Every term
// must hold; of values that commas part any will do; a minus in front excludes.

const filterKeys = ['kind', 'namespace', 'name', 'object', 'manager', 'type', 'version', 'id', 'path'];

// parseFilter returns terms, or the first that makes no sense.
function parseFilter(query) {
  const terms = [];
  for (const [word, minus, key, quoted, plain] of query.matchAll(/(-?)(?:([a-z]+):)?(?:"([^"]*)"|(\S+))/gi)) {
    const name = key?.toLowerCase();
    if (name !== undefined && !filterKeys.includes(name)) return { terms: [], wrong: word };
    const text = (quoted ?? plain).toLowerCase();
    const values = name !== undefined && quoted === undefined ? text.split(',').filter(v => v !== '') : [text];
    if (values.length > 0 && values[0] !== '') terms.push({ key: name, values, exclude: minus !== '' });
  }
  return { terms, wrong: undefined };
}

// filterEvents returns the places of the events for which all terms hold.
function filterEvents(events, terms) {
  const tests = terms.map(term => eventTest(events, term));
  const found = new Uint32Array(events.length);
  let n = 0;
  next: for (let i = 0; i < events.length; i++) {
    for (const test of tests) if (!test(i)) continue next;
    found[n++] = i;
  }
  return found.subarray(0, n);
}

function eventTest(events, { key, values, exclude }) {
  const holds = eventHolds(events, key, values);
  return exclude ? i => !holds(i) : holds;
}

// Objects, types and managers are few: each is asked once, and then looked up.
function eventHolds(events, key, values) {
  const { texts, objects, object, manager, type, version, id, lines } = events;
  const is = text => values.includes(text.toLowerCase());
  const has = text => values.some(v => text.toLowerCase().includes(v));
  const ofObjects = test => { const hits = objects.name.map((_, o) => test(o)); return i => hits[object[i]]; };
  const ofTexts = (column, test) => { const hits = texts.map(test); return i => hits[column[i]]; };
  switch (key) {
    case 'kind': return ofObjects(o => is(texts[objects.kind[o]]));
    case 'namespace': return ofObjects(o => is(texts[objects.namespace[o]]));
    case 'name': return ofObjects(o => has(texts[objects.name[o]]));
    case 'object': return ofObjects(o => is(events.objectName(o)));
    case 'manager': return ofTexts(manager, text => has(text || unknown));
    case 'type': return ofTexts(type, is);
    case 'version': return i => values.includes(version[i]);
    case 'id': return i => values.includes(String(id[i]));
    case 'path': return i => (events.diff(i) ?? []).some(step => has(step.p));
  }
  const inObject = ofObjects(o => has(events.objectName(o)) || has(texts[objects.kind[o]]));
  const inManager = ofTexts(manager, has);
  const inLine = values.map(lineTest);
  return i => inObject(i) || inManager(i) || inLine.some(test => test(lines[i]));
}

// Lines of diffs are JSON in which <, > and & are escaped, so words must be, too.
function lineTest(word) {
  const escaped = JSON.stringify(word).slice(1, -1).replace(/[<>&]/g, c => '\\u00' + c.charCodeAt(0).toString(16));
  const pattern = new RegExp(escaped.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
  return line => pattern.test(line);
}

// filterMarks asks words alone: audit records know no managers or versions.
function filterMarks(marks, terms) {
  const words = terms.filter(term => term.key === undefined);
  const found = [];
  for (let i = 0; i < marks.length; i++) {
    const text = [marks.user(i), marks.verb(i), marks.what(i), marks.server[i]].join(' ').toLowerCase();
    if (words.every(({ values, exclude }) => values.some(v => text.includes(v)) !== exclude)) found.push(i);
  }
  return Uint32Array.from(found);
}

// quoteTerm writes a term with a value as it is, up to a quote, which no term can
// hold.
function quoteTerm(key, value) {
  const [text] = value.split('"');
  return key + ':' + (/[\s,]/.test(text) || text !== value ? '"' + text + '"' : text);
}
