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

// ---- the state that is kept from one snapshot to the next ----
const history = new Map();  // model -> [{at, tokens, requests, waiting}]
const keyOf = model => `${model.name} ${model.version}`;
let chosen = null;

function remember(status) {
  for (const model of status.models) {
    const past = history.get(keyOf(model)) || [];
    const last = past[past.length - 1];
    const at = status.daemon.uptime;
    if (last && at < last.at) past.length = 0;  // the daemon was restarted
    if (!last || at > last.at) {
      past.push({at, tokens: model.batches.useful_tokens, requests: model.ok + model.failed,
                 waiting: model.queue.sequences_waiting});
    }
    history.set(keyOf(model), past.slice(-kHistory));
  }
}
// Returns the rates per second between successive snapshots.
function rates(past, key) {
  return past.slice(1).map((now, i) => (now[key] - past[i][key]) / (now.at - past[i].at));
}

function sparkline(values, label) {
  const svg = shape('svg', {viewBox: '0 0 100 26', preserveAspectRatio: 'none', role: 'img', 'aria-label': label});
  if (values.length < 2) return svg;
  const high = Math.max(...values, 1e-9);
  const line = values.map((v, i) => `${(100 * i / (values.length - 1)).toFixed(1)} ${(25 - 23 * v / high).toFixed(1)}`);
  svg.append(shape('path', {d: `M0 26L${line.join('L')}L100 26Z`, fill: 'var(--main)', opacity: .16}),
             shape('path', {d: `M${line.join('L')}`, fill: 'none', stroke: 'var(--main)', 'stroke-width': 1.5,
                            'vector-effect': 'non-scaling-stroke', 'stroke-linejoin': 'round'}));
  return svg;
}

