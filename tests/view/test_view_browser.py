"""The page in a real browser: what it shows of a real run, and 100,000 responses."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from r1lit import cli
from r1lit.files import append_records, read_records
from r1lit.view.page import write_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("PySide6") is None, reason="pip install -e '.[browser]'"
    ),
]
READY = {"wait": "document.body.dataset.ready"}


def set_(name: str, value: str, event: str = "change") -> dict:
    return {"do": f"byId('{name}').value = '{value}';"
                  f" byId('{name}').dispatchEvent(new Event('{event}'))"}  # fmt: skip


def browse(page: Path, steps: list[dict]) -> dict:
    script = page.with_suffix(".json")
    script.write_text(json.dumps([READY, *steps]))
    driver = Path(__file__).with_name("browser.py")
    done = subprocess.run(
        [sys.executable, driver, page, script], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["console"] == [] and found["outside"] == []
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two real runs of one policy, with what is said of tokens."""
    folder = tmp_path_factory.mktemp("runs")
    policy = tiny.save_policy(folder / "policy")
    found = []
    for name, rate in (("slow", 0.001), ("fast", 0.05)):
        callbacks = tiny.callbacks(folder / name)
        [table] = [c for c in callbacks if c["class_path"].endswith("ResponseTable")]
        table["init_args"]["tokens"] = True
        optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": rate}}
        change = {**tiny.model(optimizer=optimizer), "trainer": {"callbacks": callbacks}}
        cli.main(["fit", "-c", str(tiny.grpo_config(folder / name, policy, change))])
        found.append(folder / name)
    return found


def test_curves_filters_and_colours_of_a_run(runs, tmp_path):
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    write_page(runs[:1], page)
    records = read_records(runs[0] / "responses.jsonl")
    train = [r for r in records if r["split"] == "train"]
    word = train[5]["response"].split()[0].lower()
    first = {"get": "document.querySelector('#detail h2').textContent"}
    count = {"get": "byId('count').textContent"}
    settled = {"wait": "byId('count').textContent.endsWith('responses')"}
    split = sorted({r["split"] for r in records}, key=[r["split"] for r in records].index)
    found = browse(page, [
        {"get": "[...document.querySelectorAll('.chart b')].map((e) => e.textContent)"},
        count, first,
        set_("split", str(split.index("train"))), count,
        {"do": "document.querySelectorAll('#rows .row')[5].click()"},
        {"wait": f"document.querySelector('#detail h2').textContent.startsWith("
                 f"{json.dumps(train[5]['uid'] + ' #' + str(train[5]['sample']))})"},
        set_("colour", "entropy"),
        {"wait": "byId('legend').children.length > 0"},
        {"get": "[...document.querySelectorAll('.response span')].map((e) => [e.textContent,"
                " e.title, e.style.background])"},
        set_("text", word, "input"),
        {"wait": f"byId('count').textContent !== '{len(train)} of {len(records)} responses'"
                 " || byId('text').value === ''"},
        settled, count,
        set_("text", "", "input"), set_("column", "reward"), set_("low", "0.01", "input"),
        {"wait": "byId('count').textContent.includes(' of ')"},
        {"shot": str(picture)}, count,
        {"get": "document.querySelectorAll('.cell').length"},
        {"get": "[...document.querySelectorAll('.chart text')].map((e) => e.textContent)"},
        {"size": [420, 900]},
        {"get": "[document.documentElement.scrollWidth, ...['.response', '.facts'].map((name) =>"
                " document.querySelector(name).getBoundingClientRect().width)]"},
    ])  # fmt: skip
    charts, everything, shown, of_split, tokens, of_word, of_reward, cells, ticks, narrow = found[
        "got"
    ]
    rounded = [float(tick.replace(",", "")) for tick in ticks]
    assert rounded and all(float(f"{tick:.3g}") == tick for tick in rounded), ticks
    page_width, *widths = narrow
    assert page_width <= 420 and all(340 < width <= 420 for width in widths), narrow
    assert {"eval: pass_at_1", "train/reward", "train/entropy"} <= set(charts)
    assert everything == f"{len(records)} of {len(records)} responses"
    assert shown.startswith(f"{records[0]['uid']} #{records[0]['sample']} · {records[0]['split']}")
    assert of_split == f"{len(train)} of {len(records)} responses"
    said = train[5]["tokens"]
    assert [text for text, _, _ in tokens] == said["text"]
    for (_, title, colour), logp, entropy in zip(
        tokens, said["logp"], said["entropy"], strict=True
    ):
        assert float(title.split("log-prob ")[1].split()[0]) == pytest.approx(logp, abs=1e-3)
        assert float(title.split("entropy ")[1].split()[0]) == pytest.approx(entropy, abs=1e-3)
        assert colour.startswith("rgba(0, 114, 178")
    holding = [r for r in train if word in f"{r['response']}\n{r['question']}".lower()]
    assert of_word == f"{len(holding)} of {len(records)} responses"
    paid = [r for r in train if r["reward"] >= 0.01]
    assert of_reward == f"{len(paid)} of {len(records)} responses"
    assert cells >= 4  # the whole group, as squares
    assert picture.stat().st_size > 20_000  # a blank one has 6,000


