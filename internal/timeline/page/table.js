// SPDX-License-Identifier: Apache-2.0
// The events in words: those that the filter picks, in the time that is shown.
// Only the rows in view exist.

const rowHeight = 24;

function openTable(app) {
  const table = byID('table'), rows = byID('rows');
  let first = 0, end = 0; // the range of places that is shown
  let at; // the place in events that the keyboard is on

  const placeOf = row => app.places[first + row];
  const rowOf = place => { const row = firstAt(app.places, place) - first; return placeOf(row) === place && row >= 0 && row < end - first ? row : undefined; };

  function paint() {
    [first, end] = placesBetween(app.places, app.data.events.time, app.view.from, app.view.to);
    const length = end - first;
    table.setAttribute('aria-rowcount', length + 1);
    rows.style.height = length * rowHeight + 'px';
    if (length === 0) return rows.replaceChildren(element('p', { class: 'none' }, whyNone()));
    const top = Math.max(Math.floor(table.scrollTop / rowHeight) - 2, 0);
    const bottom = Math.min(top + Math.ceil(table.clientHeight / rowHeight) + 4, length);
    const made = [];
    for (let row = top; row < bottom; row++) made.push(makeRow(row));
    rows.replaceChildren(...made);
    const current = at === undefined ? undefined : rowOf(at);
    if (current !== undefined && current >= top && current < bottom) table.setAttribute('aria-activedescendant', 'row-' + at);
    else table.removeAttribute('aria-activedescendant');
  }

  function whyNone() {
    if (app.data.events.length === 0) return 'There are no events.';
    return app.places.length === 0 ? 'No events match the filter.' : 'No events in this time.';
  }

  function makeRow(row) {
    const { events } = app.data;
    const i = placeOf(row);
    const chosen = app.chosen?.kind === 'event' && app.chosen.index === i;
    const cell = (text, name) => element('span', { role: 'gridcell', class: name, title: text.length > 20 ? text.slice(0, 500) : undefined }, text);
    const made = element('div', { class: `row${i === at ? ' at' : ''}${chosen ? ' chosen' : ''}`, id: 'row-' + i, role: 'row', 'aria-rowindex': row + 2, 'aria-selected': String(chosen) },
      cell(clock(events.time[i])), cell(events.kind(i)), cell(events.what(i)), cell(events.typeName(i)),
      cell(events.writer(i)), cell(events.version[i], 'muted'), cell(changeText(events.diff(i)).slice(0, 400), 'change'));
    made.style.top = row * rowHeight + 'px';
    return made;
  }

  function scrollTo(row) {
    const top = row * rowHeight, room = table.clientHeight - rowHeight;
    if (top < table.scrollTop) table.scrollTop = top;
    else if (top + rowHeight > table.scrollTop + room) table.scrollTop = top + rowHeight - room;
  }

  function step(by) {
    const row = at === undefined ? undefined : rowOf(at);
    const next = row === undefined ? 0 : Math.min(Math.max(row + by, 0), end - first - 1);
    at = placeOf(next);
    scrollTo(next);
    paint();
  }

  table.addEventListener('keydown', event => {
    if (end === first) return;
    const page = Math.floor(table.clientHeight / rowHeight) - 2;
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined) step(by);
    else if (event.key === 'Enter' && at !== undefined) app.choose({ kind: 'event', index: at }, true);
    else return;
    event.preventDefault();
  });
  rows.addEventListener('click', event => {
    const row = event.target.closest('.row');
    if (row === null) return;
    at = Number(row.id.slice('row-'.length));
    app.choose({ kind: 'event', index: at });
  });
  table.addEventListener('scroll', paint);
  return {
    paint,
    // reveal scrolls until an event is amid the rows, if it is one of them.
    reveal: place => {
      paint();
      const row = rowOf(place);
      if (row === undefined) return;
      at = place;
      table.scrollTop = (row + 1.5) * rowHeight - table.clientHeight / 2;
      paint();
    },
  };
}