// ---- the sections ----
function tile(name, key, text, note, spark) {
  const made = element('section', {class: 'card tile'}, element('h2', {}, name), figure('b', key, text));
  if (note) made.append(element('p', {class: 'note'}, note));
  if (spark) made.append(spark);
  return made;
}
function tiles(model) {
  const past = history.get(keyOf(model));
  const tokens = rates(past, 'tokens'), requests = rates(past, 'requests');
  const latest = list => list.length ? short(list[list.length - 1]) : '–';
  const {batches, queue, latency} = model;
  const used = batches.count > 0;
  return [
    tile('Tokens/s', 'tokens_rate', latest(tokens), `${latest(requests)} requests/s`,
         sparkline(tokens, 'tokens per second over the last minutes')),
    tile('Sequences waiting', 'sequences_waiting', count(queue.sequences_waiting),
         `${count(queue.sequences_running)} running`,
         sparkline(past.map(p => p.waiting), 'waiting sequences over the last minutes')),
    tile('Latency, 99 %', 'p99', latency.total ? seconds(latency.total.p99) : '–',
         latency.total ? `median ${seconds(latency.total.p50)}` : 'no request ended yet'),
    tile('Padding efficiency', 'padding_efficiency', used ? percent(batches.padding_efficiency) : '–',
         'useful tokens / bucket tokens'),
    tile('Bucket hits', 'hit_rate', used ? percent(batches.hit_rate) : '–', `of ${count(batches.count)} batches`),
    tile('Queue empty in', 'drain', seconds(queue.drain), 'estimated, at the measured cost'),
  ];
}
function bucketName(bucket) {
  const hints = [bucket.in_ladder ? '' : 'withdrawn', bucket.in_ladder && !bucket.ready ? 'being prepared' : ''];
  const hint = hints.filter(Boolean).join(', ');
  return hint ? `${bucket.bucket} (${hint})` : bucket.bucket;
}
function ladderCard(model) {
  const {batches, buckets} = model;
  const head = row([['bucket'], ['batches'], ['share', 'wide'], ['padding efficiency'], ['executed efficiency', 'wide'],
                    ['rows filled', 'wide'], ['hits', 'wide'], ['cost'], ['memory', 'wide'], ['last used', 'wide']], 'th');
  const rows = buckets.map(b => {
    const ratio = (value, style) => b.batches ? meter(value, style) : '–';
    const made = row([
      [bucketName(b)], [count(b.batches)], [b.batches ? meter(b.batches / batches.count, 'second') : '', 'wide'],
      [ratio(b.padding_efficiency)], [ratio(b.executed_efficiency), 'wide'], [ratio(b.row_efficiency), 'wide'],
      [b.batches ? percent(b.hit_rate) : '–', 'wide'], [b.cost ? seconds(b.cost) : '–'], [bytes(b.memory_bytes), 'wide'],
      [b.last_used_age === null ? 'never' : ago(b.last_used_age), 'wide']]);
    made.dataset.bucket = b.bucket;
    if (!b.in_ladder) made.className = 'gone';
    return made;
  });
  const ladder = buckets.filter(b => b.in_ladder).length;
  const note = `${ladder} buckets. TOKENSxROWS of a packed bucket, ROWSxPOSITIONSp of a padded one. ` +
      `Of all batches: executed efficiency ${percent(batches.executed_efficiency)}, rows filled ` +
      `${percent(batches.row_efficiency)}, memory overhead ${percent(batches.memory_overhead)}.`;
  return card('whole', 'Ladder', note, element('table', {'aria-label': 'Buckets'}, head, ...rows));
}
// Sums the weights of [size, weight] pairs into bars of equal width.
function binned(sizes, bars) {
  const high = sizes.length ? sizes[sizes.length - 1][0] : 0;
  const width = Math.max(1, Math.ceil(high / bars));
  const weights = new Array(Math.max(1, Math.ceil(high / width))).fill(0);
  for (const [size, weight] of sizes) weights[Math.ceil(size / width) - 1] += weight;
  return {width, weights};
}
const kHeight = 190, kBottom = 24, kTop = 10;
function histogram(sizes, label, marks = []) {
  const kWidth = Math.min(540, innerWidth - 60);  // keeps the size of the text on a phone
  const {width, weights} = binned(sizes, 48);
  const end = width * weights.length, all = weights.reduce((a, b) => a + b, 0), high = Math.max(...weights);
  const svg = shape('svg', {class: 'chart', viewBox: `0 0 ${kWidth} ${kHeight}`, role: 'img', 'aria-label': label});
  const x = size => 2 + (kWidth - 4) * size / end, base = kHeight - kBottom;
  weights.forEach((weight, i) => {
    const height = weight ? Math.max(1, (base - kTop) * weight / high) : 0;
    const bar = shape('rect', {x: x(i * width) + .5, y: base - height, width: Math.max(1, x(width) - x(0) - 1), height,
                               fill: 'var(--main)'});
    bar.append(shape('title', {}, `${i * width + 1} to ${(i + 1) * width} tokens: ${percent(weight / all)}`));
    svg.append(bar);
  });
  for (const mark of marks.filter(m => m <= end)) {
    svg.append(shape('line', {x1: x(mark), x2: x(mark), y1: 0, y2: base, stroke: 'var(--third)', 'stroke-dasharray': '2 3'}));
  }
  svg.append(shape('line', {x1: 0, x2: kWidth, y1: base, y2: base, stroke: 'var(--soft)'}));
  for (const [at, anchor] of [[0, 'start'], [end / 2, 'middle'], [end, 'end']]) {
    svg.append(shape('text', {x: x(at), y: kHeight - 6, 'text-anchor': anchor}, count(at) + (at ? '' : ' tokens')));
  }
  return svg;
}
// Draws lengths between the capacities of the ladder over time, and padding efficiency below them.
function band({ladders, stretches}) {
  const kWidth = Math.min(1130, innerWidth - 60), kLadder = 130, kBars = 40, kEnd = kLadder + 14 + kBars;
  const first = stretches[0].begin, high = Math.max(...ladders.flat());
  const svg = shape('svg', {class: 'chart', viewBox: `0 0 ${kWidth} ${kEnd + 20}`, role: 'img',
                            'aria-label': 'ladder, lengths and efficiency over the last hours'});
  const x = past => kWidth - kWidth * past / Math.max(first, 1e-9);
  const y = tokens => kLadder - (kLadder - 8) * Math.log2(Math.min(Math.max(tokens, 1), high)) / Math.max(Math.log2(high), 1);
  const area = [[], [], []];
  for (const each of stretches) {
    const left = x(each.begin), width = Math.max(x(each.end) - left, .5);
    const tokens = ladders[each.ladder].map(size => `M${left.toFixed(1)} ${y(size).toFixed(1)}h${width.toFixed(1)}`);
    svg.append(shape('path', {d: tokens.join(''), fill: 'none', stroke: 'var(--third)', opacity: .6}));
    if (each.lengths[0]) {
      each.lengths.forEach((size, i) => area[i].push(...[left, left + width].map(at => `${at.toFixed(1)} ${y(size).toFixed(1)}`)));
    }
    if (!each.batches) continue;
    const share = each.useful_tokens / each.bucket_tokens;
    const bar = shape('rect', {x: left, width, y: kEnd - kBars * share, height: kBars * share, fill: 'var(--main)'});
    bar.append(shape('title', {}, `${ago(each.end)}: padding efficiency ${percent(share)}, executed ` +
        `${percent(each.useful_tokens / each.computed_tokens)}, ${count(each.batches)} batches`));
    svg.append(bar);
  }
  if (area[0].length) {
    svg.append(shape('path', {d: `M${area[2].join('L')}L${[...area[0]].reverse().join('L')}Z`, fill: 'var(--second)', opacity: .35}),
               shape('path', {d: `M${area[1].join('L')}`, fill: 'none', stroke: 'var(--second)', 'stroke-width': 2}));
  }
  svg.append(shape('line', {x1: 0, x2: kWidth, y1: kEnd, y2: kEnd, stroke: 'var(--soft)'}),
             shape('text', {x: 0, y: kEnd + 16}, ago(first)),
             shape('text', {x: kWidth, y: kEnd + 16, 'text-anchor': 'end'}, 'now'));
  return svg;
}
function historyCard({history}) {
  if (!history.stretches.length) return card('whole', 'The last hours', 'Nothing was recorded yet.');
  const batches = history.stretches.reduce((sum, each) => sum + each.batches, 0);
  return card('whole', 'The last hours',
      'Lines: capacities of the ladder, by powers of two. Band: lengths of sequences from the median to 99 %, with a line at ' +
      '90 %. Bars: padding efficiency of each minute.', band(history),
      list([['changes of the ladder', 'history_changes', count(history.ladders.length - 1)],
            ['batches', 'history_batches', count(batches)]]));
}
function sizesCard(title, note, sizes, marks) {
  if (!sizes.length) return card('half', title, 'Nothing was seen yet.');
  return card('half', title, note, histogram(sizes, title, marks));
}
function latencyCard({latency}) {
  if (!latency.total) return card('third', 'Latency', 'No request ended yet.');
  const kinds = [['total', 'total'], ['queue', 'queue'], ['first token', 'first_token'], ['between tokens', 'inter_token']];
  const rows = kinds.filter(([, key]) => latency[key]).map(([name, key]) =>
      row([[name], ...['p50', 'p90', 'p99'].map(q => [seconds(latency[key][q])])]));
  return card('third', 'Latency', `of the last ${count(latency.total.requests)} requests that succeeded`,
              element('table', {'aria-label': 'Latency'}, row([[''], ['50 %'], ['90 %'], ['99 %']], 'th'), ...rows));
}
function queueCard(model) {
  const {queue} = model;
  return card('third', 'Queue', '', list([
    ['requests waiting', 'requests_waiting', count(queue.requests_waiting)],
    ['requests running', 'requests_running', count(queue.requests_running)],
    ['tokens queued', 'queued_tokens', count(queue.tokens)],
    ['memory of requests', 'queue_bytes', bytes(queue.bytes)],
    ['oldest waits for', 'oldest_age', seconds(queue.oldest_age)],
    ['arriving sequences/s', 'sequences_per_second', short(model.sequences_per_second)],
    ['arriving tokens/s', 'tokens_per_second', short(model.tokens_per_second)],
    ['requests answered', 'ok', count(model.ok)],
    ['requests failed', 'failed', count(model.failed)],
    ['steps', 'steps', count(model.steps)],
    ['attention', 'attention', model.attention]]));
}
function generationCard(model) {
  const {kv, queue} = model;
  const sequences = [['sequences running', 'sequences_running', count(queue.sequences_running)],
                     ['sequences waiting', 'kv_sequences_waiting', count(queue.sequences_waiting)]];
  if (!kv) return card('third', 'Generation', 'No keys and values are kept between steps.', list(sequences));
  const stack = element('div', {class: 'stack', 'aria-hidden': 'true'});
  filled(kv.held / kv.pages, stack);
  filled(kv.idle / kv.pages, stack, 'idle');
  const pages = list([['held', 'kv_held', count(kv.held)], ['idle', 'kv_idle', count(kv.idle)], ['free', 'kv_free', count(kv.free)]]);
  pages.querySelectorAll('dt').forEach(name =>
      name.prepend(element('span', {class: `key ${name.textContent}`, 'aria-hidden': 'true'})));
  return card('third', 'Generation', `KV pages, ${kv.page_tokens} tokens each: held by sequences, idle for those that begin alike, free`,
      stack, pages, list([...sequences,
        ['prompt tokens found in pages', 'prefix_hits', kv.prefix_tokens ? percent(kv.reused_tokens / kv.prefix_tokens) : '–'],
        ['preemptions', 'preemptions', count(kv.preemptions)],
        ['idle pages evicted', 'kv_evicted', count(kv.evicted)]]));
}
const kTriggers = {
  full: 'full: the largest bucket, or more waits than rides', delay: 'delay: one had waited long enough',
  deadline: 'deadline: one would have been late', idle: 'idle: waiting would gain nothing', drain: 'drain: shutting down'};
