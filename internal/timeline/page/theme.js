// SPDX-License-Identifier: Apache-2.0
// Light and dark: as the system has it, until the switch says otherwise.

const themes = { '': 'Theme: system', light: 'Theme: light', dark: 'Theme: dark' };

const tokenNames = [
  'page', 'surface', 'raised', 'line', 'text', 'muted', 'accent', 'accent-surface', 'series', 'series-surface',
  'alarm', 'alarm-mark', 'alarm-surface', 'warning', 'warning-mark', 'warning-surface', 'added',
];

// A canvas knows no tokens, so an element tells what they are just now.
function readTokens() {
  const probe = element('span', { hidden: true });
  document.body.append(probe);
  const style = getComputedStyle(probe);
  const tokens = {};
  for (const name of tokenNames) {
    probe.style.color = `var(--${name})`;
    tokens[name] = style.color;
  }
  tokens.font = getComputedStyle(document.body).fontFamily;
  probe.remove();
  return tokens;
}

// openTheme runs changed when the colours are others.
function openTheme(changed) {
  const button = byID('theme');
  const root = document.documentElement;
  const show = () => { button.textContent = themes[root.dataset.theme ?? '']; };
  button.addEventListener('click', () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme ?? '') + 1) % names.length];
    if (next === '') delete root.dataset.theme;
    else root.dataset.theme = next;
    show();
    changed();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changed);
  show();
}
