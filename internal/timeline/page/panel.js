// SPDX-License-Identifier: Apache-2.0
// The details of one thing beside the chart: an event with what it changed, a
// finding, an audit record, or a gap.

function openPanel(app) {
  const panel = byID('panel');
  let back; // what had the focus before

  const action = (text, onclick) => element('button', { type: 'button', onclick }, text);
  const facts = pairs => element('dl', {}, ...pairs.filter(([, value]) => value !== '' && value !== undefined).flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
  const head = title => element('div', { class: 'top' }, element('h2', {}, title), element('button', { type: 'button', 'aria-label': 'Close details', title: 'Close (Esc)', onclick: close }, '✕'));
  const said = finding => element('p', { class: 'said ' + finding.severity }, [finding.text, finding.detail].filter(text => text !== '').join(': '));

  function show(thing, focus) {
    const content = { event: showEvent, finding: showFinding, mark: showMark, gap: showGap }[thing.kind](thing.index);
    if (panel.hidden) back = document.activeElement;
    panel.replaceChildren(...content);
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.parentElement.classList.add('open');
    if (focus) panel.focus();
  }

  function close() {
    if (panel.hidden) return;
    const focused = panel.contains(document.activeElement);
    panel.hidden = true;
    panel.parentElement.classList.remove('open');
    if (focused) back?.focus();
    app.choose(undefined);
  }

  function showEvent(i) {
    const { events, findings, marks } = app.data;
    const records = [];
    for (let m = 0; m < marks.length; m++) if (marks.event[m] === events.id[i]) records.push(m);
    return [
      head(`${events.kind(i)} ${events.what(i)}`),
      ...findings.filter(f => f.event === events.id[i]).map(said),
      facts([
        ['Time', stamp(events.time[i], 6) + ' UTC'], ['Type', events.typeName(i)], ['Writer', events.writer(i)],
        ['Version', events.version[i]], ['Event', String(events.id[i])],
        ...records.map(m => ['Audit', `${marks.user(m)}: ${marks.verb(m)}, noted by ${marks.server[m]}`]),
      ]),
      element('h3', {}, 'What changed'),
      ...showDiff(events, i),
      element('div', { class: 'acts' },
        action('Its events only', () => app.setQuery([quoteTerm('kind', events.kind(i)), quoteTerm('object', events.what(i))].join(' '))),
        action('← Before', () => neighbour(i, -1)), action('After →', () => neighbour(i, 1))),
    ];
  }

  // neighbour goes to the event of the same object before or after one.
  function neighbour(i, by) {
    const { object, length } = app.data.events;
    for (let n = i + by; n >= 0 && n < length; n += by) {
      if (object[n] === object[i]) return app.choose({ kind: 'event', index: n }, true, true);
    }
  }

  function showDiff(events, i) {
    const steps = events.diff(i);
    if (steps === undefined) return [element('p', {}, `This diff of ${number(Number(events.lines[i]))} bytes would make the page too large. The journal has it: fairlead events JOURNAL -o json shows event ${events.id[i]}.`)];
    if (steps.length === 0) return [element('p', { class: 'muted' }, events.typeName(i) === 'modified' ? 'Nothing but its version.' : 'The journal holds no diff of it.')];
    const raw = element('pre', { class: 'raw', hidden: true }, JSON.stringify(steps.map(({ p, o, a, b }) => ({ path: p, op: o, old: a, new: b })), null, 2));
    return [...steps.map(showStep), element('button', { type: 'button', class: 'link', onclick: () => { raw.hidden = !raw.hidden; } }, 'As JSON'), raw];
  }

  function showStep({ p, o, a, b }) {
    const value = (v, sign, name, words) => (v === undefined ? [] : [element('pre', { class: name, tabindex: '0', 'aria-label': words }, sign + ' ' + valueText(v))]);
    const op = { add: 'added', remove: 'removed', replace: 'replaced' }[o] ?? o;
    return element('div', { class: 'step' }, element('div', { class: 'path' }, p === '' ? '(the whole object)' : p, ' ', element('span', { class: 'muted' }, op)),
      ...value(a, '−', 'old', 'Old value'), ...value(b, '+', 'new', 'New value'));
  }

  function showFinding(index) {
    const finding = app.data.findings[index];
    const event = app.data.events.place(finding.event);
    const about = [
      head(finding.service || 'Finding'), said(finding),
      facts([['From', stamp(finding.from, 6) + ' UTC'], ['Until', finding.to === null ? undefined : `${stamp(finding.to, 6)} UTC (${duration(finding.to - finding.from)})`], ['Invariant', finding.invariant]]),
    ];
    if (event === undefined) return about;
    // What brought it about is what one wants to see: the event follows.
    return [...about, element('h3', {}, 'Brought about by'), ...showEvent(event).slice(1).filter(part => !part.classList.contains('said'))
      .toSpliced(0, 0, element('p', {}, element('b', {}, `${app.data.events.kind(event)} ${app.data.events.what(event)}`)))];
  }

  function showMark(i) {
    const { marks, events } = app.data;
    const place = events.place(marks.event[i]);
    return [
      head(marks.what(i)),
      facts([['Time', stamp(marks.time[i], 6) + ' UTC'], ['User', marks.user(i)], ['Verb', marks.verb(i)], ['Audit log', marks.server[i]]]),
      place === undefined ? element('p', { class: 'muted' }, 'No event of the journal belongs to this request.')
        : action('The event that it brought about', () => app.choose({ kind: 'event', index: place }, true, true)),
    ];
  }

  function showGap(index) {
    const gap = app.data.gaps[index];
    return [
      head(`${gap.kind} was not watched`),
      facts([['From', stamp(gap.from, 6) + ' UTC'], ['Until', stamp(gap.to, 6) + ' UTC'], ['For', duration(gap.to - gap.from)], ['Reason', gap.reason]]),
      element('p', { class: 'muted' }, 'What happened in this time shows when watching began again, with that time.'),
    ];
  }

  document.addEventListener('keydown', event => { if (event.key === 'Escape' && event.target.tagName !== 'INPUT') close(); });
  return { show, hide: () => { panel.hidden = true; panel.parentElement.classList.remove('open'); } };
}
