// ---- the state that is kept between snapshots ----
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

// ---- the sections ----
function tile(name, key, text, note, spark) {
  const made = element('section', {class: 'card tile'}, element('h2', {}, name), figure('b', key, text));
  if (note) made.append(element('p', {class: 'note'}, note));
  if (spark) made.append(spark);
  return made;
}
function refusalTiles({goodput, refused}) {
  const reasons = Object.entries(refused).sort((a, b) => b[1] - a[1]);
  const all = reasons.reduce((sum, [, times]) => sum + times, 0);
  return [
    tile('Goodput', 'goodput', goodput === null ? '–' : percent(goodput),
         'since the start; answered, of all requests without a fault of the caller'),
    tile('Refused', 'refused', count(all),
         reasons.map(([reason, times]) => `${reason} ${count(times)}`).join(', ') || 'no request since the start'),
  ];
}
function tiles(model, daemon) {
  const past = history.get(keyOf(model));
  const tokens = rates(past, 'tokens'), requests = rates(past, 'requests');
  const latest = list => list.length ? short(list[list.length - 1]) : '–';
  const {last_hour: hour, queue, latency} = model;
  const used = hour.batches > 0;
  return [
    tile('Tokens/s', 'tokens_rate', latest(tokens), `${latest(requests)} requests/s`,
         sparkline(tokens, 'tokens per second over the last minutes')),
    ...refusalTiles(daemon),
    tile('Sequences waiting', 'sequences_waiting', count(queue.sequences_waiting),
         `${count(queue.sequences_running)} running`,
         sparkline(past.map(p => p.waiting), 'waiting sequences over the last minutes')),
    tile('Latency, 99 %', 'p99', latency.total ? seconds(latency.total.p99) : '–',
         latency.total ? `median ${seconds(latency.total.p50)}` : 'no request has ended yet'),
    tile('Device busy', 'busy_share', used ? percent(hour.busy_share) : '–',
         used ? `last hour; ${percent(hour.wasted_share)} of it wasted on empty rows` : 'no batch in the last hour'),
    tile('Useful tokens', 'useful_share', used ? percent(hour.useful_share) : '–',
         `last hour; of the device's ${short(hour.device_tokens_per_second)} tokens/s`),
    tile('Bucket fill', 'bucket_fill', used ? percent(hour.bucket_fill) : '–',
         'last hour; useful tokens / bucket tokens'),
    tile('Bucket hits', 'hit_rate', used ? percent(hour.hit_rate) : '–', `last hour; of ${count(hour.batches)} batches`),
    tile('Queue empty in', 'drain', seconds(queue.drain), 'estimated, at the measured cost'),
  ];
}
function bucketName(bucket) {
  const hints = [bucket.in_ladder ? '' : 'withdrawn', bucket.in_ladder && !bucket.ready ? 'being prepared' : ''];
  const hint = hints.filter(Boolean).join(', ');
  return hint ? `${bucket.bucket} (${hint})` : bucket.bucket;
}
function ladderCard(model) {
  const {batches, buckets, last_hour: hour} = model;
  const head = row([['bucket'], ['batches'], ['share', 'wide'], ['bucket fill'], ['executed efficiency', 'wide'],
                    ['rows filled', 'wide'], ['hits', 'wide'], ['cost'], ['memory', 'wide'], ['last used', 'wide']], 'th');
  const rows = buckets.map(b => {
    const ratio = (value, style) => b.batches ? meter(value, style) : '–';
    const made = row([
      [bucketName(b)], [count(b.batches)], [b.batches ? meter(b.batches / hour.batches, 'second') : '', 'wide'],
      [ratio(b.bucket_fill)], [ratio(b.executed_efficiency), 'wide'], [ratio(b.sequences / (b.batches * b.rows)), 'wide'],
      [b.batches ? percent(b.hit_rate) : '–', 'wide'], [b.cost ? seconds(b.cost) : '–'], [bytes(b.memory_bytes), 'wide'],
      [b.last_used_age === null ? 'never' : ago(b.last_used_age), 'wide']]);
    made.dataset.bucket = b.bucket;
    if (!b.in_ladder) made.className = 'gone';
    return made;
  });
  const ladder = buckets.filter(b => b.in_ladder).length;
  const limited = model.memory_limit_effect ? ` ${model.memory_limit_effect}` : '';
  const note = `${model.strategy}, ${ladder} buckets. Counts and shares are over the last hour. TOKENSxROWS of a packed ` +
      `bucket, ROWSxPOSITIONSp of a padded one. Executed efficiency of all buckets ` +
      `${percent(hour.executed_efficiency)}, memory overhead since the start ${percent(batches.memory_overhead)}.${limited}`;
  return card('whole', 'Ladder', note, element('table', {'aria-label': 'Buckets'}, head, ...rows));
}
function historyCard({history}) {
  if (!history.stretches.length) return card('whole', 'The last hours', 'No data yet.');
  const batches = history.stretches.reduce((sum, each) => sum + each.batches, 0);
  return card('whole', 'The last hours',
      'Lines: capacities of the ladder, by powers of two. Band: lengths of sequences from the median to 99 %, with a line at ' +
      '90 %. Bars: bucket fill of each minute.', band(history),
      list([['changes of the ladder', 'history_changes', count(history.ladders.length - 1)],
            ['batches', 'history_batches', count(batches)]]));
}
function sizesCard(title, note, sizes, marks) {
  if (!sizes.length) return card('half', title, 'No data yet.');
  return card('half', title, note, histogram(sizes, title, marks));
}
function latencyCard({latency}) {
  if (!latency.total) return card('third', 'Latency', 'No request has ended yet.');
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
    ['failed after admission', 'failed', count(model.failed)],
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
  return card('third', 'Generation', `KV pages, ${kv.page_tokens} tokens each: held by sequences, idle for sequences with the same beginning, free`,
      stack, pages, list([...sequences,
        ['prompt tokens found in pages', 'prefix_hits', kv.prefix_tokens ? percent(kv.reused_tokens / kv.prefix_tokens) : '–'],
        ['drafted tokens accepted', 'drafts_accepted', kv.drafted_tokens ? Object.entries(kv.draft_sources)
            .map(([source, {drafted, accepted}]) => `${percent(accepted / drafted)} (${source})`).join(', ') : '–'],
        ['preemptions', 'preemptions', count(kv.preemptions)],
        ['idle pages evicted', 'kv_evicted', count(kv.evicted)]]));
}
const kTriggers = {
  full: 'full: a larger step would not be faster, or does not fit the largest bucket',
  delay: 'delay: a sequence had waited for max_queue_delay',
  deadline: 'deadline: a sequence would have been late', idle: 'idle: nothing to gain by waiting',
  drain: 'drain: shutting down'};
