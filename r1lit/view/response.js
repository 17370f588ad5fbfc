// One response: its problem at all iterations, its verdict and rewards, its tokens in colour.
const HUES = { logp: '213, 94, 0', entropy: '0, 114, 178', mismatch: '204, 121, 167',
  advantage: '0, 158, 115' };
const BELOW = { mismatch: '86, 180, 233', advantage: '213, 94, 0' };
const NAMES = { logp: 'log-prob', logp_trainer: 'trainer', entropy: 'entropy', mismatch: 'mismatch',
  advantage: 'advantage' };

function tokenValues(record, mode) {
  const tokens = record.tokens;
  if (!tokens || !mode) return null;
  if (mode === 'mismatch')
    return tokens.logp_trainer ? tokens.logp_trainer.map((v, i) => v - tokens.logp[i]) : null;
  if (mode === 'advantage')
    return tokens.advantage || (record.advantage === null || record.advantage === undefined ? null
      : tokens.text.map(() => record.advantage));
  return tokens[mode] || null;
}

// the size at which a colour is full: what one in a hundred tokens reaches, over all that is shown
function fullColour(lists) {
  const sizes = lists.flat().map(Math.abs).sort((a, b) => a - b);
  return sizes.length ? sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * 0.99))] || 1 : 1;
}

function tokenColour(mode, value, full) {
  const hue = value < 0 && BELOW[mode] ? BELOW[mode] : HUES[mode];
  return `rgba(${hue}, ${(0.85 * Math.min(1, Math.abs(value) / full)).toFixed(3)})`;
}

function responseText(record, mode, full) {
  const values = tokenValues(record, mode);
  const box = element('pre', { className: 'response' });
  if (!record.tokens) { box.textContent = record.response ?? ''; return box; }
  record.tokens.text.forEach((text, at) => {
    const made = element('span', { textContent: text });
    if (values) made.style.background = tokenColour(mode, values[at], full);
    made.title = ['logp', 'logp_trainer', 'entropy', 'mismatch', 'advantage'].map((name) => {
      const all = name === 'logp_trainer' ? record.tokens.logp_trainer : tokenValues(record, name);
      return all ? `${NAMES[name]} ${shown(all[at], 4)}` : null;
    }).filter(Boolean).join('\n');
    box.append(made);
  });
  return box;
}

// an episode's turns: what the model wrote, with its calls, and what its environment answered
function turnsOf(record) {
  return element('div', {}, ...record.turns.map((turn) => element('div',
    { className: turn.role === 'assistant' ? 'turn' : 'turn environment' },
    element('label', { textContent: turn.name ? `${turn.role} ${turn.name}` : turn.role }),
    element('pre', { className: 'response', textContent: turn.content ?? '' }),
    ...(turn.tool_calls || []).map((call) => element('pre', { className: 'response call',
      textContent: `${call.name}(${JSON.stringify(call.arguments)})` })))));
}

function matrix(run, row, choose) {
  const groups = new Map();
  for (const other of run.rowsOf[run.index.texts.uid[row]]) {
    const key = `${run.text('split', other)} ${run.value('iteration', other) ?? ''}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(other);
  }
  return element('div', { className: 'matrix' }, ...[...groups].map(([key, rows]) =>
    element('div', {}, element('label', { textContent: key }), ...rows.map((other) => {
      const status = run.text('status', other);
      const cell = element('button', { className: `cell ${status}`,
        title: `#${shown(run.value('sample', other))} ${status}` });
      if (other === row) cell.classList.add('chosen');
      cell.addEventListener('click', () => choose(run, other));
      return cell;
    }))));
}

function facts(run, row, record) {
  const said = [['reward', record.reward], ['advantage', record.advantage],
    ...Object.entries(record.rewards || {}), ['tokens', record.num_tokens],
    ...(record.turns ? [['calls', record.num_calls], ['invalid', record.num_invalid]] : [])];
  const status = record.status ?? '';
  return element('p', { className: 'facts' },
    element('span', { className: `badge ${status}`, textContent: status || 'not graded' }),
    element('span', { textContent: record.reason || '' }),
    ...said.filter(([, value]) => value !== undefined).map(([name, value]) =>
      element('span', { textContent: `${name} ${shown(value)}` })),
    element('span', { textContent: record.ended ? `ended: ${record.ended}`
      : record.finished === false ? 'truncated' : '' }));
}

let showing = 0;  // the number of what is being shown: blocks may arrive in another order

async function showResponses(runs, chosen, mode, choose) {
  const mine = ++showing;
  const records = await Promise.all(runs.map((run, at) =>
    chosen[at] === null ? null : run.record(chosen[at])));
  if (mine !== showing) return;
  const lists = records.map((record) => record && tokenValues(record, mode)).filter(Boolean);
  const full = fullColour(lists);
  byId('legend').replaceChildren(...(mode && lists.length ? legend(mode, full) : []));
  byId('detail').replaceChildren(...runs.map((run, at) => {
    const record = records[at], row = chosen[at];
    const box = element('div', { className: 'run' });
    if (runs.length > 1)
      box.append(element('h2', { textContent: run.name, style: `color: ${COLOURS[at]}` }));
    if (!record) {
      box.append(element('p', { className: 'note', textContent: run.index.length
        ? 'no response of this run is to this problem' : 'this run has no responses' }));
      return box;
    }
    box.append(
      element('h2', { textContent: `${record.uid} #${record.sample} · ${run.text('split', row)} ` +
        `${record.iteration ?? ''} · ${record.source ?? ''}` }),
      element('p', { className: 'question', textContent: record.question ?? '' }),
      element('p', { className: 'facts', textContent: `gold: ${record.answer ?? '–'} · answer: ` +
        `${record.canonical ?? '–'}` }),
      facts(run, row, record), matrix(run, row, choose));
    if (mode && !tokenValues(record, mode))
      box.append(element('p', { className: 'note', textContent: record.tokens
        ? `this response has no ${NAMES[mode]} of tokens`
        : 'no tokens were written: give the callback ResponseTable tokens: true' }));
    box.append(record.turns && !mode ? turnsOf(record) : responseText(record, mode, full));
    return box;
  }));
}

function legend(mode, full) {
  const ends = BELOW[mode] ? [-full, 0, full] : mode === 'logp' ? [0, -full] : [0, full];
  return ends.map((value) => {
    const made = element('span', { textContent: shown(value) });
    made.style.background = tokenColour(mode, value, full);
    return made;
  });
}