const kLookups = {
  hit: '', not_captured: 'its own bucket is being prepared', evicted: 'its own bucket was evicted',
  over_capacity: 'larger than every bucket', guard: 'the plan of its own bucket does not fit the step',
  memory: 'no memory to prepare its own bucket'};
function reasonOf(decision) {
  const why = kTriggers[decision.trigger] || decision.trigger;
  const miss = decision.lookup in kLookups ? kLookups[decision.lookup] : decision.lookup;
  return miss ? `${why}; ${miss}` : why;
}
// Merges neighbouring decisions that differ only in time.
function runsOf(decisions) {
  const runs = [];
  for (const decision of decisions) {
    const last = runs[runs.length - 1];
    const alike = last && ['bucket', 'tokens', 'sequences', 'trigger', 'lookup'].every(key => last.first[key] === decision[key]);
    if (alike) { last.times += 1; last.took += decision.replay; } else runs.push({times: 1, took: decision.replay, first: decision});
  }
  return runs;
}
function decisionsCard({decisions}) {
  if (!decisions.length) return card('most', 'Recent decisions', 'No batch was launched yet.');
  const rows = runsOf(decisions).slice(0, kDecisions).map(({times, took, first}) => row([
    [first.bucket], [`${count(first.tokens)} of ${count(first.capacity)}`], [count(first.sequences), 'wide'],
    [seconds(took / times)], [ago(first.age), 'wide'],
    [(times > 1 ? `${times} alike; ` : '') + reasonOf(first), 'words']]));
  const head = row([['bucket'], ['tokens'], ['rows', 'wide'], ['took'], ['launched', 'wide'],
                    ['why then, and why this bucket', 'words']], 'th');
  return card('most', 'Recent decisions', `The latest ${decisions.length} step batches, latest first`,
              element('table', {'class': 'decisions', 'aria-label': 'Recent decisions'}, head, ...rows));
}
function reviewCard({ladder, review}) {
  const totals = list(['reviews', 'added', 'removed', 'merged', 'split', 'evicted'].map(
      key => [key === 'reviews' ? 'reviews' : `buckets ${key}`, `ladder_${key}`, count(ladder[key])]));
  if (!review) return card('', 'Ladder reviews', 'None has ended yet.', totals);
  const verdict = element('p', {class: 'note'}, `${ago(review.age)}: `,
      element('span', {class: review.adopted ? 'adopted' : ''}, review.adopted ? 'adopted' : 'not adopted'), ` – ${review.reason}`);
  const changes = ['added', 'removed', 'merged', 'split'].filter(key => review[key].length)
      .map(key => [key, `review_${key}`, review[key].join(', ')]);
  if (review.efficiency_after) {
    changes.unshift(['efficiency', 'review_efficiency', `${percent(review.efficiency_before)} → ${percent(review.efficiency_after)}`]);
  }
  return card('', 'Ladder reviews', '', verdict, list(changes), totals);
}
function memoryCard({memory}) {
  return card('', 'Memory', '', list([
    ['weights', 'weights', bytes(memory.weights)],
    ['plans', 'plans', bytes(memory.plans)],
    ['activations', 'activations', bytes(memory.activations)],
    ['graphs of the head', 'head_graphs', bytes(memory.head_graphs)],
    ['KV pages', 'kv', bytes(memory.kv)],
    ['pinned host memory', 'pinned', bytes(memory.pinned)],
    ['mapped files', 'mapped', bytes(memory.mapped)],
    ['copied files', 'copied', bytes(memory.copied)]]));
}
function cards(model) {
  const carried = model.batch_tokens.map(([size, weight]) => [size, size * weight]);
  const capacities = model.buckets.filter(b => b.in_ladder).map(b => b.tokens);
  return [
    ladderCard(model),
    historyCard(model),
    sizesCard('Tokens by the size of their step batch', 'decayed; dotted: the capacities of the ladder', carried, capacities),
    sizesCard('Lengths of sequences', 'of arriving prompts, decayed', model.lengths),
    latencyCard(model), queueCard(model), generationCard(model),
    decisionsCard(model),
    element('div', {class: 'third column'}, reviewCard(model), memoryCard(model))];
}

