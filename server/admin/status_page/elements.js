'use strict';
const kPeriodMs = 2000, kHistory = 90, kDecisions = 20;
const byId = id => document.getElementById(id);

// Makes an element. Text enters the document only as text nodes and attributes, so a name is never
// parsed as markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function shape(name, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const count = value => Math.round(value).toLocaleString('en');
const percent = share => `${(100 * share).toFixed(1)} %`;
// Formats a number with three significant digits.
const short = value => value >= 1000 ? count(value) : String(Number(value.toPrecision(3)));
function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0 s';
  if (value < 1e-3) return `${short(value * 1e6)} µs`;
  if (value < 1) return `${short(value * 1e3)} ms`;
  if (value < 100) return `${short(value)} s`;
  return age(value);
}
// Formats an age in whole units, using at most the two largest.
function age(value) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const first = units.findIndex(([, size]) => value >= size);
  if (first < 0) return seconds(value);
  const [[name, size], next] = [units[first], units[first + 1]];
  const rest = next ? Math.floor((value % size) / next[1]) : 0;
  return `${Math.floor(value / size)} ${name}` + (rest ? ` ${rest} ${next[0]}` : '');
}
const ago = value => `${value < 1 ? seconds(value) : age(value)} ago`;
function bytes(value) {
  const power = Math.min(4, Math.floor(Math.log2(Math.max(value, 1)) / 10));
  return `${short(value / 1024 ** power)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
}

// Makes an element that shows a figure; tests find it by its name.
const figure = (tag, name, text) => element(tag, {'data-figure': name}, text);
function card(size, title, note, ...children) {
  const made = element('section', {class: `card ${size}`}, element('h2', {}, title));
  if (note) made.append(element('p', {class: 'note'}, note));
  made.append(...children);
  return made;
}
function list(rows) {
  const made = element('dl');
  for (const [name, key, text] of rows) made.append(element('dt', {}, name), figure('dd', key, text));
  return made;
}
function row(cells, kind = 'td', attributes = {}) {
  const made = element('tr', attributes);
  for (const [content, style = ''] of cells) {
    made.append(element(kind, kind === 'th' ? {scope: 'col', class: style} : {class: style}, content));
  }
  return made;
}
function filled(share, parent, name = '') {
  const part = element('i', {class: name});
  part.style.width = `${Math.min(100, 100 * share)}%`;
  parent.append(part);
  return parent;
}
function meter(share, style = '') {
  const track = filled(share, element('div', {class: `track ${style}`, 'aria-hidden': 'true'}));
  return element('div', {class: 'meter'}, track, element('span', {}, percent(share)));
}
