// Curves: a small chart for each key of metrics.jsonl and summary.json, a line a run.
const COLOURS = ['#0072B2', '#D55E00'];
const FIRST = ['eval: pass_at_1', 'train/reward', 'eval: response_length_tokens',
  'train/length/mean', 'train/loss', 'eval: loss', 'train/entropy', 'train/mismatch/mean_abs',
  'train/kl_reference', 'train/grad_norm'];
const WIDTH = 262, HEIGHT = 128, LEFT = 46, BOTTOM = 16, TOP = 6, RIGHT = 6;

function series(run) {
  const found = new Map();
  const add = (key, record, value) => {
    if (typeof value !== 'number' || !Number.isFinite(value)) return;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push([record.iteration, value]);
  };
  for (const record of run.metrics)
    for (const [key, value] of Object.entries(record)) if (key !== 'iteration') add(key, record, value);
  for (const record of run.evaluations)
    for (const [key, value] of Object.entries(record)) {
      if (value && typeof value === 'object')
        for (const [name, inner] of Object.entries(value)) add(`eval: ${key}/${name}`, record, inner);
      else if (key !== 'iteration') add(`eval: ${key}`, record, value);
    }
  return found;
}

function drawCurves(runs) {
  const all = runs.map(series);
  const keys = [...new Set(all.flatMap((one) => [...one.keys()]))].sort();
  const wanted = byId('keys').value.trim().toLowerCase();
  let chosen = keys.filter((key) => key.toLowerCase().includes(wanted));
  if (!wanted) {
    chosen = FIRST.filter((key) => keys.includes(key));
    if (!chosen.length) chosen = keys.slice(0, 8);
  }
  byId('charts').replaceChildren(...chosen.slice(0, 60).map((key) =>
    chart(key, all.map((one) => one.get(key) || []))));
  byId('curves').hidden = !keys.length;
}

function svg(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// round numbers, at most four steps apart, that enclose low and high; whole ones if so wanted
function ticks(low, high, whole = false) {
  const least = (high - low) / 4 || 1;
  const power = 10 ** Math.max(Math.floor(Math.log10(least)), whole ? 0 : -99);
  const step = [1, 2, 2.5, 5, 10].map((by) => by * power).find((size) =>
    size >= least * 0.999 && !(whole && size % 1));
  const first = Math.floor(low / step + 1e-9), last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, at) => +((first + at) * step).toPrecision(9));
}

function chart(key, lines) {
  const points = lines.flat();
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)],
    [Infinity, -Infinity]);
  const [left, right] = extent(xs);
  let [low, high] = extent(ys);
  if (low === high) { low -= Math.abs(low) / 10 || 0.5; high += Math.abs(high) / 10 || 0.5; }
  const rows = ticks(low, high);
  [low, high] = [rows[0], rows[rows.length - 1]];
  const x = (v) => LEFT + (right > left ? (v - left) / (right - left) : 0.5) * (WIDTH - LEFT - RIGHT);
  const y = (v) => TOP + (high - v) / (high - low) * (HEIGHT - TOP - BOTTOM);
  const image = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}` });
  for (const value of rows)
    image.append(svg('line', { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: 'grid' }),
      svg('text', { x: LEFT - 4, y: y(value) + 3, 'text-anchor': 'end' }, String(value)));
  for (const value of ticks(left, right, true))
    if (value >= left && value <= right)
      image.append(svg('text', { x: x(value), y: HEIGHT - 3,
        'text-anchor': x(value) > WIDTH - 20 ? 'end' : 'middle' }, value.toLocaleString('en')));
  lines.forEach((line, number) => {
    const colour = COLOURS[number];
    const at = line.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`);
    image.append(svg('polyline', { points: at.join(' '), fill: 'none', stroke: colour,
      'stroke-width': 1.5, 'stroke-dasharray': number ? '5 2' : 'none' }));
    if (line.length <= 40)
      for (const [a, b] of line)
        image.append(svg('circle', { cx: x(a), cy: y(b), r: 2, fill: colour }));
  });
  image.addEventListener('mousemove', (event) => {
    const box = image.getBoundingClientRect();
    const wanted = left + ((event.clientX - box.left) * WIDTH / box.width - LEFT) /
      (WIDTH - LEFT - RIGHT) * (right - left);
    const near = lines.map((line) => line.length ? line.reduce((best, p) =>
      Math.abs(p[0] - wanted) < Math.abs(best[0] - wanted) ? p : best) : null);
    const said = near.map((p) => p ? shown(p[1], 5) : '–').join(' | ');
    const at = near.find((p) => p);
    byId('hover').textContent = at ? `${key} at ${at[0]}: ${said}` : '';
  });
  return element('div', { className: 'chart' }, element('b', { textContent: key, title: key }), image);
}
