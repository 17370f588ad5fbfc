// Data lies in elements of the page: JSON, compressed, in base64.
const CACHED_BLOCKS = 24;

async function readData(name) {
  const bytes = Uint8Array.from(atob(document.getElementById(name).textContent),
    (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

class Run {
  constructor(number, index, curves) {
    this.number = number;
    this.index = index;
    this.name = curves.name;
    this.metrics = curves.metrics;
    this.evaluations = curves.evaluations;
    this.blocks = new Map();
    this.rowsOf = index.names.uid.map(() => []);  // the rows of each problem
    index.texts.uid.forEach((problem, row) => this.rowsOf[problem].push(row));
  }

  static async read(number) {
    return new Run(number, await readData(`index-${number}`), await readData(`curves-${number}`));
  }

  text(column, row) { return this.index.names[column][this.index.texts[column][row]]; }

  value(column, row) {
    const values = this.index.numbers[column];
    return values ? values[row] : null;
  }

  blockOf(row) {  // the first block that ends behind the row
    const ends = this.index.block_ends;
    let low = 0, high = ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > row) high = middle; else low = middle + 1;
    }
    return low;
  }

  start(block) { return block ? this.index.block_ends[block - 1] : 0; }

  async block(number) {
    let records = this.blocks.get(number);
    if (!records) records = readData(`block-${this.number}-${number}`);
    this.blocks.delete(number);
    this.blocks.set(number, records);  // the last one used stands last
    if (this.blocks.size > CACHED_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    return records;
  }

  async record(row) {
    const block = this.blockOf(row);
    return (await this.block(block))[row - this.start(block)];
  }

  // the row of the same problem that is nearest: split, then iteration, then sample
  like(other, row) {
    const problem = this.index.names.uid.indexOf(other.text('uid', row));
    if (problem < 0) return null;
    const distance = (mine) => [
      Number(this.text('split', mine) !== other.text('split', row)),
      Math.abs(this.value('iteration', mine) - other.value('iteration', row)),
      Math.abs(this.value('sample', mine) - other.value('sample', row)),
    ];
    const before = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
    return this.rowsOf[problem].reduce((best, mine) =>
      best === null || before(distance(mine), distance(best)) < 0 ? mine : best, null);
  }
}

function element(tag, options = {}, ...children) {
  const made = Object.assign(document.createElement(tag), options);
  made.append(...children);
  return made;
}

const byId = (name) => document.getElementById(name);
const shown = (value, digits = 3) => value === null || value === undefined ? '–'
  : Number.isInteger(value) ? String(value)
  : Math.abs(value) >= 0.01 ? String(+value.toFixed(digits)) : String(+value.toPrecision(2));
