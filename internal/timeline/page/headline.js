// SPDX-License-Identifier: Apache-2.0
// The findings in words, the worst and first one at once.

// byWeight orders findings: alarms first, then as they came.
const byWeight = findings => findings.toSorted((a, b) => (b.severity === 'alarm') - (a.severity === 'alarm') || a.from - b.from);

function openHeadline(app) {
  const section = byID('headline');
  const findings = byWeight(app.data.findings);
  let at = 0;

  function show() {
    const finding = findings[at];
    const over = finding.to === null ? 'not over at the end' : `over after ${duration(finding.to - finding.from)}`;
    const details = [stamp(finding.from) + ' UTC', finding.severity === 'alarm' || finding.to !== null ? over : '', finding.service].filter(text => text !== '');
    const button = (text, label, onclick) => element('button', { type: 'button', 'aria-label': label, onclick }, text);
    section.className = finding.severity;
    section.replaceChildren(
      element('div', { class: 'words', 'aria-live': 'polite' }, element('h2', {}, title(finding)), element('p', { class: 'rest', title: finding.detail }, finding.detail), element('p', {}, details.join(' · '))),
      element('div', { class: 'acts' },
        button('Show the change', undefined, () => app.choose({ kind: 'finding', index: finding.index }, true)),
        button('Zoom to it', undefined, () => app.view.set(...around(app.data, finding))),
        button('‹', 'Previous finding', () => step(-1)), `${number(at + 1)} of ${number(findings.length)}`, button('›', 'Next finding', () => step(1))));
  }

  function step(by) {
    if (findings.length === 0) return;
    at = (at + by + findings.length) % findings.length;
    const label = document.activeElement?.getAttribute('aria-label');
    show();
    [...section.querySelectorAll('button')].find(b => label !== null && b.getAttribute('aria-label') === label)?.focus();
    app.view.set(...around(app.data, findings[at]));
    if (app.chosen !== undefined) app.choose({ kind: 'finding', index: findings[at].index });
  }

  document.addEventListener('keydown', event => {
    if (['INPUT', 'TEXTAREA'].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'n') step(1);
    if (event.key === 'p') step(-1);
  });
  section.hidden = findings.length === 0;
  if (findings.length === 0) return undefined;
  show();
  return findings[0];
}

// title is a finding as a headline: whom it is about, and what broke.
const title = ({ service, text }) => service === '' || text.includes(service) ? text : service + ': ' + text;

// around is a time in which a finding shows well: itself in the middle, with
// what came shortly before and after, and other findings that are close.
function around(data, { from, to }) {
  let end = Math.max(to ?? from, from);
  const room = () => Math.max((end - from) * 1.2, 4000);
  let start = from;
  for (const other of data.findings) {
    if (other.from >= from - room() && other.from <= end + room()) {
      start = Math.min(start, other.from);
      end = Math.max(end, Math.min(other.to ?? other.from, end + room()));
    }
  }
  return [start - room(), end + room()];
}
