// The list: filters over columns, an order, and only as many rows in the page as are seen.
const ROW = 26;

class List {
  constructor(runs, choose) {
    this.runs = runs;
    this.choose = choose;
    this.rows = [];
    this.search = 0;  // the number of the search of texts that is under way
    fill('run', runs.map((run, number) => [String(number), run.name]));
    byId('which').hidden = runs.length < 2;
    byId('run').addEventListener('change', () => { this.setRun(); this.filter(); });
    byId('filters').addEventListener('submit', (event) => event.preventDefault());
    for (const name of ['split', 'source', 'status', 'end', 'column', 'order', 'down'])
      byId(name).addEventListener('change', () => this.filter());
    for (const name of ['uid', 'text', 'low', 'high']) {
      let timer;
      byId(name).addEventListener('input', () => {
        clearTimeout(timer);
        timer = setTimeout(() => this.filter(), 250);
      });
    }
    byId('list').addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(byId('list'));
    this.setRun();
  }

  get run() { return this.runs[Number(byId('run').value) || 0]; }

  setRun() {
    const { names, numbers } = this.run.index;
    for (const column of ['split', 'source', 'status'])
      fill(column, [['', 'any'], ...[...names[column]].map((name, at) => [String(at), name])]);
    fill('column', Object.keys(numbers).map((name) => [name, name]));
    fill('order', [['', 'as written'], ['uid', 'problem'],
      ...Object.keys(numbers).map((name) => [name, name])]);
  }

  async filter() {
    const { texts, numbers, names, finished, length } = this.run.index;
    const search = ++this.search;
    const tests = [];
    for (const column of ['split', 'source', 'status']) {
      const wanted = byId(column).value;
      if (wanted !== '') tests.push((row) => texts[column][row] === Number(wanted));
    }
    const end = byId('end').value;
    if (end !== '') tests.push((row) => finished[row] === Number(end));
    const uid = byId('uid').value.toLowerCase();
    if (uid) {
      const fits = names.uid.map((name) => name.toLowerCase().includes(uid));
      tests.push((row) => fits[texts.uid[row]]);
    }
    const values = numbers[byId('column').value];
    for (const [name, fits] of [['low', (v, l) => v >= l], ['high', (v, l) => v <= l]]) {
      const limit = byId(name).value.trim();
      if (limit !== '' && !Number.isNaN(Number(limit)) && values)
        tests.push((row) => values[row] !== null && fits(values[row], Number(limit)));
    }
    let rows = [];
    for (let row = 0; row < length; row++) if (tests.every((test) => test(row))) rows.push(row);
    const text = byId('text').value.toLowerCase();
    if (text) {
      rows = await this.holding(text, rows, search);
      if (rows === null) return;  // another search has begun
    }
    const order = byId('order').value;
    const by = order === 'uid' ? texts.uid : numbers[order];
    if (by) {
      const last = byId('down').checked ? -Infinity : Infinity;  // what is not known comes last
      rows.sort((a, b) => (by[a] ?? last) - (by[b] ?? last) || a - b);
    }
    if (byId('down').checked) rows.reverse();
    this.rows = rows;
    byId('list').scrollTop = 0;
    this.say(`${rows.length.toLocaleString('en')} of ${length.toLocaleString('en')} responses`);
    this.draw();
  }

  // the rows whose response or question has the text; reads block after block
  async holding(text, rows, search) {
    const run = this.run, found = [];
    let block = -1, records = null;
    for (const row of rows) {
      if (run.blockOf(row) !== block) {
        block = run.blockOf(row);
        records = await run.block(block);
        if (search !== this.search) return null;
        this.say(`searching: ${Math.round(100 * row / run.index.length)} %`);
      }
      const { response, question } = records[row - run.start(block)];
      if (`${response}\n${question}`.toLowerCase().includes(text)) found.push(row);
    }
    return found;
  }

  say(text) { byId('count').textContent = text; }

  draw() {
    const box = byId('list');
    byId('rows').style.height = `${this.rows.length * ROW}px`;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 5);
    const last = Math.min(this.rows.length, first + Math.ceil(box.clientHeight / ROW) + 10);
    byId('rows').replaceChildren(...this.rows.slice(first, last).map((row, offset) =>
      this.line(row, first + offset)));
  }

  line(row, place) {
    const run = this.run;
    const status = run.text('status', row);
    const iteration = run.value('iteration', row);
    const when = `${run.text('split', row)} ${iteration === null ? '' : iteration}`;
    const reward = run.value('reward', row);  // of training; an evaluation has verdicts alone
    const number = reward === null ? `value ${shown(run.value('value', row))}` : shown(reward);
    const line = element('div', { className: 'row', title: run.text('uid', row) },
      element('span', { className: 'when', textContent: when }),
      element('span', { className: 'uid',
        textContent: `${run.text('uid', row)} #${shown(run.value('sample', row))}` }),
      element('span', { className: 'verdict' },
        element('span', { className: `badge ${status}`, textContent: status || '–' })),
      element('span', { className: 'number', textContent: number }),
      element('span', { className: 'number', textContent: shown(run.value('num_tokens', row)) }));
    line.style.top = `${place * ROW}px`;
    if (run === this.chosenRun && row === this.chosen) line.classList.add('chosen');
    line.addEventListener('click', () => this.choose(run, row));
    return line;
  }

  mark(run, row) {
    this.chosenRun = run;
    this.chosen = row;
    this.draw();
  }

  // choose the next row of the list, or the one before
  step(by) {
    const place = this.run === this.chosenRun ? this.rows.indexOf(this.chosen) : -1;
    const next = Math.min(this.rows.length - 1, Math.max(0, place + by));
    if (!this.rows.length) return;
    const box = byId('list');
    if (next * ROW < box.scrollTop) box.scrollTop = next * ROW;
    if ((next + 1) * ROW > box.scrollTop + box.clientHeight)
      box.scrollTop = (next + 1) * ROW - box.clientHeight;
    this.choose(this.run, this.rows[next]);
  }
}

function fill(name, options) {
  byId(name).replaceChildren(...options.map(([value, textContent]) =>
    element('option', { value, textContent })));
}