const kLookups = {
  hit: '', not_prepared: 'the best bucket was not prepared yet', evicted: 'the best bucket was evicted',
  over_capacity: 'larger than every bucket', guard: 'a constraint of the best bucket\'s plan did not hold',
  memory: 'no memory to prepare the best bucket'};
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
  if (!decisions.length) return card('most', 'Recent decisions', 'No batch has been launched yet.');
  const rows = runsOf(decisions).slice(0, kDecisions).map(({times, took, first}) => row([
    [first.bucket], [`${count(first.tokens)} of ${count(first.capacity)}`], [count(first.sequences), 'wide'],
    [seconds(took / times)], [ago(first.age), 'wide'],
    [(times > 1 ? `${times} in a row; ` : '') + reasonOf(first), 'words']]));
  const head = row([['bucket'], ['tokens'], ['rows', 'wide'], ['took'], ['launched', 'wide'],
                    ['reason for the time and the bucket', 'words']], 'th');
  return card('most', 'Recent decisions', `The latest ${decisions.length} step batches, latest first`,
              element('table', {'class': 'decisions', 'aria-label': 'Recent decisions'}, head, ...rows));
}
function reviewCard({ladder, review}) {
  const totals = list(['reviews', 'added', 'removed', 'merged', 'split', 'evicted'].map(
      key => [key === 'reviews' ? 'reviews' : `buckets ${key}`, `ladder_${key}`, count(ladder[key])]));
  if (!review) return card('', 'Ladder reviews', 'No review has ended yet.', totals);
  const verdict = element('p', {class: 'note'}, `${ago(review.age)}: `,
      element('span', {class: review.adopted ? 'adopted' : ''}, review.adopted ? 'adopted' : 'not adopted'), ` – ${review.reason}`);
  const changes = ['added', 'removed', 'merged', 'split'].filter(key => review[key].length)
      .map(key => [key, `review_${key}`, review[key].join(', ')]);
  if (review.bucket_fill_after) {
    changes.unshift(['bucket fill', 'review_bucket_fill', `${percent(review.bucket_fill_before)} → ${percent(review.bucket_fill_after)}`]);
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
    sizesCard('Tokens by the size of their step batch', `decayed; dotted: the capacities of the ladder; entropy ${short(model.entropy_bits)} bits`,
              carried, capacities),
    sizesCard('Lengths of sequences', `of arriving prompts, decayed; entropy ${short(model.length_entropy_bits)} bits`, model.lengths),
    latencyCard(model), queueCard(model), generationCard(model),
    decisionsCard(model),
    element('div', {class: 'third column'}, reviewCard(model), memoryCard(model))];
}