def test_two_runs_stand_side_by_side(runs, tmp_path):
    page = tmp_path / "page.html"
    write_page(runs, page)
    one, other = (read_records(run / "responses.jsonl") for run in runs)
    rows = [n for n, r in enumerate(one) if r["split"] == "val" and r["iteration"] == 4]
    row = rows[3]
    rows_at = (
        "[...document.querySelectorAll('#rows .row')]"
        f".filter((e) => e.style.top === '{26 * row}px')"
    )
    found = browse(page, [
        {"do": "window.before = document.querySelectorAll('#detail h2')[1].textContent"},
        {"do": f"byId('list').scrollTop = {26 * row}"},
        {"wait": f"{rows_at}.length > 0"},
        {"do": f"{rows_at}[0].click()"},
        {"wait": "document.querySelectorAll('#detail h2')[1].textContent !== window.before"},
        {"get": "[...document.querySelectorAll('#detail h2')].map((e) => e.textContent)"},
        {"get": "[...document.querySelectorAll('.response')].map((e) => e.textContent)"},
        {"get": "document.querySelector('.chart svg').querySelectorAll('polyline').length"},
    ])  # fmt: skip
    headings, texts, lines = found["got"]
    wanted = one[row]
    keys = ("uid", "sample", "split", "iteration")
    names = [wanted[key] for key in keys]
    [like] = [r for r in other if [r[key] for key in keys] == names]
    heading = f"{names[0]} #{names[1]} · val 4 · countdown"
    assert headings == [runs[0].name, heading, runs[1].name, heading]
    assert texts == ["".join(r["tokens"]["text"]) for r in (wanted, like)]
    assert lines == 2


def test_a_hundred_thousand_responses_stay_usable(tmp_path):
    """Few rows are in the page, and blocks are read when they are looked at."""
    texts = ["try " * (n % 97) for n in range(1000)]
    texts[5] += "needle"
    lines = (
        {"iteration": n // 1000, "split": "train", "uid": f"p-{n % 100}", "sample": n // 100 % 10,
         "source": "s", "question": "q", "answer": "a", "response": f"{n} {texts[n % 1000]}",
         "value": n % 2, "status": "right" if n % 2 else "wrong", "num_tokens": n % 577,
         "finished": True}
        for n in range(100_000)
    )  # fmt: skip
    append_records(tmp_path / "run/responses.jsonl", lines)
    write_page([tmp_path / "run"], tmp_path / "page.html")
    found = browse(tmp_path / "page.html", [
        {"get": "document.querySelectorAll('#list *').length"},
        set_("order", "num_tokens"),
        {"do": "byId('list').scrollTop = 26 * 60000"},
        {"wait": "document.querySelectorAll('#rows .row').length > 5 &&"
                 " parseFloat(document.querySelector('#rows .row').style.top) > 26 * 59000"},
        {"get": "document.querySelectorAll('#list *').length"},
        {"get": "+document.querySelectorAll('#rows .row .number')[1].textContent.split(' ')[0]"},
        set_("text", "needle", "input"),
        {"wait": "byId('count').textContent === '100 of 100,000 responses'"},
        {"get": "performance.memory.usedJSHeapSize / 1e6"},
    ])  # fmt: skip
    at_first, in_the_middle, num_tokens, megabytes = found["got"]
    assert at_first < 1000 and in_the_middle < 1000
    in_order = sorted(n % 577 for n in range(100_000))
    assert num_tokens in in_order[59_900:60_100]
    assert megabytes < 500
