// ---- the charts ----
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
// Draws lengths between the capacities of the ladder over time, and bucket fill below them.
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
    bar.append(shape('title', {}, `${ago(each.end)}: bucket fill ${percent(share)}, executed efficiency ` +
        `${percent(each.useful_tokens / each.computed_tokens)}, device busy ` +
        `${percent(each.replay / (each.begin - each.end))}, ${count(each.batches)} batches`));
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
