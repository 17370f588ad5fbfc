"""The page holds every response and every number of a run, and nothing that it would load."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re

import matplotlib
import pytest
from tiny import ROOT

from r1lit.files import append_records, read_records, write_records
from r1lit.view import page
from r1lit.view.page import write_page

HOSTILE = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\ud800 alone",
    "\x00\u2028", "ünï 数学 🙂", "", "a\\u003c\n\t\"quoted\" 'twice'",
)  # fmt: skip


def record(number: int, **more) -> dict:
    return {
        "iteration": number // 40,
        "split": "train" if number % 3 else "val",
        "uid": f"p-{number % 7}",
        "sample": number % 4,
        "source": "countdown",
        "question": "make 24",
        "answer": "6 * 4",
        "response": HOSTILE[number % len(HOSTILE)] + " word" * (number % 11),
        "value": float(number % 2),
        "status": "right" if number % 2 else "wrong",
        "reason": "",
        "canonical": None,
        "num_tokens": number,
        "finished": number % 5 > 0,
        "rewards": {"accuracy": number / 3},
        **more,
    }


def read_page(path) -> dict:
    """Every element of data in a page, by its name, read as strictly as a browser does."""

    def refuse(constant):
        raise AssertionError(f"no browser reads {constant}")

    element = r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>'
    return {
        name: json.loads(gzip.decompress(base64.b64decode(text)), parse_constant=refuse)
        for name, text in re.findall(element, path.read_text())
    }


def responses_in(data: dict, run: int = 0) -> list[dict]:
    blocks = [name for name in data if name.startswith(f"block-{run}-")]
    return [r for place in range(len(blocks)) for r in data[f"block-{run}-{place}"]]


def test_every_response_is_in_the_page_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "BLOCK_BYTES", 4000)
    records = [record(n) for n in range(100)]
    records[60]["rewards"]["format"] = 1.0  # one that is paid later
    records[61]["reward"] = math.nan
    path = tmp_path / "run/responses.jsonl"
    append_records(path, records)
    with path.open("ab") as file:
        file.write(b'{"iteration": 9, "torn')
    [held] = write_page([tmp_path / "run"], tmp_path / "page.html")
    assert held["responses"] == 100
    data = read_page(tmp_path / "page.html")
    kept = responses_in(data)
    written = read_records(path)
    written[61]["reward"] = None
    assert kept == written
    index = data["index-0"]
    assert index["length"] == 100 and index["block_ends"][-1] == 100
    assert len(index["block_ends"]) > 5
    lengths = [len(data[f"block-0-{place}"]) for place in range(len(index["block_ends"]))]
    assert [sum(lengths[: i + 1]) for i in range(len(lengths))] == index["block_ends"]
    for column in ("split", "source", "status", "uid"):
        texts = [index["names"][column][at] for at in index["texts"][column]]
        assert texts == [r[column] for r in records], column
    for column in ("iteration", "sample", "value", "num_tokens"):
        assert index["numbers"][column] == [r[column] for r in records], column
    accuracy = index["numbers"]["reward: accuracy"]
    assert accuracy == pytest.approx([r["rewards"]["accuracy"] for r in records], abs=1e-4)
    assert [n for n, v in enumerate(index["numbers"]["reward: format"]) if v is not None] == [60]
    assert "reward" not in index["numbers"]  # known of none
    assert index["finished"] == [int(r["finished"]) for r in records]


def test_a_page_loads_nothing_and_holds_no_text_of_a_response_in_the_open(tmp_path):
    append_records(tmp_path / "</title><b>/responses.jsonl", [record(n) for n in range(50)])
    write_page([tmp_path / "</title><b>"], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "alert" not in text and "</title><b>" not in text
    links = set(re.findall(r"https?://[\w./-]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not links and not re.search(r"<(link|img|iframe)|src=|@import|url\(", text)
    assert "default-src 'none'" in text


def test_curves_of_both_runs_and_names_that_tell_them_apart(tmp_path):
    for folder, value in (("a/x", 1.0), ("b/x", 2.0)):
        append_records(tmp_path / folder / "metrics.jsonl", [{"iteration": 0, "train/loss": value}])
        (tmp_path / folder / "summary.json").write_text('[{"iteration": 0, "pass_at_1": null}]')
    held = write_page([tmp_path / "a/x", tmp_path / "b/x"], tmp_path / "page.html")
    assert [run["name"] for run in held] == ["a/x", "b/x"]
    assert [run["iterations"] for run in held] == [1, 1]
    data = read_page(tmp_path / "page.html")
    assert data["curves-1"]["metrics"] == [{"iteration": 0, "train/loss": 2.0}]
    assert data["curves-0"]["evaluations"] == [{"iteration": 0, "pass_at_1": None}]
    assert data["index-0"]["length"] == 0
    [same, again] = write_page([tmp_path / "a/x", tmp_path / "a/x"], tmp_path / "page.html")
    assert same["name"] == again["name"] == "x"


def test_an_evaluation_has_no_iterations(tmp_path):
    bare = {key: value for key, value in record(1).items() if key not in ("iteration", "split")}
    append_records(tmp_path / "eval.jsonl", [{**bare, "rewards": None}])
    write_page([tmp_path / "eval.jsonl"], tmp_path / "page.html")
    index = read_page(tmp_path / "page.html")["index-0"]
    assert index["names"]["split"] == ["test"] and "iteration" not in index["numbers"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "run: there is no folder"),
        (["empty"], "has no metrics.jsonl and no responses.jsonl"),
        (["good", "good", "good"], "run: 3 are named"),
        (["bad"], "line 1: not JSON"),
        (["broken"], "summary.json is not JSON"),
        (["good", "--output", "none/page.html"], "output: none/page.html cannot be written"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    append_records(tmp_path / "good/responses.jsonl", [record(0)])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/responses.jsonl").write_text("no record\n")
    append_records(tmp_path / "broken/metrics.jsonl", [{"iteration": 0}])
    (tmp_path / "broken/summary.json").write_text("[")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        page.main(arguments)
    assert "\n" not in str(error.value)
    assert sorted(p.name for p in tmp_path.rglob("*")) == before  # nothing half-written


def test_the_command_names_the_page(tmp_path, monkeypatch, capsys):
    from r1lit import cli

    append_records(tmp_path / "aha/responses.jsonl", [record(n) for n in range(3)])
    monkeypatch.setattr("sys.argv", ["r1lit", "view", str(tmp_path / "aha")])
    cli.run()
    said = capsys.readouterr().out
    assert "aha: 3 responses" in said and str(tmp_path / "aha/view.html") in said
    assert (tmp_path / "aha/view.html").is_file()
    monkeypatch.setattr("sys.argv", ["r1lit", "view", str(tmp_path / "none")])
    with pytest.raises(SystemExit) as stop:
        cli.run()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("r1lit view: error: run: there is no folder")


def test_the_notebook_lines_of_the_page_read_two_runs(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "VIEWING.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    for name in ("aha", "dapo"):
        run = tmp_path / "runs" / name
        rows = [record(n, answer="007") for n in range(90)]
        numbers = [{"iteration": i, "train/reward/accuracy": i / 3} for i in range(3)]
        write_records(run / "responses.jsonl", rows)
        write_records(run / "metrics.jsonl", numbers)
    names: dict = {}
    matplotlib.use("Agg")
    exec(code, names)
    assert names["both"].shape == (3, 2) and list(names["both"]) == ["runs/aha", "runs/dapo"]
    assert len(names["every"]) == 180 and set(names["every"]["answer"]) == {"007"}
    assert names["every"]["reward/accuracy"].max() == pytest.approx(89 / 3)