// ---- the page ----
function showDaemon({version, phase, uptime, device, profile, policy, strategy}) {
  byId('phase').className = `phase ${phase}`;
  byId('phase').textContent = phase;
  byId('daemon').textContent = [version, device, profile, `${policy}, ${strategy} ladder`, `up ${age(uptime)}`].join(' · ');
}
function showChoice(models) {
  const same = byId('models').children.length === models.length &&
      models.every((model, i) => byId('models').children[i].dataset.key === keyOf(model));
  if (!same) {
    byId('models').replaceChildren(...models.map(model => {
      const button = element('button', {type: 'button', 'data-key': keyOf(model)}, `${model.name} version ${model.version}`);
      button.addEventListener('click', () => { chosen = keyOf(model); show(latest); });
      return button;
    }));
  }
  for (const button of byId('models').children) button.setAttribute('aria-pressed', String(button.dataset.key === chosen));
}
let latest = null;
function show(status) {
  latest = status;
  showDaemon(status.daemon);
  const model = status.models.find(m => keyOf(m) === chosen) || status.models[0];
  chosen = model ? keyOf(model) : null;
  showChoice(status.models);
  byId('tiles').replaceChildren(...(model ? tiles(model) : []));
  byId('cards').replaceChildren(...(model ? cards(model) : [card('whole', 'No model is ready yet', 'Models appear when they are loaded and warm.')]));
}
async function renew() {
  try {
    const answer = await fetch('status.json', {signal: AbortSignal.timeout(5 * kPeriodMs)});
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const status = await answer.json();
    remember(status);
    show(status);
    document.body.classList.remove('stale');
  } catch (error) {
    document.body.classList.add('stale');
    byId('phase').className = 'phase lost';
    byId('phase').textContent = 'no answer';
  }
  setTimeout(renew, kPeriodMs);
}
renew();
