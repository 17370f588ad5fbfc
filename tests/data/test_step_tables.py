"""Labelled steps from tables: ProcessBench's form, lists of numbers, and where tokens end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import ROOT

from r1lit.data import PreferenceDataModule, TableLabels, TableSteps
from r1lit.data.preference_data import encode_examples
from r1lit.policy import load_tokenizer

TOKENIZER = load_tokenizer(str(ROOT / "models" / "mini"))
REAL = ROOT / ".." / "shared" / "data" / "process_bench.jsonl.gz"


def write(path: Path, *labels: object) -> str:
    rows = [{"problem": f"P{n}", "steps": ["one", "two", "three"], "label": label}
            for n, label in enumerate(labels)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_labels_by_index_and_by_number(tmp_path):
    path = write(tmp_path / "a.jsonl", 1, -1, [1.0, 0.25, 0])
    wrong, right, soft = TableSteps(path).examples()
    assert wrong.responses == ("one\n\ntwo\n\nthree",) and wrong.group == "P0"
    assert (wrong.step_ends, wrong.step_labels) == ((5, 10), (1.0, 0.0))  # nothing behind it
    assert (right.step_ends, right.step_labels) == ((5, 10, 15), (1.0, 1.0, 1.0))
    assert soft.step_labels == (1.0, 0.25, 0.0)
    assert [e.label for e in (wrong, right, soft)] == [0.0, 1.0, 0.0]
    assert TableSteps(path, hard=True).examples()[2].step_labels == (1.0, 1.0, 0.0)
    assert TableSteps(path, joined_by="").examples()[0].responses == ("onetwothree",)


@pytest.mark.parametrize("label", [3, -2, True, "1", [1, 1], [1, 1, 2], None])
def test_a_label_that_cannot_be_is_named(tmp_path, label):
    with pytest.raises(ValueError, match=r"row 1 of .* its 3 steps need the index of the first"):
        TableSteps(write(tmp_path / "a.jsonl", label)).examples()


def test_steps_are_read_at_the_tokens_that_end_them(tmp_path):
    examples = TableSteps(write(tmp_path / "a.jsonl", 1, -1)).examples()
    options = {"template": "question_answer", "score_on": "response", "key": "data.train"}
    found = encode_examples(examples, TOKENIZER, max_tokens=64, too_long="cut", **options)
    for example, own in zip(examples, found.examples, strict=True):
        row, start = own.rows[0], len(own.rows[0]) - 1 - own.lengths[0]
        read = [TOKENIZER.decode(row[start : place + 1]) for place in own.step_places]
        assert read == [example.responses[0][:end] for end in example.step_ends]
    # of a row that would lose its response there is nothing to learn
    length = len(found.examples[0].rows[0])
    num = found.examples[0].lengths[0]
    cut = encode_examples(examples, TOKENIZER, max_tokens=num + 3, too_long="cut", **options)
    assert cut.num_cut == 2 and num + 3 < length
    ends = [e.step_places for e in cut.examples]
    assert ends == [tuple(p - (length - num - 3) for p in e.step_places) for e in found.examples]
    with pytest.raises(ValueError, match="all 2 examples are longer"):
        encode_examples(examples, TOKENIZER, max_tokens=num, too_long="cut", **options)


def test_steps_and_labelled_responses_do_not_mix(tmp_path):
    path = write(tmp_path / "a.jsonl", 1)
    with pytest.raises(ValueError, match="a model learns from one of them"):
        PreferenceDataModule(train=[TableSteps(path), TableLabels(path)])


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared/data")
def test_process_bench_is_read_as_it_is():
    examples = TableSteps(str(REAL)).examples()
    assert len(examples) == 1400
    wrong = [e for e in examples if e.step_labels[-1] == 0]
    assert all(e.step_labels[:-1] == (1.0,) * (len(e.step_labels) - 1) for e in wrong)
    assert 0 < len(wrong) < 1400 and len({e.group for e in examples}) < 1400
