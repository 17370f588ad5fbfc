// The page: reads the runs, and keeps list, responses and address in step.
async function begin() {
  const numbers = [0, 1].filter((number) => byId(`index-${number}`));
  const runs = await Promise.all(numbers.map(Run.read));
  let chosen = runs.map(() => null);

  const show = () => showResponses(runs, chosen, byId('colour').value, (run, row) => choose(run, row, false));
  async function choose(run, row, leads = true) {  // the other run follows what the list chooses
    chosen = runs.map((other, at) => other === run ? row
      : leads ? other.like(run, row) : chosen[at]);
    history.replaceState(null, '', `#${run.number}-${row}`);
    list.mark(run, row);
    await show();
  }
  const list = new List(runs, choose);

  byId('runs').replaceChildren(...(runs.length < 2 ? [] : runs.flatMap((run, at) => {
    const swatch = element('span', { className: 'swatch' });
    swatch.style.background = COLOURS[at];
    return [swatch, run.name];
  })));
  drawCurves(runs);
  byId('keys').addEventListener('input', () => drawCurves(runs));
  byId('keys').addEventListener('click', (event) => event.preventDefault());
  byId('colour').addEventListener('change', show);
  document.addEventListener('keydown', (event) => {
    if (['INPUT', 'SELECT'].includes(event.target.tagName)) return;
    const by = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); list.step(by); }
  });
  await list.filter();
  const [run, row] = location.hash.slice(1).split('-').map(Number);
  if (runs[run] && row < runs[run].index.length) await choose(runs[run], row);
  else if (list.rows.length) await choose(list.run, list.rows[0]);
  else await show();
  document.body.dataset.ready = '1';
}
begin().catch((error) => {
  document.body.prepend(element('p', { textContent: `This page could not be read: ${error}` }));
  throw error;
});
