// SPDX-License-Identifier: Apache-2.0
// What belongs together: the state of the page, and who is told when it changes.

function start() {
  const data = readData(byID('data').textContent, byID('diffs').textContent);
  let waiting = false;
  const app = {
    data, view: new View(data.from, data.to, () => app.repaint()), tokens: readTokens(),
    places: filterEvents(data.events, []), marks: filterMarks(data.marks, []),
    allServices: false, findService: '', chosen: undefined, selection: undefined,
    repaint, choose, setQuery, chosenTime,
  };
  const chart = openChart(app);
  const overview = openOverview(app, chart);
  const table = openTable(app);
  const panel = openPanel(app);
  openPointer(app, chart);
  openTheme(() => { app.tokens = readTokens(); repaint(); });
  openTools(app, chart);
  const saveHash = later(200, () => writeHash(app));

  // However much changes, it is painted once per frame.
  function repaint() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      chart.paint();
      overview.paint();
      table.paint();
      byID('range').textContent = `${clock(app.view.from)} – ${clock(app.view.to)} · ${duration(app.view.span)}`;
      saveHash();
    });
  }

  // choose shows a thing's details; it may take the focus there, and the view.
  function choose(thing, focus = false, follow = false) {
    app.chosen = thing;
    if (thing === undefined) panel.hide();
    else panel.show(thing, focus);
    const time = chosenTime();
    if (follow && (time < app.view.from || time > app.view.to)) app.view.pan(time - app.view.span / 2 - app.view.from);
    reveal(thing);
    repaint();
  }

  // reveal shows in the table the event that a thing is, or came of.
  function reveal(thing) {
    const place = thing?.kind === 'finding' ? data.events.place(data.findings[thing.index].event) : thing?.kind === 'event' ? thing.index : undefined;
    if (place !== undefined) table.reveal(place);
  }

  function chosenTime() {
    if (app.chosen === undefined) return undefined;
    const { kind, index } = app.chosen;
    return { event: i => data.events.time[i], mark: i => data.marks.time[i], finding: i => data.findings[i].from, gap: i => data.gaps[i].from }[kind](index);
  }

  function setQuery(query) {
    const { terms, wrong } = parseFilter(query);
    if (byID('query').value !== query) byID('query').value = query;
    byID('query').setAttribute('aria-invalid', String(wrong !== undefined));
    byID('count').classList.toggle('wrong', wrong !== undefined);
    if (wrong !== undefined) return void (byID('count').textContent = `${wrong}: use ${filterKeys.join(', ')}`);
    app.places = filterEvents(data.events, terms);
    app.marks = filterMarks(data.marks, terms);
    byID('count').textContent = terms.length === 0 ? plural(data.events.length, 'event', 'events') : `${number(app.places.length)} of ${plural(data.events.length, 'event', 'events')}`;
    chart.relayout();
  }

  byID('source').textContent = data.source;
  byID('source').title = data.source;
  byID('notes').append(...data.notes.map(note => element('p', { class: 'note' }, note)));
  const first = openHeadline(app);
  if (first !== undefined) app.view.set(...around(data, first));
  setQuery('');
  if (first !== undefined) reveal({ kind: 'finding', index: first.index });
  readHash(app);
  window.addEventListener('hashchange', () => readHash(app));
  new ResizeObserver(repaint).observe(byID('lanes'));
  new ResizeObserver(repaint).observe(byID('table'));
}

// openTools serves what stands between headline and chart.
function openTools(app, chart) {
  const query = byID('query'), find = byID('find');
  query.addEventListener('input', later(120, () => app.setQuery(query.value)));
  byID('filter').addEventListener('submit', event => { event.preventDefault(); app.setQuery(query.value); });
  find.addEventListener('input', later(120, () => { app.findService = find.value.trim(); chart.relayout(); }));
  byID('all').addEventListener('change', event => { app.allServices = event.target.checked; chart.relayout(); });
  byID('in').addEventListener('click', () => app.view.zoom(1 / 1.5));
  byID('out').addEventListener('click', () => app.view.zoom(1.5));
  byID('whole').addEventListener('click', () => app.view.reset());
  const { length } = app.data.services;
  byID('fold').hidden = length <= fewServices;
  byID('find').hidden = length <= fewServices;
  byID('fold-text').textContent = `all ${number(length)} Services`;
  for (const [mark, words] of [['▲', 'added'], ['●', 'modified'], ['✕', 'deleted or found gone'], ['○', 'there before'], ['▤', 'many: the higher, the more'], ['▨', 'no backends left']]) {
    byID('legend').append(element('span', {}, element('i', {}, mark), element('b', {}, words)));
  }
  byID('legend').append(element('span', { class: 'keys' }, 'wheel: zoom · drag: select · shift: move · double click: all · keys: + − ← → 0, findings: n p'));
}

// later runs what it is given once, after the last of calls that come quickly.
function later(ms, run) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(run, ms); };
}

// The address keeps what is looked at, so that it can be sent to somebody.
function writeHash(app) {
  const hash = new URLSearchParams();
  if (app.view.from !== app.view.first || app.view.to !== app.view.last) {
    hash.set('from', stamp(app.view.from, 6).replace(' ', 'T') + 'Z');
    hash.set('to', stamp(app.view.to, 6).replace(' ', 'T') + 'Z');
  }
  if (byID('query').value !== '') hash.set('q', byID('query').value);
  if (app.chosen?.kind === 'event') hash.set('event', app.data.events.id[app.chosen.index]);
  if (app.chosen?.kind === 'finding') hash.set('finding', app.chosen.index + 1);
  const text = '#' + hash;
  if (text !== (location.hash || '#')) history.replaceState(null, '', text);
}

function readHash(app) {
  const hash = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [parseTime(hash.get('from')), parseTime(hash.get('to'))];
  if (from < to) app.view.set(from, to);
  if (hash.has('q')) app.setQuery(hash.get('q'));
  const place = app.data.events.place(Number(hash.get('event')));
  const finding = Number(hash.get('finding')) - 1;
  if (place !== undefined) app.choose({ kind: 'event', index: place });
  else if (app.data.findings[finding] !== undefined) app.choose({ kind: 'finding', index: finding });
}

// parseTime keeps the digits below milliseconds that dates drop; NaN is no time.
function parseTime(text) {
  const [, whole, rest] = /^(.*\.\d{3})(\d{0,3})Z$/.exec(text ?? '') ?? [];
  return whole === undefined ? Date.parse(text ?? '') : Date.parse(whole + 'Z') + Number(rest.padEnd(3, '0')) / 1000;
}

start();
